// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <hetero/comm/algorithm/reduce.hpp>
#include <hetero/comm/algorithm/ring.hpp>
#include <hetero/comm/concepts.hpp>
#include <hetero/comm/world.hpp>
#include <hetero/core/error.hpp>

/// @file
/// What every communicator must do, run over each model of the concept. `run` starts n ranks on threads of this process
/// and calls the body on each. Catch's assertions belong to one thread, so ranks throw and the caller asserts.
namespace hetero::conformance {

template <class C>
using rank_runner = std::function<void(std::uint32_t, const std::function<void(C&)>&)>;

inline void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error{"conformance: " + what};
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int patience = 10;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr int patience = 10;
#else
inline constexpr int patience = 3;
#endif
#else
inline constexpr int patience = 3;
#endif

template <class C>
std::uint32_t number_of(const C& c) {
  return index_of(c.rank());
}

/// A small whole number that every type can hold, different for each rank and place.
inline int sample(std::uint32_t rank, std::size_t i) {
  return static_cast<int>((i * 7 + rank * 5) % 17) - (i % 2 ? 8 : 0);
}

template <class T>
T to_element(int value) {
  if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
    return T{static_cast<float>(value)};
  } else {
    return static_cast<T>(value);
  }
}

/// Every type, operation and awkward count against a loop.
template <class C>
void all_reduce_matches_reference(C& c) {
  for (const dtype type :
       {dtype::f64, dtype::f32, dtype::bf16, dtype::f16, dtype::i64, dtype::i32, dtype::i8, dtype::u8}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{1000}, std::size_t{5003}}) {
      for (const reduce_op op : {reduce_op::sum, reduce_op::max, reduce_op::min}) {
        detail::visit_dtype(type, [&]<class T>(T) {
          const auto value = [&](std::uint32_t r, std::size_t i) {
            return type == dtype::u8 ? sample(r, i) + 8 : sample(r, i);
          };
          std::vector<T> values(count);
          for (std::size_t i = 0; i < count; ++i) values[i] = to_element<T>(value(number_of(c), i));
          c.all_reduce(tensor_view{std::span{values}}, op);
          for (std::size_t i = 0; i < count; ++i) {
            int expected = value(0, i);
            for (std::uint32_t r = 1; r < c.world_size(); ++r) {
              const int v = value(r, i);
              expected = op == reduce_op::sum   ? expected + v
                         : op == reduce_op::max ? std::max(expected, v)
                                                : std::min(expected, v);
            }
            expect(values[i] == to_element<T>(expected),
                   std::string{"all_reduce "} + to_string(type) + ' ' + to_string(op) + " of " + std::to_string(count));
          }
        });
      }
    }
  }
}

/// Messages in several pieces, and equal bits on every rank for sums that round.
template <class C>
void large_all_reduce_is_equal_everywhere(C& c) {
  const std::size_t count = 5 * c.world_size() * detail::piece_bytes / (2 * sizeof(float)) + 3;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = 1.0F / static_cast<float>(1 + (i * 31 + number_of(c) * 17) % 1009);
  double expected = 0;
  for (std::uint32_t r = 0; r < c.world_size(); ++r) {
    expected += 1.0 / static_cast<double>(1 + ((count - 1) * 31 + r * 17) % 1009);
  }
  c.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
  expect(std::abs(values.back() - expected) <= 1e-6 * expected, "the last element of a long sum");
  std::vector<float> of_root = values;
  c.broadcast(tensor_view{std::span{of_root}}, rank_id{0});
  expect(std::memcmp(of_root.data(), values.data(), count * sizeof(float)) == 0, "equal bits on all ranks");
}

/// 16-bit floats are added in 32 bits. A sum that rounds at every hop would stay at the first rank's number.
template <class C>
void narrow_sums_round_once(C& c) {
  const auto n = c.world_size();
  std::vector<bfloat16> b(3, bfloat16{number_of(c) == 0 ? 256.0F : 1.0F});
  std::vector<float16> h(3, float16{number_of(c) == 0 ? 2048.0F : 1.0F});
  c.all_reduce(tensor_view{std::span{b}}, reduce_op::sum);
  c.all_reduce(tensor_view{std::span{h}}, reduce_op::sum);
  for (const auto x : b) expect(x == bfloat16{256.0F + static_cast<float>(n - 1)}, "bf16 is summed in fp32");
  for (const auto x : h) expect(x == float16{2048.0F + static_cast<float>(n - 1)}, "f16 is summed in fp32");
}

