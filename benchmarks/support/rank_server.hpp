// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "line_socket.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

/// @file
/// What a rank of every side does, ours and the peers', so that all are measured alike: it joins its group, says
/// `hello RANK LABEL`, then sleeps until the benchmark asks. The lines it answers:
///
///     run COUNT ITERATIONS WARM VARIANT   ->  nanoseconds T  of one operation, after one with WARM elements
///     check COUNT VARIANT                 ->  ok             when the sum of COUNT known floats was right
///
/// Anything that fails is answered by `error TEXT`. peers/torch_all_reduce.py speaks the same.
namespace hetero::bench {

/// Floats in fresh pages that have been written once.
class touched_floats {
 public:
  explicit touched_floats(std::size_t count) : bytes_{count * sizeof(float) + 4096} {
    void* const pages = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc{};
    data_ = static_cast<float*>(pages);
    for (std::size_t at = 0; at < bytes_ / sizeof(float); at += 1024) data_[at] = 0;
  }
  touched_floats(const touched_floats&) = delete;
  touched_floats& operator=(const touched_floats&) = delete;
  ~touched_floats() { ::munmap(data_, bytes_); }
  [[nodiscard]] float* data() const noexcept { return data_; }

 private:
  std::size_t bytes_;
  float* data_;
};

/// Serves until the benchmark closes the socket; returns the exit status. `prepare(data, count, variant)` returns what
/// performs one operation on `count` floats in place; it is called in the same order on every rank. Blocking.
template <class Prepare>
int serve_rank(const std::string& control, unsigned rank, unsigned ranks, const std::string& label, Prepare&& prepare) {
  using clock = std::chrono::steady_clock;
  line_socket benchmark = line_socket::connect(control);
  benchmark.write_line("hello " + std::to_string(rank) + ' ' + label);
  std::unique_ptr<touched_floats> floats;
  std::size_t held = 0;
  std::map<std::pair<std::size_t, std::string>, std::function<void()>> operations;
  const auto operation = [&](std::size_t count, const std::string& variant) -> std::function<void()>& {
    auto& found = operations[{count, variant}];
    if (!found) found = prepare(floats->data(), count, variant);
    return found;
  };
  while (const auto line = benchmark.read_line()) {
    try {
      std::istringstream words{*line};
      std::string verb, variant;
      std::size_t count = 0, iterations = 0, warm = 0;
      words >> verb >> count;
      if (verb == "run") words >> iterations >> warm;
      words >> variant;
      if (count != held) {
        operations.clear();
        floats.reset();
        floats = std::make_unique<touched_floats>(count);
        held = count;
      }
      if (verb == "run") {
        auto& timed = operation(count, variant);
        if (warm > 0) operation(warm, variant)();
        const auto start = clock::now();
        for (std::size_t i = 0; i < iterations; ++i) timed();
        const std::chrono::duration<double> elapsed = clock::now() - start;
        benchmark.write_line("nanoseconds " + std::to_string(elapsed.count() * 1e9 / static_cast<double>(iterations)));
      } else if (verb == "check") {
        float* const data = floats->data();
        for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>((rank + 1) * (1 + i % 7));
        operation(count, variant)();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          if (data[i] != static_cast<float>(ranks * (ranks + 1) / 2 * (1 + i % 7))) ++wrong;
          data[i] = 0;
        }
        if (wrong > 0) throw std::runtime_error{std::to_string(wrong) + " wrong sums of " + std::to_string(count)};
        benchmark.write_line("ok");
      } else {
        throw std::runtime_error{"unknown request " + *line};
      }
    } catch (const std::exception& reason) {
      std::string text = reason.what();
      for (char& c : text)
        if (c == '\n') c = ' ';
      benchmark.write_line("error " + text);
    }
  }
  return 0;
}

}  // namespace hetero::bench
