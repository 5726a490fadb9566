// SPDX-License-Identifier: Apache-2.0
// What the library costs beside the arithmetic: one op through the erased device, one action through the executor, a
// small sum over two ranks, and the compile time of its headers.

#include "support/figure.hpp"

#include <hetero/trainer.hpp>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <filesystem>

namespace {

namespace bench = hetero::bench;
using clock_type = std::chrono::steady_clock;

/// A device that takes ops and does nothing, so that what remains is the way to it.
class idle_device {
 public:
  [[nodiscard]] hetero::device_id id() const noexcept { return host_.id(); }
  [[nodiscard]] std::size_t threads() const noexcept { return 1; }
  [[nodiscard]] hetero::device_counters counters() const { return host_.counters(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return host_.budget_bytes(); }
  [[nodiscard]] hetero::stream_id create_stream() { return host_.create_stream(); }
  void destroy_stream(hetero::stream_id s) noexcept { host_.destroy_stream(s); }
  [[nodiscard]] void* allocate(std::size_t bytes, hetero::stream_id s) { return host_.allocate(bytes, s); }
  void deallocate(void* p, std::size_t bytes, hetero::stream_id s) noexcept { host_.deallocate(p, bytes, s); }
  void copy(hetero::tensor_view, hetero::tensor_view, hetero::stream_id) {}
  void launch(const hetero::device_op&, hetero::stream_id) {}
  void order(hetero::stream_id, hetero::stream_id) {}
  void synchronize(hetero::stream_id) {}

 private:
  hetero::cpu_device host_;
};

/// Nanoseconds of one call of `work`, once for each of `windows` windows of `calls` calls.
template <class Work> std::vector<double> nanoseconds(int windows, int calls, Work&& work) {
  std::vector<double> result;
  for (int window = 0; window <= windows; ++window) {
    const auto start = clock_type::now();
    for (int i = 0; i < calls; ++i) work();
    const std::chrono::duration<double, std::nano> elapsed = clock_type::now() - start;
    if (window > 0) result.push_back(elapsed.count() / calls);  // the first one warms up
  }
  return result;
}

std::vector<double> launch_ns(hetero::any_device device, int calls) {
  hetero::stream s{device};
  const hetero::buffer values{device, s.id(), hetero::dtype::f32, {16}};
  const hetero::device_op op = hetero::op::fill{values.view(), 1};
  return nanoseconds(9, calls, [&] { s.launch(op); });
}

std::vector<double> direct_launch_ns(int calls) {
  hetero::cpu_device device;
  const auto s = device.create_stream();
  const hetero::buffer values{device, s, hetero::dtype::f32, {16}};
  const hetero::device_op op = hetero::op::fill{values.view(), 1};
  return nanoseconds(9, calls, [&] { device.launch(op, s); });
}

struct no_hooks {
  void reduce(const hetero::action&) {}
  void step(const hetero::action&) {}
};

/// Actions of a step of 64 micro-batches of one sample, on a device that does nothing.
std::vector<double> action_ns(int steps) {
  constexpr std::uint32_t samples = 64;
  const hetero::mlp model{{.widths = {8, 8}}};
  hetero::stream s{hetero::any_device{idle_device{}}};
  hetero::parameter_store store{s.device(), s.id(), hetero::layout_of(model), hetero::dtype::f32, 1, {}};
  hetero::no_groups groups;
  hetero::executor<hetero::mlp> executor{model, store, s.device(), s.id(), &groups, {}};
  const hetero::cluster machines{
      .ranks = {{.device = "idle", .compute = {.per_sample_s = 1}, .memory_bytes = 1U << 30U}}};
  const hetero::plan plan = hetero::balanced_partitioner{}.partition(
      hetero::profile_of(model), machines,
      {.global_batch = samples, .micro_batches = samples, .bytes_per_parameter = 8});
  const hetero::program actions =
      hetero::one_f_one_b_scheduler{.micro_batches = samples}.actions(plan, hetero::rank_id{0});
  std::vector<std::uint64_t> ids(samples);
  hetero::batch batch;
  batch.prepare(ids, hetero::dtype::f32, {8}, hetero::dtype::i32, {});
  no_hooks hooks;
  std::vector<double> result = nanoseconds(9, steps, [&] { executor.run(actions, plan, batch.view(), 0, hooks); });
  for (double& ns : result) ns /= static_cast<double>(actions.size());
  return result;
}

/// Microseconds of a blocking sum of 256 floats over two ranks of this process.
std::vector<double> all_reduce_us(int calls) {
  std::vector<double> result;
  hetero::run_ranks(2, [&](hetero::world& world, hetero::rank_id rank) {
    std::vector<float> values(256, 0.0F);
    auto ns = nanoseconds(9, calls, [&] {
      world.all_reduce(hetero::tensor_view{std::span{values}}, hetero::reduce_op::sum, hetero::traffic_class::other);
    });
    if (rank == hetero::rank_id{0}) result = std::move(ns);
  });
  for (double& each : result) each /= 1e3;
  return result;
}

struct compilation {
  double cpu_s = 0;
  double peak_bytes = 0;
};

/// Compiles one unit that includes `header` and has an empty main, unoptimised and without any compiler cache.
/// @throws std::runtime_error when it does not compile
compilation compile(const std::string& compiler, const std::string& header) {
  const auto source = std::filesystem::temp_directory_path() / fmt::format("hetero-compile-{}.cpp", ::getpid());
  {
    std::ofstream out{source};
    out << "#include <" << header << ">\nint main() {}\n";
  }
  const std::string include = std::string{"-I"} + HETERO_BENCH_SOURCE_DIR + "/include";
  std::vector<std::string> words{"env", "CCACHE_DISABLE=1", compiler, "-std=c++20", "-O0", include,
                                 "-c",  source.string(),    "-o",     "/dev/null"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (const int error = ::posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ); error != 0)
    throw std::system_error{error, std::generic_category(), "cannot start " + compiler};
  int status = 0;
  rusage usage{};
  while (::wait4(pid, &status, 0, &usage) < 0 && errno == EINTR) {}
  std::filesystem::remove(source);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error{compiler + " does not compile " + header};
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), static_cast<double>(usage.ru_maxrss) * 1024};
}

