// SPDX-License-Identifier: Apache-2.0
// What the general paths cost beside straight loops written by hand for the one case at hand: a step through plan,
// actions, layers and the erased device against the same ops launched one after another on the concrete device, and a
// sum of 1 KiB over two ranks through `world` against the two messages and the addition it comes down to. Windows of
// both take turns.

#include "support/figure.hpp"

#include <hetero/trainer.hpp>

#include <time.h>

#include <array>
#include <thread>
#include <variant>

namespace {

namespace bench = hetero::bench;
using clock_type = std::chrono::steady_clock;

/// Work as a device gets it: an op, or a copy.
struct copy_work {
  hetero::tensor_view to, from;
};
using device_work = std::vector<std::variant<hetero::device_op, copy_work>>;

/// The host's device; notes what it is given while there is a list.
class noting_device {
 public:
  noting_device(std::shared_ptr<hetero::cpu_device> host, std::shared_ptr<device_work> list)
      : host_{std::move(host)}, list_{std::move(list)} {}
  [[nodiscard]] hetero::device_id id() const noexcept { return host_->id(); }
  [[nodiscard]] std::size_t threads() const noexcept { return host_->threads(); }
  [[nodiscard]] hetero::device_counters counters() const { return host_->counters(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return host_->budget_bytes(); }
  [[nodiscard]] hetero::stream_id create_stream() { return host_->create_stream(); }
  void destroy_stream(hetero::stream_id s) noexcept { host_->destroy_stream(s); }
  [[nodiscard]] void* allocate(std::size_t bytes, hetero::stream_id s) { return host_->allocate(bytes, s); }
  void deallocate(void* p, std::size_t bytes, hetero::stream_id s) noexcept { host_->deallocate(p, bytes, s); }
  void copy(hetero::tensor_view to, hetero::tensor_view from, hetero::stream_id s) {
    if (list_) list_->push_back(copy_work{to, from});
    host_->copy(to, from, s);
  }
  void launch(const hetero::device_op& op, hetero::stream_id s) {
    if (list_) list_->push_back(op);
    host_->launch(op, s);
  }
  void order(hetero::stream_id a, hetero::stream_id b) { host_->order(a, b); }
  void synchronize(hetero::stream_id s) { host_->synchronize(s); }

 private:
  std::shared_ptr<hetero::cpu_device> host_;
  std::shared_ptr<device_work> list_;
};

struct no_hooks {
  void reduce(const hetero::action&) {}
  void step(const hetero::action&) {}
};

/// Which step: an MLP, so many samples in so many micro-batches.
struct job {
  std::vector<std::uint64_t> widths;
  std::uint32_t samples = 0, micro_batches = 0;
};

/// Gradients of one step of a job.
class small_step {
 public:
  small_step(hetero::any_device device, const job& j) : job_{j}, stream_{std::move(device)} {
    ids_.resize(job_.samples);
    batch_.prepare(ids_, hetero::dtype::f32, {job_.widths.front()}, hetero::dtype::i32, {});
    std::ranges::fill(batch_.inputs.elements<float>(), 0.5F);
    std::ranges::fill(batch_.targets.elements<std::int32_t>(), 3);
  }
  void run() { executor_.run(actions_, plan_, batch_.view(), 0, hooks_); }

