// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <hetero/data/prefetch.hpp>
#include <hetero/data/text_corpus.hpp>

#include "support/catch.hpp"

using namespace hetero;
using namespace std::chrono_literals;

namespace {

/// A gate that loads wait at, and a count of those that passed.
struct control {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t allowed = ~std::uint64_t{0};  ///< loads that may pass
  std::uint64_t started = 0;
  std::uint64_t failing_step = ~std::uint64_t{0};

  void allow(std::uint64_t count) {
    {
      const std::lock_guard lock{mutex};
      allowed = count;
    }
    changed.notify_all();
  }
  /// Waits until `count` loads have begun; false after ten seconds.
  bool wait_started(std::uint64_t count) {
    std::unique_lock lock{mutex};
    return changed.wait_for(lock, 10s, [&] { return started >= count; });
  }
};

/// Step s has the samples 10 s to 10 s + 3.
struct gated_source {
  std::shared_ptr<control> gate = std::make_shared<control>();

  [[nodiscard]] std::uint64_t global_batch() const { return 4; }
  [[nodiscard]] std::uint64_t steps_per_epoch() const { return 1000; }
  [[nodiscard]] std::vector<std::uint64_t> sample_ids(std::uint64_t step) const {
    return {10 * step, 10 * step + 1, 10 * step + 2, 10 * step + 3};
  }
  [[nodiscard]] batch load(std::span<const std::uint64_t> ids) const {
    {
      std::unique_lock lock{gate->mutex};
      const std::uint64_t mine = gate->started++;
      gate->changed.notify_all();
      gate->changed.wait(lock, [&] { return mine < gate->allowed; });
      if (!ids.empty() && ids[0] / 10 == gate->failing_step) {
        throw error{errc::io, "the disk under step " + std::to_string(ids[0] / 10) + " is gone"};
      }
    }
    batch out;
    out.prepare(ids, dtype::f32, {1}, dtype::i32, {});
    return out;
  }
  [[nodiscard]] std::uint64_t fingerprint() const { return 1; }
};
static_assert(batch_source<gated_source>);

share_selector part(std::size_t begin, std::size_t end) {
  return [=](std::uint64_t, std::span<const std::uint64_t> ids) {
    return std::vector(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                       ids.begin() + static_cast<std::ptrdiff_t>(end));
  };
}

}  // namespace

TEST_CASE("prefetch: steps come in order, with this rank's share") {
  prefetch ahead{gated_source{}, part(1, 3), {.first_step = 5, .depth = 3}};
  for (std::uint64_t step = 5; step < 60; ++step) {
    const prefetched item = ahead.next();
    REQUIRE(item.step == step);
    REQUIRE(item.step_samples == 4);
    REQUIRE(item.share.sample_ids == std::vector<std::uint64_t>{10 * step + 1, 10 * step + 2});
  }
}

TEST_CASE("prefetch: the same batches as without it") {
  const auto steps = text_corpus::from_string("the quick brown fox jumps over the lazy dog")
                         .batches({.global_batch = 3, .context = 4, .seed = 7});
  prefetch ahead{steps, part(0, 1)};
  for (std::uint64_t step = 0; step < 30; ++step) {
    const prefetched item = ahead.next();
    const auto ids = steps.sample_ids(step);
    const batch direct = steps.load(std::span{ids}.first(1));
    REQUIRE(item.step_samples == ids.size());
    REQUIRE(item.share.sample_ids == direct.sample_ids);
    const auto a = item.share.inputs.elements<std::int32_t>();
    const auto b = direct.inputs.elements<std::int32_t>();
    REQUIRE(std::vector(a.begin(), a.end()) == std::vector(b.begin(), b.end()));
  }
}

TEST_CASE("prefetch: an idle rank gets empty shares") {
  prefetch ahead{gated_source{}, part(2, 2)};
  for (int i = 0; i < 5; ++i) CHECK(ahead.next().share.empty());
}

TEST_CASE("prefetch: it runs ahead by its depth and no further") {
  const gated_source source;
  prefetch ahead{source, part(0, 4), {.depth = 2}};
  CHECK(source.gate->wait_started(2));  // before anything was asked for
  CHECK(ahead.next().step == 0);
  CHECK(ahead.next().step == 1);
  CHECK(source.gate->wait_started(4));
  // Both places are filled or being filled; a fifth load would need a third. It starts only after the next `next`.
  {
    const std::lock_guard lock{source.gate->mutex};
    CHECK(source.gate->started <= 4);
  }
}

TEST_CASE("prefetch: a failure surfaces at its step, again and again, until reseek") {
  const gated_source source;
  source.gate->failing_step = 3;
  prefetch ahead{source, part(0, 4), {.depth = 8}};
  for (std::uint64_t step = 0; step < 3; ++step) CHECK(ahead.next().step == step);
  for (int i = 0; i < 2; ++i) {
    REQUIRE_THROWS_WITH(ahead.next(), ContainsSubstring("io: the disk under step 3 is gone"));
  }
  ahead.reseek(4, part(0, 4));
  CHECK(ahead.next().step == 4);
}

TEST_CASE("prefetch: a selector that throws surfaces too") {
  prefetch ahead{gated_source{}, [](std::uint64_t, std::span<const std::uint64_t>) -> std::vector<std::uint64_t> {
                   throw error{errc::invalid_argument, "no such share"};
                 }};
  REQUIRE_THROWS_WITH(ahead.next(), ContainsSubstring("no such share"));
  REQUIRE_THROWS_WITH((prefetch{gated_source{}, share_selector{}}), ContainsSubstring("needs a selector"));
  REQUIRE_THROWS_WITH(ahead.reseek(0, {}), ContainsSubstring("needs a selector"));
}

TEST_CASE("prefetch: reseek drops what was loaded and what is being loaded") {
  const gated_source source;
  source.gate->allow(1);
  prefetch ahead{source, part(0, 4), {.depth = 4}};
  REQUIRE(source.gate->wait_started(2));  // step 0 is loaded, step 1 hangs in its load
  ahead.reseek(1, part(3, 4));            // the shares changed: step 1 again, another part
  source.gate->allow(~std::uint64_t{0});
  const prefetched item = ahead.next();
  CHECK(item.step == 1);
  CHECK(item.share.sample_ids == std::vector<std::uint64_t>{13});
  CHECK(ahead.next().share.sample_ids == std::vector<std::uint64_t>{23});
}

TEST_CASE("prefetch: waiting has a deadline that names the step") {
  const gated_source source;
  source.gate->allow(0);
  {
    prefetch ahead{source, part(0, 4), {.first_step = 9, .timeout = 20ms}};
    REQUIRE_THROWS_WITH(ahead.next(), ContainsSubstring("timeout: loading step 9"));
    source.gate->allow(~std::uint64_t{0});
    prefetched late;  // the load was late, not lost
    for (int attempt = 0; attempt < 500; ++attempt) {
      try {
        late = ahead.next();
        break;
      } catch (const error& e) {
        REQUIRE(e.code() == errc::timeout);
      }
    }
    CHECK(late.step == 9);
    CHECK(late.share.size() == 4);
  }
}

TEST_CASE("prefetch: it stops with full places, with an error, and at once after its start") {
  for (int i = 0; i < 50; ++i) {
    const gated_source source;
    if (i % 3 == 0) source.gate->failing_step = 0;
    prefetch ahead{source, part(0, 4), {.depth = static_cast<std::size_t>(i % 4)}};
    if (i % 3 == 1) CHECK(ahead.next().step == 0);
  }
}