template <class C>
void nan_survives_max_and_min(C& c) {
  for (const reduce_op op : {reduce_op::max, reduce_op::min}) {
    for (std::uint32_t culprit = 0; culprit < c.world_size(); ++culprit) {
      std::vector<float> values(5, number_of(c) == culprit ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
      c.all_reduce(tensor_view{std::span{values}}, op);
      for (const float v : values) expect(v != v, "a NaN stays");
    }
  }
}

template <class C>
void broadcast_reaches_everybody(C& c) {
  for (std::uint32_t root = 0; root < c.world_size(); ++root) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{300007}}) {
      std::vector<std::int32_t> values(count, static_cast<std::int32_t>(number_of(c)));
      c.broadcast(tensor_view{std::span{values}}, rank_id{root});
      for (const auto v : values) expect(v == static_cast<std::int32_t>(root), "broadcast");
    }
  }
}

template <class C>
void all_gather_keeps_rank_order(C& c) {
  const auto n = c.world_size();
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{100003}}) {
    std::vector<std::int64_t> in(count, number_of(c) + 1);
    std::vector<std::int64_t> out(count * n, 0);
    c.all_gather(tensor_view{std::span{in}}, tensor_view{std::span{out}});
    for (std::size_t i = 0; i < out.size(); ++i)
      expect(out[i] == static_cast<std::int64_t>(i / count) + 1, "all_gather");
    // In place: the own part already lies where it belongs.
    std::vector<std::int64_t> again(count * n, 0);
    const auto own = std::span{again}.subspan(count * number_of(c), count);
    for (auto& v : own) v = number_of(c) + 1;
    c.all_gather(tensor_view{own}, tensor_view{std::span{again}});
    expect(again == out, "all_gather in place");
  }
}

template <class C>
void messages_keep_their_order(C& c) {
  const auto n = c.world_size();
  if (n == 1) return;
  const rank_id right{(number_of(c) + 1) % n};
  const rank_id left{(number_of(c) + n - 1) % n};
  for (int round = 0; round < 20; ++round) {
    std::vector<float> out(static_cast<std::size_t>(round) * 1000, static_cast<float>(number_of(c)));
    std::vector<float> in(out.size(), -1);
    c.send_recv(tensor_view{std::span{out}}, right, tensor_view{std::span{in}}, left);
    for (const float v : in) expect(v == static_cast<float>(index_of(left)), "send_recv around a ring");
  }
  if (number_of(c) == 0) {
    for (int i = 0; i < 50; ++i) c.send(tensor_view{std::span{&i, 1}}, rank_id{1});
  } else if (number_of(c) == 1) {
    for (int i = 0; i < 50; ++i) {
      int got = -1;
      c.recv(tensor_view{std::span{&got, 1}}, rank_id{0});
      expect(got == i, "messages arrive in the order of sending");
    }
  }
}

/// No rank passes before the last one has come.
template <class C>
void barrier_holds(const rank_runner<C>& run, std::uint32_t ranks) {
  std::atomic<std::uint32_t> arrived{0};
  run(ranks, [&](C& c) {
    for (std::uint32_t round = 1; round <= 20; ++round) {
      ++arrived;
      c.barrier();
      expect(arrived.load() >= round * c.world_size(), "a barrier lets nobody through early");
    }
  });
}

/// Two threads of each rank, each with its own channel, at once and in different orders.
template <class C>
void channels_are_independent(C& c) {
  C first = c.channel("first");
  C second = c.channel("second");
  C again = c.channel("first");
  const auto work = [](C& channel, float step) {
    for (int i = 0; i < 30; ++i) {
      std::vector<float> values(static_cast<std::size_t>(i * 997), step);
      channel.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
      for (const float v : values)
        expect(v == step * static_cast<float>(channel.world_size()), "a channel keeps its own data");
    }
  };
  std::exception_ptr failed;
  std::thread other{[&] {
    try {
      work(first, 1);
    } catch (...) {
      failed = std::current_exception();
    }
  }};
  try {
    work(second, 3);
  } catch (...) {
    other.join();
    throw;
  }
  other.join();
  if (failed) std::rethrow_exception(failed);
  work(again, 5);
}

