// SPDX-License-Identifier: Apache-2.0
// How much of an uneven pool a job uses, and how fast it follows a device whose speed changes. Slow devices are
// emulated.
//
// Pool efficiency = samples per second of the job / sum over its devices of their own samples per second, all in one
// run with every device working at once and unsynchronised: windows of at least 5 s, solo and joint interleaved, median
// of 5. Two processes over TCP, one thread each, nanoGPT's CPU setting with a global batch of 128. Alone, a device
// trains the same job on its own. A solo window ends for each device with its own step, and each goes on unmeasured
// until the other has surely ended too, so that neither is measured beside an idle core.

#include "support/figure.hpp"
#include "support/peer_process.hpp"
#include "support/random_tokens.hpp"

#include <hetero/trainer.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <cmath>
#include <filesystem>
#include <iostream>

namespace {

namespace bench = hetero::bench;
using clock_type = std::chrono::steady_clock;

constexpr std::uint64_t global_batch = 128;
const bench::random_tokens data{global_batch, 64, 65};

double seconds_since(clock_type::time_point start) {
  return std::chrono::duration<double>(clock_type::now() - start).count();
}

hetero::gpt nanogpt() {
  return hetero::gpt{{.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = 65, .bias = false}};
}

/// One rank's side: its device, the job on both devices under two partitioners, and the same job on this device alone.
class contestant {
 public:
  contestant(hetero::world& world, double speed)
      : world_{world},
        alone_{hetero::self()},
        throttle_{speed},
        device_{hetero::make_device({}, {.throttle = throttle_})},
        joint_{nanogpt(), world_, device_, options(true), optimizer()},
        even_{nanogpt(), world_, device_, options(false), optimizer(), hetero::even_partitioner{}},
        solo_{nanogpt(), alone_, device_, options(false), optimizer()} {
    joint_.prepare(data);
    even_.prepare(data);
    solo_.prepare(data);
  }

  /// Steps of the job until its shares have settled; returns the shares as text.
  std::string settle(std::uint64_t steps) {
    for (const auto& step : joint_.steps(data, steps)) static_cast<void>(step);
    return shares();
  }
  [[nodiscard]] std::string shares() const {
    std::string text;
    for (const auto share : hetero::shares_of(joint_.current_plan()))
      text += (text.empty() ? "" : ":") + std::to_string(share);
    return text;
  }

  /// Samples per second of both devices together, each on its own, added up.
  double solo_rate(double window_s) {
    if (slowest_step_s_ == 0) solo_.step(data);  // the first one allocates
    world_.barrier();
    const auto start = clock_type::now();
    std::uint64_t samples = 0;
    double longest_s = 0;
    do {
      const auto began = clock_type::now();
      samples += solo_.step(data).samples;
      longest_s = std::max(longest_s, seconds_since(began));
    } while (seconds_since(start) < window_s);
    const double rate = static_cast<double>(samples) / seconds_since(start);
    slowest_step_s_ = std::max(slowest_step_s_, 1.25 * longest_s);
    while (seconds_since(start) < window_s + slowest_step_s_) solo_.step(data);
    slowest_step_s_ = world_.all_reduce(slowest_step_s_, hetero::reduce_op::max);
    return world_.all_reduce(rate, hetero::reduce_op::sum);
  }

  double joint_rate(double window_s) { return rate_of(joint_, window_s, joint_step_s_); }
  double even_rate(double window_s) { return rate_of(even_, window_s, even_step_s_); }

  /// Samples per second of each of `steps` steps of the job; the speed of this device becomes `speed` before the first.
  std::vector<double> after_change(double speed, std::uint64_t steps, bool mine) {
    if (mine) throttle_.set_speed(speed);
    std::vector<double> rates;
    auto last = clock_type::now();
    for (const auto& step : joint_.steps(data, steps)) {
      rates.push_back(static_cast<double>(step.samples) / seconds_since(last));
      last = clock_type::now();
    }
    return rates;
  }

