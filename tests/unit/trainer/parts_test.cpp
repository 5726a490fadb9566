// SPDX-License-Identifier: Apache-2.0
// The trainer in pieces: parts, ranges, scores, gradients of inputs, what it counts and what it refuses.
#include "support/catch.hpp"

#include "laws/training.hpp"
#include "support/deferred_device.hpp"

#include <atomic>

using namespace hetero;
using namespace hetero::test;

namespace {

constexpr std::uint64_t global_batch = 6;

batches<ragged_data> points() { return {data_for(small_mlp()), {.global_batch = global_batch, .seed = 3}}; }

/// One trainer type for most of this file: each costs seconds to compile.
auto make_trainer(world& w, trainer_options options = untimed(numerics::fast), any_device device = one_thread(),
                  std::vector<double> ratio = {5, 3, 1}) {
  return trainer{small_mlp(), w,     ratio_partitioner{.ratio = std::move(ratio)}, clip_norm{.max_norm = 0.5},
                 options,     device};
}

template <class Trainer> batch next_share(Trainer& t, const batches<ragged_data>& source) {
  const auto ids = source.sample_ids(t.position());
  const sample_range mine = t.share(ids.size());
  return source.load(std::span{ids}.subspan(mine.begin, mine.count()));
}

template <class Body> void expect_error(errc code, const std::string& text, Body&& body) {
  try {
    body();
    FAIL("nothing was thrown");
  } catch (const error& e) {
    INFO(e.what());
    REQUIRE(e.code() == code);
    REQUIRE_THAT(e.what(), ContainsSubstring(text));
  }
}

}  // namespace

TEST_CASE("forward_backward, reduce and update are one step", "[trainer]") {
  std::vector<tensors> whole(2);
  std::vector<tensors> parts(2);
  run_ranks(2, [&](world& w) {
    auto a = make_trainer(w);
    auto b = make_trainer(w);
    const auto source = points();
    b.prepare(source);
    for (int i = 0; i < 4; ++i) {
      (void)a.step(source);
      const batch mine = next_share(b, source);
      b.forward_backward(mine.view());
      b.reduce();
      b.update();
    }
    whole[index_of(w.rank())] = parameters_of(a);
    parts[index_of(w.rank())] = parameters_of(b);
  });
  for (std::size_t r = 0; r < 2; ++r) REQUIRE(same_bits(whole[r], parts[r]));
}

TEST_CASE("a step without a plan says what to call first", "[trainer]") {
  world w = self();
  auto t = make_trainer(w);
  const batch some = points().load(std::vector<std::uint64_t>{1, 2});
  expect_error(errc::invalid_argument, "prepare(source)", [&] { (void)t.step(some.view()); });
  expect_error(errc::invalid_argument, "prepare(source)", [&] { (void)t.current_plan(); });
  t.prepare(points());
  REQUIRE_NOTHROW(t.step(some.view()));
}

TEST_CASE("reports count from 1 and say what a step was", "[trainer]") {
  std::vector<std::vector<step_report>> reports(3);
  run_ranks(3, [&](world& w) {
    trainer_options options = untimed(numerics::fast);
    options.device_name = "device " + std::to_string(index_of(w.rank()));
    auto t = make_trainer(w, options, one_thread(), {1, 0, 2});
    for (const step_report& r : t.steps(points(), 5)) reports[index_of(w.rank())].push_back(r);
  });
  for (std::size_t rank = 0; rank < 3; ++rank) {
    REQUIRE(reports[rank].size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      const step_report& r = reports[rank][i];
      REQUIRE(r.step == i + 1);
      REQUIRE(r.steps == 5);
      REQUIRE(r.rank == rank);
      REQUIRE(r.samples == (i == 3 ? 5 : global_batch));  // 23 samples are 6 + 6 + 6 + 5
      REQUIRE(same_bits(r.loss, reports[0][i].loss));
      REQUIRE(r.ranks.size() == 3);
      REQUIRE(r.ranks[1].share == 0);
      REQUIRE(r.ranks[0].share + r.ranks[2].share == r.samples);
      REQUIRE(r.ranks[2].device == "device 2");
      REQUIRE_FALSE(r.rebalanced);
    }
  }
}