template <class C>
void split_forms_groups(C& c) {
  const auto n = c.world_size();
  const int color = static_cast<int>(number_of(c) % 2);
  C half = c.split(color, -static_cast<int>(number_of(c)));  // reversed
  const std::uint32_t members = color == 0 ? (n + 1) / 2 : n / 2;
  expect(half.world_size() == members, "size of a group");
  expect(number_of(half) == members - 1 - number_of(c) / 2, "ranks of a group follow the keys");
  std::vector<std::int32_t> sum(3, static_cast<std::int32_t>(number_of(c)));
  half.all_reduce(tensor_view{std::span{sum}}, reduce_op::sum);
  std::int32_t expected = 0;
  for (std::uint32_t r = static_cast<std::uint32_t>(color); r < n; r += 2) expected += static_cast<std::int32_t>(r);
  expect(sum[0] == expected && sum[2] == expected, "a group sums over itself alone");
  C alone = c.split(static_cast<int>(number_of(c)), 0);
  expect(alone.world_size() == 1, "a group of one");
  alone.barrier();
  c.barrier();
}

template <class C>
void async_runs_in_order_beside_blocking_calls(C& c) {
  constexpr std::size_t buckets = 6;
  std::vector<std::vector<float>> data(buckets);
  std::vector<decltype(c.all_reduce_async(tensor_view{}, reduce_op::sum))> running;
  for (std::size_t b = 0; b < buckets; ++b) {
    data[b].assign(1000 * b + 1, static_cast<float>(b));
    running.push_back(c.all_reduce_async(tensor_view{std::span{data[b]}}, reduce_op::sum));
  }
  std::vector<float> own(10, 1);
  c.all_reduce(tensor_view{std::span{own}}, reduce_op::sum);
  for (auto& r : running) r.wait();
  for (std::size_t b = 0; b < buckets; ++b) {
    for (const float v : data[b]) expect(v == static_cast<float>(b * c.world_size()), "asynchronous sums");
  }
  expect(own[0] == static_cast<float>(c.world_size()), "a blocking call beside them");
}

/// Payload and rounds of each collective equal the closed form, to the byte.
template <class C>
void counters_equal_closed_forms(C& c) {
  const std::uint64_t n = c.world_size();
  const auto spent = [&](auto&& body) {
    const traffic_counters before = c.counters();
    body();
    return (c.counters() - before).total();
  };
  for (const std::size_t per_rank : {std::size_t{1}, std::size_t{1000}, std::size_t{200000}}) {
    std::vector<float> values(per_rank * n, 1);
    const std::uint64_t bytes = values.size() * sizeof(float);
    if constexpr (requires { c.tune(tuning{}); }) {  // pinned: which one is the best differs from path to path
      using way = all_reduce_algorithm;
      const std::uint64_t rounds = 2 * (n - 1), pieces = detail::pieces_for(per_rank * sizeof(float));
      c.tune({.all_reduce = {{.algorithm = way::ring, .piece_bytes = detail::piece_bytes}}, .bytes_per_second = {}});
      const auto ring = spent([&] { c.all_reduce(tensor_view{std::span{values}}, reduce_op::sum); });
      expect(ring == traffic_totals{rounds * bytes / n, rounds * bytes / n, rounds * pieces, rounds}, "ring: 2(n-1)/n");
      std::vector<bfloat16> narrow(per_rank * n);
      c.tune({.all_reduce = {{.algorithm = way::all_to_all}}, .bytes_per_second = {}});
      const auto direct = spent([&] { c.all_reduce(tensor_view{std::span{narrow}}, reduce_op::sum); });
      expect(direct.bytes_sent == (n - 1) * bytes / n && direct.bytes_received == direct.bytes_sent &&
                 direct.rounds == rounds, "bf16 all_reduce: 2(n-1)/n S, 2(n-1) rounds");
      c.tune({});
    }

    std::vector<float> own(per_rank, 1);
    const auto gather = spent([&] { c.all_gather(tensor_view{std::span{own}}, tensor_view{std::span{values}}); });
    expect(gather.bytes_sent == (n - 1) * per_rank * sizeof(float), "all_gather: (n-1)/n S");

    const auto tree = spent([&] { c.broadcast(tensor_view{std::span{own}}, rank_id{0}); });
    std::vector<std::int64_t> total{static_cast<std::int64_t>(tree.bytes_sent)};
    c.all_reduce(tensor_view{std::span{total}}, reduce_op::sum);
    expect(total[0] == static_cast<std::int64_t>((n - 1) * per_rank * sizeof(float)),
           "broadcast: (n-1) S over all ranks");
    expect(tree.rounds == static_cast<std::uint64_t>(std::bit_width(n - 1)), "broadcast: ceil(log2 n) rounds");
  }
  const auto barrier = spent([&] { c.barrier(); });
  expect(barrier.bytes_sent == 0 && barrier.rounds == static_cast<std::uint64_t>(std::bit_width(n - 1)),
         "barrier: ceil(log2 n)");
}