 private:
  using joint_type =
      hetero::trainer<hetero::gpt, hetero::world, hetero::any_device, hetero::trainer_options, hetero::adamw>;
  using even_type = hetero::trainer<hetero::gpt, hetero::world, hetero::any_device, hetero::trainer_options,
                                    hetero::adamw, hetero::even_partitioner>;

  static hetero::trainer_options options(bool follow) { return {.measure = follow, .rebalance = follow}; }
  static hetero::adamw optimizer() { return {.learning_rate = 1e-3, .beta2 = 0.99, .weight_decay = 0.1}; }

  template <class Trainer> double rate_of(Trainer& trainer, double window_s, double& step_s) {
    if (step_s == 0) trainer.step(data);  // the first one allocates
    world_.barrier();
    const auto start = clock_type::now();
    std::uint64_t done = 0;
    for (double elapsed_s = 0; elapsed_s < window_s;) {
      // Ranks agree on the number of steps without talking in between; what is missing is added.
      const auto left = static_cast<std::uint64_t>(step_s > 0 ? std::ceil(1.02 * (window_s - elapsed_s) / step_s) : 4);
      for (const auto& step : trainer.steps(data, left)) static_cast<void>(step);
      done += left;
      elapsed_s = world_.all_reduce(seconds_since(start), hetero::reduce_op::max);
      step_s = elapsed_s / static_cast<double>(done);
    }
    return static_cast<double>(done * global_batch) / (step_s * static_cast<double>(done));
  }