 private:
  job job_;
  hetero::mlp model_{{.widths = job_.widths}};
  hetero::stream stream_;
  hetero::parameter_store store_{stream_.device(), stream_.id(), hetero::layout_of(model_), hetero::dtype::f32, 1, {}};
  hetero::no_groups groups_;
  hetero::executor<hetero::mlp> executor_{model_, store_, stream_.device(), stream_.id(), &groups_, {}};
  hetero::plan plan_ = hetero::balanced_partitioner{}.partition(
      hetero::profile_of(model_),
      {.ranks = {{.device = "cpu", .compute = {.per_sample_s = 1}, .memory_bytes = 1U << 30U}}},
      {.global_batch = job_.samples, .micro_batches = job_.micro_batches, .bytes_per_parameter = 8});
  hetero::program actions_ =
      hetero::one_f_one_b_scheduler{.micro_batches = job_.micro_batches}.actions(plan_, hetero::rank_id{0});
  std::vector<std::uint64_t> ids_;
  hetero::batch batch_;
  no_hooks hooks_;
};

/// Seconds that this thread computes, so that others who want its core do not count.
double computed_s() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

template <class Work> double computed_seconds_of(int calls, Work&& work) {
  const double start = computed_s();
  for (int i = 0; i < calls; ++i) work();
  return (computed_s() - start) / calls;
}

template <class Work> double seconds_of(int calls, Work&& work) {
  const auto start = clock_type::now();
  for (int i = 0; i < calls; ++i) work();
  return std::chrono::duration<double>(clock_type::now() - start).count() / calls;
}

struct windows {
  std::vector<double> general_s, straight_s;
};

struct step_result {
  windows seconds;
  std::size_t operations = 0;
};

step_result measure_step(const job& j, int rounds, int calls) {
  const auto host = std::make_shared<hetero::cpu_device>(hetero::cpu_device_options{.threads = 1});
  const auto list = std::make_shared<device_work>();
  small_step noted{noting_device{host, list}, j};  // its memory is what the straight loop works on
  noted.run();
  list->clear();
  noted.run();
  const device_work work = *list;
  const hetero::stream_id stream = host->create_stream();
  const auto straight = [&] {
    for (const auto& each : work) {
      if (const auto* const op = std::get_if<hetero::device_op>(&each))
        host->launch(*op, stream);
      else
        host->copy(std::get<copy_work>(each).to, std::get<copy_work>(each).from, stream);
    }
  };
  small_step general{noting_device{host, nullptr}, j};
  general.run();
  step_result result;
  result.operations = work.size();
  for (int round = 0; round <= rounds; ++round) {
    const double g = computed_seconds_of(calls, [&] { general.run(); }), s = computed_seconds_of(calls, straight);
    if (round == 0) continue;  // warms up
    result.seconds.general_s.push_back(g);
    result.seconds.straight_s.push_back(s);
  }
  host->destroy_stream(stream);
  return result;
}

/// 256 floats over two ranks: both send all and add what arrives.
void straight_sum(hetero::transport& carrier, std::span<float> values, std::uint64_t sequence) {
  std::array<float, 256> arrived;
  hetero::transfer in, out;
  const hetero::fingerprint what{.channel = 7,
                                 .sequence = sequence,
                                 .count = values.size(),
                                 .kind = hetero::operation_kind::all_reduce,
                                 .type = hetero::dtype::f32};
  for (hetero::transfer* const t : {&in, &out}) {
    t->peer = 1 - carrier.rank();
    t->what = what;
    t->channel_name = "straight";
    t->bytes = values.size_bytes();
  }
  in.direction = hetero::transfer::way::recv;
  in.data = reinterpret_cast<std::byte*>(arrived.data());
  out.data = reinterpret_cast<std::byte*>(values.data());
  carrier.post(in);
  carrier.post(out);
  std::array<hetero::transfer*, 2> both{&in, &out};
  if (carrier.wait(both, clock_type::now() + std::chrono::seconds{30}) != hetero::transport::status::done)
    throw std::runtime_error{"the straight loop failed"};
  for (std::size_t i = 0; i < arrived.size(); ++i) values[i] += arrived[i];
}

windows measure_sum(int rounds, int calls) {
  windows result;
  auto carriers = hetero::in_process_transports(2);
  hetero::detail::run_threads(
      2,
      [&](std::uint32_t rank) {
        hetero::world world{carriers[rank]};
        std::array<float, 256> values{};
        std::uint64_t sequence = 0;
        for (int round = 0; round <= rounds; ++round) {
          world.barrier();
          const double g = seconds_of(
              calls, [&] { world.all_reduce(hetero::tensor_view{std::span<float>{values}}, hetero::reduce_op::sum); });
          world.barrier();
          const double s = seconds_of(calls, [&] { straight_sum(*carriers[rank], values, sequence++); });
          if (rank != 0 || round == 0) continue;
          result.general_s.push_back(g);
          result.straight_s.push_back(s);
        }
      },
      [](std::uint32_t, const std::exception_ptr&) {});
  return result;
}

void add(bench::figures& out, const std::string& name, const windows& measured, const std::string& note) {
  auto ratio =
      bench::median_figure("dispatch/" + name, bench::paired_ratios(measured.general_s, measured.straight_s), "ratio");
  ratio.goal = 1.02;
  ratio.better = bench::direction::at_most;
  ratio.note = fmt::format("{}; medians {:.2f} and {:.2f} us", note, 1e6 * bench::median_of(measured.general_s),
                           1e6 * bench::median_of(measured.straight_s));
  out.add(ratio);
}

}  // namespace

int main(int argc, char** argv) {
  bench::options common;
  CLI::App app{"General paths against straight loops written by hand."};
  bench::add_options(app, common);
  CLI11_PARSE(app, argc, argv);
  try {
    bench::figures out{common};
    const int rounds = common.quick ? 15 : 51;
    const auto step = out.quietly([&] {
      return measure_step({{784, 128, 10}, 128, 8}, rounds, common.quick ? 10 : 40);
    });
    add(out, "step_over_straight_loop", step.seconds,
        fmt::format("MLP 784-128-10, 8 micro-batches of 16, {} ops on one thread, its CPU time", step.operations));
    const auto tiny = out.quietly([&] { return measure_step({{8, 8}, 64, 64}, rounds, common.quick ? 50 : 200); });
    std::vector<double> extra_ns;
    for (std::size_t i = 0; i < tiny.seconds.general_s.size(); ++i)
      extra_ns.push_back(1e9 * (tiny.seconds.general_s[i] - tiny.seconds.straight_s[i]) /
                         static_cast<double>(tiny.operations));
    auto cost = bench::median_figure("dispatch/cost_of_an_operation", extra_ns, "ns");
    cost.goal = 200;
    cost.better = bench::direction::at_most;
    cost.note = fmt::format("what a step takes longer, for each of its {} ops; MLP 8-8, 64 micro-batches of 1",
                            tiny.operations);
    out.add(cost);
    const auto sum = out.quietly([&] { return measure_sum(rounds, common.quick ? 200 : 1000); });
    add(out, "all_reduce_1_KiB_over_straight_loop", sum, "2 ranks as threads");
    return out.finish();
  } catch (const std::exception& reason) {
    fmt::print(stderr, "dispatch: {}\n", reason.what());
    return 1;
  }
}