/// Everything that succeeds and that one rank can see by itself.
template <class C>
requires async_all_reducer<C> && broadcaster<C> && all_gatherer<C> && barrier_capable<C>
void check_results(const rank_runner<C>& run, std::uint32_t ranks) {
  run(ranks, [ranks](C& c) {
    expect(c.world_size() == ranks && number_of(c) < ranks, "rank and world size");
    all_reduce_matches_reference(c);
    large_all_reduce_is_equal_everywhere(c);
    narrow_sums_round_once(c);
    nan_survives_max_and_min(c);
    broadcast_reaches_everybody(c);
    all_gather_keeps_rank_order(c);
    messages_keep_their_order(c);
    channels_are_independent(c);
    split_forms_groups(c);
    async_runs_in_order_beside_blocking_calls(c);
    counters_equal_closed_forms(c);
  });
}

/// Everything that succeeds.
template <class C>
void check_behaviour(const rank_runner<C>& run, std::uint32_t ranks) {
  check_results<C>(run, ranks);
  barrier_holds<C>(run, ranks);
}

/// The errors that `body` caused, by rank; a rank without one has none. `elapsed` is how long the slowest took. Ranks
/// that are processes of their own run one of them here.
template <class C>
struct outcome {
  std::vector<std::optional<error>> errors;
  std::vector<bool> ran_here;
  std::chrono::steady_clock::duration elapsed{};
};

template <class C>
outcome<C> errors_of(const rank_runner<C>& run, std::uint32_t ranks, const std::function<void(C&)>& body) {
  outcome<C> result;
  result.errors.resize(ranks);
  result.ran_here.resize(ranks);
  std::mutex mutex;
  const auto start = std::chrono::steady_clock::now();
  run(ranks, [&](C& c) {
    const std::uint32_t rank = number_of(c);  // the body may take the communicator away
    {
      const std::lock_guard lock{mutex};
      result.ran_here[rank] = true;
    }
    try {
      body(c);
    } catch (const error& e) {
      const std::lock_guard lock{mutex};
      result.errors[rank].emplace(e);
    }
  });
  result.elapsed = std::chrono::steady_clock::now() - start;
  return result;
}

/// Throws unless each rank failed with `code`, soon, and each text holds each of `words`.
template <class C>
void expect_errors(const outcome<C>& result, errc code, const std::vector<std::string>& words) {
  for (std::size_t r = 0; r < result.errors.size(); ++r) {
    if (!result.ran_here[r]) continue;
    const std::optional<error>& e = result.errors[r];
    expect(e.has_value(), "every rank must see the error");
    expect(e->code() == code, std::string{"expected "} + std::string{to_string(code)} + ", got " + e->what());
    for (const std::string& word : words) {
      expect(std::string{e->what()}.find(word) != std::string::npos, "'" + word + "' is not in: " + e->what());
    }
  }
  expect(result.elapsed < std::chrono::seconds{patience}, "an error arrives within a second");
}