TEST_CASE("a range ends early or not at all, and another one goes on where it stopped", "[trainer]") {
  std::vector<tensors> cut(2);
  std::vector<tensors> whole(2);
  run_ranks(2, [&](world& w) {
    auto a = make_trainer(w);
    auto b = make_trainer(w);
    const auto source = points();
    for (const step_report& r : a.steps(source, 100)) {
      if (r.step == 3) break;
    }
    require(a.position() == 3, errc::invalid_argument, "three steps were made");
    for (const step_report& r : a.steps(source, 4)) (void)r;
    for (const step_report& r : a.steps(source, 0))
      throw error{errc::invalid_argument, "no step is " + std::to_string(r.step)};
    for (int i = 0; i < 7; ++i) (void)b.step(source);
    cut[index_of(w.rank())] = parameters_of(a);
    whole[index_of(w.rank())] = parameters_of(b);
  });
  for (std::size_t r = 0; r < 2; ++r) REQUIRE(same_bits(cut[r], whole[r]));
}

TEST_CASE("more ranks than samples: the others are idle and stay equal", "[trainer]") {
  std::vector<outcome> all(5);
  ragged_data data = data_for(small_mlp());
  data.ragged = false;  // so that any two samples count
  const batches<ragged_data> source{data, {.global_batch = 2, .seed = 3}};
  run_ranks(5, [&](world& w) {
    auto t = make_trainer(w, untimed(), one_thread(), {1});
    note_steps(t, source, 5, all[index_of(w.rank())]);
    const auto& roles = t.current_plan().roles;
    require(std::count(roles.begin(), roles.end(), rank_role::idle) == 3, errc::invalid_argument,
            "three ranks are idle");
  });
  outcome alone;
  world w = self();
  auto t = make_trainer(w, untimed());
  note_steps(t, source, 5, alone);
  for (const auto& each : all) REQUIRE(same_bits(each, alone));
}

