// SPDX-License-Identifier: Apache-2.0
// State that moves: to other plans and worlds in the middle of a run, to files and back.
#include "support/catch.hpp"

#include "laws/training.hpp"
#include "support/temp_dir.hpp"

#include <fstream>

#include <hetero/trainer/resume_json.hpp>

using namespace hetero;
using namespace hetero::test;

namespace {

constexpr std::uint64_t global_batch = 7;

batches<ragged_data> tokens() { return {data_for(small_gpt()), {.global_batch = global_batch, .seed = 3}}; }

auto make_trainer(world& w, trainer_options options = untimed(), double width_factor = 1) {
  const gpt m = width_factor == 1
                    ? small_gpt(0.1)
                    : gpt{{.layers = 2, .heads = 2, .width = 20, .context = 8, .vocabulary = 11, .dropout = 0.1}};
  return trainer{m,
                 w,
                 adamw{.learning_rate = 0.01},
                 cosine_rate{.warm_up_steps = 2, .total_steps = 20},
                 ratio_partitioner{.ratio = {5, 3, 1}},
                 clip_norm{.max_norm = 0.5},
                 options,
                 one_thread()};
}

plan plan_of(std::vector<std::size_t> shares) {
  plan p{.num_layers = small_gpt().size(), .global_batch = global_batch};
  for (std::uint32_t r = 0; r < shares.size(); ++r) {
    p.roles.push_back(rank_role::worker);
    p.replicas.push_back({.stages = {{.end_layer = p.num_layers, .rank = rank_id{r}}}});
  }
  return with_shares(std::move(p), shares);
}

/// The run that nothing happened to.
tensors unbroken(std::uint64_t steps) {
  world w = self();
  auto t = make_trainer(w);
  for (std::uint64_t i = 0; i < steps; ++i) (void)t.step(tokens());
  return parameters_of(t);
}

template <class Trainer> void train_to(Trainer& t, std::uint64_t position) {
  while (t.position() < position) (void)t.step(tokens());
}

std::string read(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}
void write(const std::string& path, const std::string& bytes) { std::ofstream{path, std::ios::binary} << bytes; }

template <class Body> std::optional<error> caught(Body&& body) {
  try {
    body();
  } catch (const error& e) {
    return e;
  }
  return std::nullopt;
}

}  // namespace

TEST_CASE("a run that loses a rank and gains a fresh one is the unbroken run", "[trainer]") {
  std::vector<tensors> after(3);
  std::vector<std::uint64_t> positions(3);
  run_ranks(3, [&](world& w) {
    const bool leaves = w.rank() == rank_id{1};  // not the last one: ranks are renumbered
    world two = w.split(leaves ? 1 : 0, 0);
    auto survivor = make_trainer(w);
    train_to(survivor, 2);
    if (!leaves) {
      survivor.rebind(two, plan_of({2, 5}));
      train_to(survivor, 5);
    }
    if (leaves) {  // a fresh process takes the place
      trainer_options options = untimed();
      world lonely = self();
      auto fresh = make_trainer(lonely, options);
      fresh.rebind(w, plan_of({4, 2, 1}));
      train_to(fresh, 8);
      after[1] = parameters_of(fresh);
      positions[1] = fresh.position();
    } else {
      survivor.rebind(w, plan_of({4, 2, 1}));
      train_to(survivor, 8);
      after[index_of(w.rank())] = parameters_of(survivor);
      positions[index_of(w.rank())] = survivor.position();
    }
  });
  const tensors reference = unbroken(8);
  for (std::size_t r = 0; r < 3; ++r) {
    REQUIRE(positions[r] == 8);
    REQUIRE(same_bits(after[r], reference));
  }
  REQUIRE_FALSE(same_bits(after[0], unbroken(7)));  // control
}

TEST_CASE("rebind refuses a plan that does not fit and keeps the old one", "[trainer]") {
  world w = self();
  auto t = make_trainer(w);
  train_to(t, 2);
  plan wrong = plan_of({7});
  wrong.global_batch = 9;
  const auto e = caught([&] { t.rebind(w, wrong); });
  REQUIRE(e.has_value());
  REQUIRE(e->code() == errc::plan_does_not_fit);
  train_to(t, 4);
  REQUIRE(same_bits(parameters_of(t), unbroken(4)));
}