/// Everything that must fail, the same on every rank. Needs two ranks or more.
template <class C>
void check_failures(const rank_runner<C>& run, std::uint32_t ranks) {
  const auto floats = [](std::size_t count) { return std::vector<float>(count, 1); };
  const auto reduce = [&](C& c, std::size_t count, reduce_op op = reduce_op::sum) {
    auto values = floats(count);
    c.all_reduce(tensor_view{std::span{values}}, op);
  };
  const auto everywhere = [&](errc code, const std::vector<std::string>& words, const std::function<void(C&)>& body) {
    expect_errors(errors_of<C>(run, ranks, body), code, words);
  };
  const std::uint32_t odd = ranks - 1;  // the rank that does something else

  everywhere(errc::mismatch,
             {"all_reduce(sum)", "of 100 f32 (operation 1)", "of 101 f32", "channel 'world'"}, [&](C& c) {
               reduce(c, 5);
               reduce(c, number_of(c) == odd ? 101 : 100);
               c.barrier();
             });
  everywhere(errc::mismatch, {"of 200000 f32", "of 0 f32"}, [&](C& c) {
    reduce(c, number_of(c) == odd ? 0 : 200000);
    c.barrier();
  });
  everywhere(errc::mismatch, {"f64", "f32"}, [&](C& c) {
    if (number_of(c) != odd) return reduce(c, 64), c.barrier();
    std::vector<double> wrong(64);
    c.all_reduce(tensor_view{std::span{wrong}}, reduce_op::sum);
    c.barrier();
  });
  everywhere(errc::mismatch, {"all_reduce(max)", "all_reduce(sum)"}, [&](C& c) {
    reduce(c, 64, number_of(c) == odd ? reduce_op::max : reduce_op::sum);
    c.barrier();
  });
  everywhere(errc::mismatch, {"barrier", "all_reduce"}, [&](C& c) {
    if (number_of(c) == odd) c.barrier();
    reduce(c, 64);
    c.barrier();
  });
  everywhere(errc::mismatch, {"broadcast(root "}, [&](C& c) {
    auto values = floats(3);
    c.broadcast(tensor_view{std::span{values}}, rank_id{number_of(c) == odd ? odd : 0});
    c.barrier();
    c.barrier();
  });
  everywhere(errc::invalid_argument, {"does not fit i8"}, [&](C& c) {
    std::vector<std::int8_t> values(64, 100);
    c.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
    c.barrier();
  });
  everywhere(errc::invalid_argument, {"does not fit i32"}, [&](C& c) {
    std::vector<std::int32_t> values(64, number_of(c) == 0 ? std::numeric_limits<std::int32_t>::min() : -1);
    c.all_reduce(tensor_view{std::span{values}}, reduce_op::sum);
    c.barrier();
  });
  everywhere(errc::aborted, {"rank " + std::to_string(odd) + " aborted: the disk is full"}, [&](C& c) {
    if (number_of(c) == odd) c.abort("the disk is full");
    reduce(c, 1000);
  });
  everywhere(errc::aborted, {"the disk is full"}, [&](C& c) {
    // In the middle of large messages, and for calls that come later.
    if (number_of(c) == odd) c.abort("the disk is full");
    try {
      reduce(c, 2000000);
    } catch (const error&) {
      reduce(c, 1);
    }
  });
  everywhere(errc::timeout, {"waited 50 ms in all_reduce(sum)", "of 10 f32 (operation 0)", "for rank "}, [&](C& c) {
    // Nobody serves the odd rank's peers; it comes back to find the world ended.
    c.set_timeout(std::chrono::milliseconds{50});
    if (number_of(c) != odd) return reduce(c, 10);
    C other = c.channel("elsewhere");
    other.set_timeout(std::chrono::milliseconds{20000});
    reduce(other, 10);
  });
  everywhere(errc::aborted, {"stop"}, [&](C& c) {
    auto values = floats(10);
    auto running = c.all_reduce_async(tensor_view{std::span{values}}, reduce_op::sum);
    if (number_of(c) == odd) {
      running.wait();
      c.abort("stop");
    } else {
      running.wait();
    }
    auto later = c.all_reduce_async(tensor_view{std::span{values}}, reduce_op::sum);
    reduce(c, 10);
    later.wait();
  });
  // A rank that leaves while others still wait for it. Its own calls succeed.
  const auto left = errors_of<C>(run, ranks, [&](C& c) {
    C mine = std::move(c);
    if (number_of(mine) == odd) return;
    reduce(mine, 10);
  });
  for (std::uint32_t r = 0; r < odd; ++r) {
    if (!left.ran_here[r]) continue;
    expect(left.errors[r] && left.errors[r]->code() == errc::peer_lost,
           "who waits for a rank that left gets peer_lost");
    expect(std::string{left.errors[r]->what()}.find("rank " + std::to_string(odd)) != std::string::npos || ranks > 2,
           "and its name");
  }
}

}  // namespace hetero::conformance