TEST_CASE("samples for an idle rank are refused, not lost", "[trainer]") {
  std::atomic<bool> refused{false};
  try {
    run_ranks(2, [&](world& w) {
      auto t = make_trainer(w, untimed(numerics::fast), one_thread(), {0, 1});
      t.prepare(points());
      const batch some = points().load(std::vector<std::uint64_t>{0, 1});
      try {
        (void)t.step(some.view());
      } catch (const error& e) {
        if (w.rank() == rank_id{0}) refused = std::string{e.what()}.find("idle") != std::string::npos;
        throw;
      }
    });
    FAIL("nothing was thrown");
  } catch (const error&) {}
  REQUIRE(refused);
  world w = self();
  auto t = make_trainer(w, untimed());
  t.prepare(points());
  const batch many = points().load(std::vector<std::uint64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  expect_error(errc::invalid_argument, "reproducible mode computes one sample at a time",
               [&] { (void)t.step(many.view()); });
}

TEST_CASE("a step in which nothing counts is an error on every rank and changes nothing", "[trainer]") {
  for (const numerics mode : {numerics::fast, numerics::reproducible}) {
    std::vector<std::string> texts(3);
    std::vector<char> unchanged(3);
    run_ranks(3, [&](world& w) {
      auto t = make_trainer(w, untimed(mode));
      const auto source = points();
      t.prepare(source);
      const tensors before = parameters_of(t);
      batch mine = next_share(t, source);
      for (auto& target : mine.targets.elements<std::int32_t>()) target = -1;
      try {
        (void)t.step(mine.view());
      } catch (const error& e) {
        if (e.code() == errc::invalid_argument) texts[index_of(w.rank())] = e.what();
      }
      unchanged[index_of(w.rank())] = same_bits(before, parameters_of(t)) && t.position() == 0;
      (void)t.step(source);  // and the job goes on
    });
    for (std::size_t r = 0; r < 3; ++r) {
      REQUIRE_THAT(texts[r], ContainsSubstring("no rank counted a sample"));
      REQUIRE(unchanged[r]);
    }
  }
}

TEST_CASE("scores are those of a single device, on any number of ranks", "[trainer]") {
  const ragged_data data = data_for(small_mlp());
  double loss = 0;
  double accuracy = 0;
  {
    world w = self();
    auto t = make_trainer(w);
    loss = t.evaluate(data);
    accuracy = t.accuracy(data);
    // By hand: the loss of one step over the whole set is the same number.
    auto u = make_trainer(w);
    const batches<ragged_data> all{data, {.global_batch = data.samples, .shuffle = false}};
    REQUIRE(u.step(all).loss == Approx(loss).epsilon(1e-6));
  }
  for (const std::uint32_t ranks : {2U, 3U, 5U}) {
    for (const bool planned : {false, true}) {
      std::vector<double> losses(ranks);
      std::vector<double> accuracies(ranks);
      run_ranks(ranks, [&](world& w) {
        auto t = make_trainer(w);
        if (planned) t.prepare(points());
        losses[index_of(w.rank())] = t.evaluate(data);
        accuracies[index_of(w.rank())] = t.accuracy(data);
      });
      for (std::uint32_t r = 0; r < ranks; ++r) {
        REQUIRE(losses[r] == Approx(loss).epsilon(1e-6));
        REQUIRE(accuracies[r] == Approx(accuracy).epsilon(1e-12));
        REQUIRE(same_bits(losses[r], losses[0]));
      }
    }
  }
  REQUIRE(accuracy > 0);
  REQUIRE(accuracy < 1);
}

TEST_CASE("scoring and predicting in the middle of a run leave it as it was", "[trainer]") {
  const auto run = [](bool looks) {
    tensors result;
    run_ranks(2, [&](world& w) {
      auto t = make_trainer(w);
      for (int i = 0; i < 4; ++i) {
        (void)t.step(points());
        if (!looks) continue;
        (void)t.evaluate(data_for(small_mlp()));
        (void)t.predict(points().load(std::vector<std::uint64_t>{3}).view());
        (void)t.input_gradient(points().load(std::vector<std::uint64_t>{4, 5}).view());
      }
      if (w.rank() == rank_id{0}) result = parameters_of(t);
    });
    return result;
  };
  REQUIRE(same_bits(run(false), run(true)));
}

TEST_CASE("the gradient of the input is that of central differences, and weights stay frozen", "[trainer]") {
  world w = self();
  const ragged_data data = data_for(small_mlp(), dtype::f64);
  trainer t{small_mlp(), w, ratio_partitioner{}, untimed(numerics::fast, dtype::f64), one_thread()};
  batch some;
  data.load(std::vector<std::uint64_t>{1, 4, 6}, some);
  const tensors before = parameters_of(t);
  const std::vector<double> gradient = values_of(t.input_gradient(some.view()));
  REQUIRE(gradient.size() == some.inputs.count());
  REQUIRE(same_bits(before, parameters_of(t)));

  const auto loss_sum = [&] {
    const std::vector<float> logits = t.predict(some.view());  // single precision is enough for these differences
    double sum = 0;
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::int32_t target = some.targets.elements<std::int32_t>()[i];
      if (target < 0) continue;
      double normaliser = 0;
      for (std::size_t c = 0; c < 4; ++c) normaliser += std::exp(static_cast<double>(logits[4 * i + c]));
      sum += static_cast<double>(some.weights[i]) *
             (std::log(normaliser) - static_cast<double>(logits[4 * i + static_cast<std::size_t>(target)]));
    }
    return sum;
  };
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    double& x = some.inputs.elements<double>()[i];
    const double at = x;
    constexpr double h = 1e-3;
    x = at + h;
    const double above = loss_sum();
    x = at - h;
    const double below = loss_sum();
    x = at;
    REQUIRE(gradient[i] == Approx((above - below) / (2 * h)).margin(2e-3));
  }
}

TEST_CASE("two trainers on one world and one device do not disturb each other", "[trainer]") {
  const auto run = [](bool first, bool second) {
    std::pair<tensors, tensors> result;
    run_ranks(2, [&](world& w) {
      const any_device shared = one_thread();
      trainer_options other = untimed();
      other.seed = 99;
      auto a = make_trainer(w, untimed(), shared);
      auto b = make_trainer(w, other, shared, {1, 2});
      const batches<ragged_data> other_source{data_for(small_mlp()), {.global_batch = 8, .seed = 12}};
      for (int i = 0; i < 4; ++i) {
        if (first) (void)a.step(points());
        if (second) (void)b.step(other_source);
      }
      if (w.rank() == rank_id{0}) result = {parameters_of(a), parameters_of(b)};
    });
    return result;
  };
  const auto both = run(true, true);
  REQUIRE(same_bits(both.first, run(true, false).first));
  REQUIRE(same_bits(both.second, run(false, true).second));
}