TEST_CASE("rebind refuses a plan for another model or another world", "[trainer]") {
  world w = self();
  auto t = make_trainer(w);
  plan shallow = plan_of({7});
  shallow.num_layers = 2;
  shallow.replicas[0].stages[0].end_layer = 2;
  const auto e = caught([&] { t.rebind(w, shallow); });
  REQUIRE(e.has_value());
  REQUIRE(e->code() == errc::plan_does_not_fit);
  const auto f = caught([&] { t.rebind(w, plan_of({4, 3})); });
  REQUIRE(f.has_value());
  REQUIRE(f->code() == errc::plan_does_not_fit);
}

TEST_CASE("save and resume give the bits of the unbroken run, on any number of ranks", "[trainer]") {
  const temp_dir folder{"state"};
  const tensors reference = unbroken(7);
  for (const std::uint32_t before : {1U, 3U}) {
    const std::string file = (folder / ("from-" + std::to_string(before))).string();
    run_ranks(before, [&](world& w) {
      auto t = make_trainer(w);
      train_to(t, 4);
      t.save(file, {{"note", "half way"}});
    });
    for (const std::uint32_t after : {1U, 2U, 3U, 5U}) {
      std::vector<tensors> ends(after);
      run_ranks(after, [&](world& w) {
        auto t = make_trainer(w);
        resume(t, file);
        require(t.position() == 4, errc::invalid_argument, "the position is part of the state");
        train_to(t, 7);
        ends[index_of(w.rank())] = parameters_of(t);
      });
      INFO("from " << before << " ranks to " << after);
      for (const auto& end : ends) REQUIRE(same_bits(end, reference));
    }
  }
  const safetensors_file file{(folder / "from-3").string()};
  const checkpoint_info info = read_checkpoint_info(file);
  REQUIRE(info.step == 4);
  REQUIRE(info.seed == 7);
  REQUIRE(info.shares == std::vector<share_record>{{0, {4, 2, 1}}});
  REQUIRE(file.metadata().at("note") == "half way");
}

TEST_CASE("a resumed run with the recorded shares repeats a fast run bit by bit", "[trainer]") {
  const temp_dir folder{"state"};
  const std::string file = (folder / "fast").string();
  trainer_options options = untimed(numerics::fast);
  options.replay = {{0, {3, 3, 1}}, {3, {1, 2, 4}}};
  std::vector<tensors> whole(3);
  std::vector<tensors> halves(3);
  run_ranks(3, [&](world& w) {
    auto t = make_trainer(w, options);
    train_to(t, 5);
    t.save(file);
    train_to(t, 8);
    whole[index_of(w.rank())] = parameters_of(t);
  });
  run_ranks(3, [&](world& w) {
    auto t = make_trainer(w, untimed(numerics::fast));  // without the recording: the checkpoint has it
    resume(t, file);
    train_to(t, 8);
    halves[index_of(w.rank())] = parameters_of(t);
  });
  for (std::size_t r = 0; r < 3; ++r) REQUIRE(same_bits(whole[r], halves[r]));
}