bool has_program(const std::string& name) {
  std::istringstream folders{std::getenv("PATH") != nullptr ? std::getenv("PATH") : ""};
  for (std::string folder; std::getline(folders, folder, ':');)
    if (::access((folder + '/' + name).c_str(), X_OK) == 0) return true;
  return false;
}

void measure_compile_time(bench::figures& out, const std::string& compiler, const std::string& key, bool goals) {
  const bool quick = out.settings().quick;
  if (!has_program(compiler)) {
    if (goals) out.add_missing("overhead/compile/" + key + "/trainer_hpp", "CPU s", 8, "no " + compiler + " in PATH");
    return;
  }
  const auto units = out.quietly([&] {
    std::vector<compilation> runs;
    for (int i = 0; i < (quick ? 1 : 3); ++i) runs.push_back(compile(compiler, "hetero/trainer.hpp"));
    return runs;
  });
  std::vector<double> seconds, megabytes;
  for (const auto& run : units) {
    seconds.push_back(run.cpu_s);
    megabytes.push_back(run.peak_bytes / 1e6);
  }
  auto door = bench::median_figure("overhead/compile/" + key + "/trainer_hpp", seconds, "CPU s");
  if (goals) door.goal = 8;
  door.better = bench::direction::at_most;
  door.note = compiler + " -O0 -c, empty main, header-only";
  out.add(door);
  out.add(bench::median_figure("overhead/compile/" + key + "/trainer_hpp_memory", megabytes, "MB"));

  const auto core = out.quietly([&] {
    std::vector<std::pair<double, std::string>> each;
    for (const auto& entry :
         std::filesystem::directory_iterator{std::string{HETERO_BENCH_SOURCE_DIR} + "/include/hetero/core"}) {
      const std::string name = entry.path().filename().string();
      double best = compile(compiler, "hetero/core/" + name).cpu_s;
      if (!quick) best = std::min(best, compile(compiler, "hetero/core/" + name).cpu_s);
      each.emplace_back(best, name);
    }
    std::sort(each.rbegin(), each.rend());
    return each;
  });
  bench::figure worst{
      .name = "overhead/compile/" + key + "/worst_core_header", .value = core.front().first, .unit = "CPU s"};
  if (goals) worst.goal = 2;
  worst.better = bench::direction::at_most;
  for (const auto& [cost, name] : core)
    worst.note += fmt::format("{}{} {:.2f}", worst.note.empty() ? "" : ", ", name, cost);
  out.add(worst);
}

void measure_calls(bench::figures& out) {
  const int calls = out.settings().quick ? 20'000 : 200'000;
  const auto add = [&](const std::string& name, std::vector<double> samples, const std::string& unit,
                       const std::string& note) {
    auto cost = bench::median_figure("overhead/" + name, std::move(samples), unit);
    cost.note = note;
    out.add(cost);
  };
  add("dispatch_any_device", out.quietly([&] { return launch_ns(idle_device{}, 10 * calls); }), "ns",
      "one op to a device that does nothing");
  add("launch_cpu_direct", out.quietly([&] { return direct_launch_ns(calls); }), "ns",
      "fill of 16 floats by cpu_device");
  add("launch_cpu_any_device", out.quietly([&] { return launch_ns(hetero::make_device({}), calls); }), "ns",
      "the same through any_device");
  add("executor_action", out.quietly([&] { return action_ns(calls / 200); }), "ns",
      "forward or backward of one linear layer and loss, on a device that does nothing");
  add("all_reduce_1_KiB_in_process", out.quietly([&] { return all_reduce_us(calls / 100); }), "us",
      "2 ranks, blocking");
}

}  // namespace

int main(int argc, char** argv) {
  bench::options settings;
  CLI::App app{"Cost of a dispatch, an action, a small all_reduce, and of compiling the headers."};
  bench::add_options(app, settings);
  CLI11_PARSE(app, argc, argv);
  try {
    bench::figures out{settings};
    measure_calls(out);
    measure_compile_time(out, "g++", "gcc", true);
    measure_compile_time(out, "clang++-16", "clang_16", false);
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "overhead: {}\n", reason.what());
    return 1;
  }
}
