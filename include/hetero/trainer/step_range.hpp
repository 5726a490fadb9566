// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include <hetero/data/prefetch.hpp>
#include <hetero/plan/share.hpp>
#include <hetero/report/step_report.hpp>

namespace hetero {

/// `trainer.steps(source, count)`: an input range whose elements are the reports of `count` steps, made one at a time as
/// the loop asks. Batches are loaded in the background; leaving the loop early is fine.
template <class Trainer, class Source>
class step_range {
 public:
  step_range(Trainer& trainer, Source source, std::uint64_t count)
      : trainer_{trainer},
        first_{trainer.position()},
        end_{first_ + count},
        loader_{std::move(source), selector(), {.first_step = first_}} {}

  class iterator {
   public:
    using value_type = step_report;
    using difference_type = std::ptrdiff_t;
    using iterator_concept = std::input_iterator_tag;

    iterator() = default;
    explicit iterator(step_range* range) : range_{range} {}
    const step_report& operator*() const noexcept { return range_->report_; }
    const step_report* operator->() const noexcept { return &range_->report_; }
    iterator& operator++() {
      range_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const iterator& it, std::default_sentinel_t) noexcept { return it.range_->done(); }

   private:
    step_range* range_ = nullptr;
  };

  /// Makes the first step. @throws error as `trainer.step`
  [[nodiscard]] iterator begin() {
    advance();
    return iterator{this};
  }
  [[nodiscard]] bool done() const noexcept { return done_; }
  [[nodiscard]] static std::default_sentinel_t end() noexcept { return {}; }

 private:
  share_selector selector() const {
    return [p = trainer_.current_plan(), rank = trainer_.communicator().rank()](std::uint64_t,
                                                                                std::span<const std::uint64_t> ids) {
      const sample_range mine = share_of(p, rank, ids.size());
      return std::vector<std::uint64_t>{ids.begin() + static_cast<std::ptrdiff_t>(mine.begin),
                                        ids.begin() + static_cast<std::ptrdiff_t>(mine.end)};
    };
  }

  void advance() {
    if (trainer_.position() >= end_) {
      done_ = true;
      return;
    }
    const prefetched loaded = loader_.next();
    report_ = trainer_.step(loaded.share.view());
    report_.steps = end_;
    if (report_.rebalanced) loader_.reseek(trainer_.position(), selector());
  }

  Trainer& trainer_;
  std::uint64_t first_;
  std::uint64_t end_;
  step_report report_;
  bool done_ = false;
  prefetch<Source> loader_;
};

}  // namespace hetero