TEST_CASE("resume refuses what is not a checkpoint of this run, and changes nothing", "[trainer]") {
  const temp_dir folder{"state"};
  const std::string good = (folder / "good").string();
  const std::string bad = (folder / "bad").string();
  world w = self();
  auto t = make_trainer(w);
  train_to(t, 2);
  t.save(good);
  train_to(t, 3);
  const tensors before = parameters_of(t);
  const std::string bytes = read(good);

  const auto expect_refused = [&](auto& target, const std::string& path, errc code, const std::string& text) {
    const tensors was = parameters_of(target);
    const std::uint64_t position = target.position();
    const auto e = caught([&] { resume(target, path); });
    REQUIRE(e.has_value());
    INFO(e->what());
    REQUIRE(e->code() == code);
    REQUIRE_THAT(e->what(), ContainsSubstring(text));
    REQUIRE(same_bits(parameters_of(target), was));
    REQUIRE(target.position() == position);
  };

  expect_refused(t, (folder / "missing").string(), errc::io, "missing");
  for (const std::size_t kept : {std::size_t{0}, std::size_t{5}, std::size_t{100}, bytes.size() - 1}) {
    write(bad, bytes.substr(0, kept));
    expect_refused(t, bad, errc::bad_file, "bad");
  }
  std::string damaged = bytes;
  damaged[damaged.size() - 9] = static_cast<char>(damaged[damaged.size() - 9] ^ 1);
  write(bad, damaged);
  expect_refused(t, bad, errc::bad_file, "bad");
  write(bad, "This is a letter to my grandmother, and no checkpoint of anything at all.");
  expect_refused(t, bad, errc::bad_file, "bad");
  std::vector<float> numbers(4, 1);
  save_safetensors(bad, std::vector<named_tensor>{{"x", tensor_view{std::span{numbers}}}});
  expect_refused(t, bad, errc::bad_file, "load_parameters");

  auto wider = make_trainer(w, untimed(), 2);
  expect_refused(wider, good, errc::mismatch, "width=16");
  trainer_options other = untimed();
  other.seed = 8;
  auto reseeded = make_trainer(w, other);
  expect_refused(reseeded, good, errc::mismatch, "seed 7");
  trainer plain{small_gpt(0.1), w, sgd{.momentum = 0.9}, untimed(), one_thread()};
  expect_refused(plain, good, errc::mismatch, "optimizer.momentum");

  resume(t, good);  // control: the file itself is fine
  REQUIRE(t.position() == 2);
  REQUIRE_FALSE(same_bits(parameters_of(t), before));
}

TEST_CASE("load_parameters takes the weights and nothing else", "[trainer]") {
  const temp_dir folder{"state"};
  const std::string file = (folder / "weights").string();
  world w = self();
  auto t = make_trainer(w);
  train_to(t, 3);
  t.save(file);
  auto u = make_trainer(w);
  load_parameters(u, file);
  REQUIRE(u.position() == 0);
  for (const auto& tensor : u.parameters().parameters()) {
    REQUIRE(same_bits(values_of(tensor.view.reshape({tensor.view.count()})), parameters_of(t).at(tensor.name)));
  }
  for (const double moment : values_of(u.parameters().state(0))) REQUIRE(moment == 0);
  auto wider = make_trainer(w, untimed(), 2);
  const tensors before = parameters_of(wider);
  const auto e = caught([&] { load_parameters(wider, file); });
  REQUIRE(e.has_value());
  REQUIRE(e->code() == errc::mismatch);
  REQUIRE(same_bits(parameters_of(wider), before));
}

TEST_CASE("a checkpoint that cannot be written is an error on every rank, and the old one stays", "[trainer]") {
  const temp_dir folder{"state"};
  const std::string file = (folder / "kept").string();
  std::vector<std::string> texts(2);
  run_ranks(2, [&](world& w) {
    auto t = make_trainer(w);
    train_to(t, 1);
    t.save(file);
    const auto e = caught([&] { t.save((folder / "no such folder" / "file").string()); });
    if (e && e->code() == errc::io) texts[index_of(w.rank())] = e->what();
    train_to(t, 2);  // the job goes on
  });
  for (const auto& text : texts) REQUIRE_THAT(text, ContainsSubstring("no such folder"));
  REQUIRE(read_checkpoint_info(safetensors_file{file}).step == 1);
}

TEST_CASE("share histories survive as text", "[trainer]") {
  const std::vector<share_record> history{{0, {8, 4}}, {50, {7, 5}}, {18446744073709551ULL, {0, 12}}};
  REQUIRE(to_text(history) == "0:8,4;50:7,5;18446744073709551:0,12");
  REQUIRE(share_history_from(to_text(history)) == history);
  REQUIRE(to_text(std::vector<share_record>{}).empty());
  REQUIRE(share_history_from("").empty());
  for (const char* wrong :
       {"x", "1", "1:", "1:2,", "1:2;", ":1", "1:2 3", "1:-2", "1;2:3", "99999999999999999999:1", "1::2"}) {
    INFO(wrong);
    const auto e = caught([&] { (void)share_history_from(wrong); });
    REQUIRE(e.has_value());
    REQUIRE(e->code() == errc::bad_file);
  }
}