  hetero::world& world_;
  hetero::world alone_;
  hetero::throttle_control throttle_;
  hetero::any_device device_;
  joint_type joint_;
  even_type even_;
  joint_type solo_;
  double slowest_step_s_ = 0, joint_step_s_ = 0, even_step_s_ = 0;
};

/// What both processes do; rank 0 prints one line with what was measured.
int run_rank(bool drift, double speed, int rounds, double window_s) {
  hetero::world world = hetero::join({.settings = "pool benchmark"});
  world.set_timeout(std::chrono::minutes{2});
  const bool second = world.rank() == hetero::rank_id{1};
  contestant c{world, second && !drift ? speed : 1.0};
  nlohmann::json result;
  if (!drift) {
    c.settle(24);
    for (int round = 0; round < rounds; ++round) {
      result["solo"].push_back(c.solo_rate(window_s));
      result["joint"].push_back(c.joint_rate(window_s));
      // The even split needs less precision: it is there to show what it costs.
      if (round % 2 == 0) result["even"].push_back(c.even_rate(window_s));
    }
    result["shares"] = c.shares();
  } else {
    const auto tell = [&](double to) { c.after_change(to, 0, second); };
    for (const double to : {speed, 1.0}) {
      tell(to);
      result["sum"].push_back(c.solo_rate(window_s));
    }
    c.settle(24);
    for (int round = 0; round < rounds; ++round)
      for (const double to : {speed, 1.0}) result["rates"].push_back(c.after_change(to, 24, second));
  }
  if (!second) std::cout << result.dump() << std::endl;
  return 0;
}

std::uint16_t free_port() {
  const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = s >= 0 && ::bind(s, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(s, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (s >= 0) ::close(s);
  if (!bound) throw std::runtime_error{"no free port on the loopback interface"};
  return ntohs(address.sin_port);
}

/// Runs two ranks as processes and returns what rank 0 measured.
nlohmann::json run_processes(const std::vector<std::string>& arguments) {
  const std::string port = "MASTER_PORT=" + std::to_string(free_port());
  std::vector<bench::peer_process> ranks;
  for (const char* rank : {"RANK=0", "RANK=1"}) {
    std::vector<std::string> command{"env", rank, "WORLD_SIZE=2", port, "/proc/self/exe", "--rank"};
    command[4] = std::filesystem::read_symlink("/proc/self/exe").string();
    command.insert(command.end(), arguments.begin(), arguments.end());
    ranks.emplace_back(command);
  }
  return nlohmann::json::parse(ranks[0].read_line(std::chrono::minutes{10}));
}

void measure_efficiency(bench::figures& out, double speed) {
  const bool quick = out.settings().quick;
  const auto measured = out.quietly([&] {
    return run_processes(
        {"--speed", std::to_string(speed), "--rounds", quick ? "2" : "5", "--window", quick ? "1" : "5"});
  });
  const auto list = [&](const char* name) { return measured.at(name).get<std::vector<double>>(); };
  const auto solo = list("solo");
  const std::string prefix = fmt::format("pool/second_at_{:.0f}_percent", 100 * speed);
  const std::string emulated = speed < 1 ? "second device emulated" : "two real devices";
  auto efficiency = bench::median_figure(prefix + "/efficiency", bench::paired_ratios(list("joint"), solo), "ratio");
  efficiency.goal = 0.975;
  efficiency.note =
      fmt::format("{}, shares {}, medians {:.1f} of {:.1f} samples/s", emulated,
                  measured.at("shares").get<std::string>(), bench::median_of(list("joint")), bench::median_of(solo));
  out.add(efficiency);
  std::vector<double> ratios = list("even");
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] /= solo[2 * i];
  auto even = bench::median_figure(prefix + "/efficiency_of_even_split", ratios, "ratio");
  even.note = fmt::format("{}; cannot exceed {:.3f}", emulated, 2 * speed / (1 + speed));
  out.add(even);
}

/// The step, counted from 1, from which on throughput stays above `target`: it is above itself, and so is the median of
/// it and the four steps after it. One more than there are steps when there is none.
double steps_until(const std::vector<double>& rates, double target) {
  for (std::size_t i = 0; i + 5 <= rates.size(); ++i)
    if (rates[i] > target && bench::median_of({rates.begin() + static_cast<std::ptrdiff_t>(i),
                                               rates.begin() + static_cast<std::ptrdiff_t>(i + 5)}) > target)
      return static_cast<double>(i + 1);
  return static_cast<double>(rates.size() + 1);
}

void measure_drift(bench::figures& out) {
  const bool quick = out.settings().quick;
  constexpr double slow = 0.4;
  const auto measured = out.quietly([&] {
    return run_processes(
        {"--drift", "--speed", std::to_string(slow), "--rounds", quick ? "1" : "5", "--window", quick ? "1.5" : "5"});
  });
  const auto sums = measured.at("sum").get<std::vector<double>>();
  const auto rates = measured.at("rates").get<std::vector<std::vector<double>>>();
  for (const std::size_t back : {0U, 1U}) {
    std::vector<double> steps;
    for (std::size_t i = back; i < rates.size(); i += 2) steps.push_back(steps_until(rates[i], 0.95 * sums[back]));
    auto recovery = bench::median_figure(
        back == 0 ? "pool/drift/steps_after_slowdown" : "pool/drift/steps_after_speedup", steps, "steps");
    recovery.goal = 10;
    recovery.better = bench::direction::at_most;
    std::string first;
    for (std::size_t i = 0; i < 12; ++i) first += fmt::format(" {:.2f}", rates[back][i] / sums[back]);
    recovery.note = fmt::format(
        "second device (emulated) {} {:.0f} %; until above 95 % of the new sum {:.1f} samples/s; first time:{}",
        back == 0 ? "falls to" : "is back from", 100 * slow, sums[back], first);
    out.add(recovery);
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::options settings;
  bool rank = false, drift = false;
  double speed = 1, window_s = 5;
  int rounds = 5;
  CLI::App app{"Pool efficiency of two devices as processes over TCP, and how fast shares follow a change of speed."};
  bench::add_options(app, settings);
  app.add_flag("--rank", rank, "Be one of the processes")->group("");
  app.add_flag("--drift", drift, "As a rank: change the speed")->group("");
  app.add_option("--speed", speed, "As a rank: speed of the second device")->group("");
  app.add_option("--rounds", rounds, "As a rank: rounds")->group("");
  app.add_option("--window", window_s, "As a rank: seconds of a window")->group("");
  CLI11_PARSE(app, argc, argv);
  try {
    if (rank) return run_rank(drift, speed, rounds, window_s);
    bench::figures out{settings};
    for (const double each : {1.0, 0.75, 0.5, 0.25}) measure_efficiency(out, each);
    measure_drift(out);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "pool: {}\n", reason.what());
    return 1;
  }
}