TEST_CASE("gradient traffic is 2 (n - 1) / n of the gradient per rank and step", "[trainer]") {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 5U}) {
    std::vector<std::uint64_t> sent(ranks);
    std::uint64_t gradient_bytes = 0;
    run_ranks(ranks, [&](world& w) {
      w.tune({.all_reduce = {{.algorithm = all_reduce_algorithm::ring}}});  // whole vectors are faster for so few bytes
      auto t = make_trainer(w);
      const auto source = points();
      (void)t.step(source);
      const auto before = w.counters()[traffic_class::gradient].bytes_sent;
      for (int i = 0; i < 3; ++i) (void)t.step(source);
      sent[index_of(w.rank())] = w.counters()[traffic_class::gradient].bytes_sent - before;
      if (w.rank() == rank_id{0}) gradient_bytes = t.parameters().layout().trainable_elements * sizeof(float);
    });
    std::uint64_t all = 0;
    for (const auto bytes : sent) all += bytes;
    INFO(ranks << " ranks");
    REQUIRE(all == 3 * 2 * (ranks - 1) * gradient_bytes);
  }
}

TEST_CASE("a steady step allocates nothing on the device and keeps nothing", "[trainer]") {
  std::vector<device_counters> before(2);
  std::vector<device_counters> after(2);
  run_ranks(2, [&](world& w) {
    const any_device device = one_thread();
    auto t = make_trainer(w, untimed(numerics::fast), device, {1});
    const batches<ragged_data> source{data_for(small_mlp()), {.global_batch = global_batch, .drop_last = true}};
    for (int i = 0; i < 2; ++i) (void)t.step(source);
    before[index_of(w.rank())] = device.counters();
    for (int i = 0; i < 20; ++i) (void)t.step(source);
    after[index_of(w.rank())] = device.counters();
  });
  for (std::size_t r = 0; r < 2; ++r) {
    REQUIRE(after[r].allocations == before[r].allocations);
    REQUIRE(after[r].bytes_in_use == before[r].bytes_in_use);
    REQUIRE(after[r].launches > before[r].launches);  // control: the counters count
  }
}

TEST_CASE("a device that does everything as late as it may trains to the same bits", "[trainer]") {
  // What forgets to order or to synchronize computes with NaNs there.
  for (const numerics mode : {numerics::fast, numerics::reproducible}) {
    const auto run = [&](bool late) {
      std::pair<outcome, double> result;
      run_ranks(2, [&](world& w) {
        trainer t{small_gpt(0.2),
                  w,
                  ratio_partitioner{.ratio = {2, 1}},
                  one_f_one_b_scheduler{.micro_batches = 2},
                  clip_norm{.max_norm = 0.5},
                  untimed(mode),
                  late ? any_device{deferred_device{}} : one_thread()};
        ragged_data data = data_for(small_gpt());
        data.samples = 70;  // more than one piece of an evaluation
        outcome out;
        note_steps(t, batches<ragged_data>{data, {.global_batch = 9}}, 3, out);
        const double loss = t.evaluate(data);
        if (w.rank() == rank_id{0}) result = {out, loss};
      });
      return result;
    };
    const auto now = run(false);
    const auto late = run(true);
    REQUIRE(same_bits(now.first, late.first));
    REQUIRE(same_bits(now.second, late.second));
  }
}

TEST_CASE("reproducible mode refuses devices of several threads", "[trainer]") {
  world w = self();
  expect_error(errc::unsupported, "use cpu:1", [&] { (void)make_trainer(w, untimed(), cpu_device{{.threads = 2}}); });
  REQUIRE_NOTHROW(make_trainer(w, untimed(numerics::fast), cpu_device{{.threads = 2}}));
}

TEST_CASE("a plan with pipeline stages is refused by an action this trainer was built without", "[trainer]") {
  std::vector<std::string> texts(2);
  run_ranks(2, [&](world& w) {
    auto t = make_trainer(w);
    plan p{.num_layers = small_mlp().size(),
           .global_batch = global_batch,
           .roles = {rank_role::worker, rank_role::worker}};
    p.replicas.push_back({.share = global_batch,
                          .stages = {{.first_layer = 0, .end_layer = 1, .rank = rank_id{0}},
                                     {.first_layer = 1, .end_layer = p.num_layers, .rank = rank_id{1}}}});
    const batch some = points().load(std::vector<std::uint64_t>{0, 1, 3, 4, 5, 6});
    try {
      t.rebind(w, p);
      (void)t.step(w.rank() == rank_id{0} ? some.view() : batch_view{});
    } catch (const error& e) {
      texts[index_of(w.rank())] = e.what();
    }
  });
  REQUIRE_THAT(texts[0], ContainsSubstring("unsupported") && ContainsSubstring("one stage per replica"));
  REQUIRE_THAT(texts[1], ContainsSubstring("unsupported") && ContainsSubstring("one stage per replica"));
}
