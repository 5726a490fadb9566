// SPDX-License-Identifier: Apache-2.0
// What every model of device_backend must do. A backend runs it in one TEST_CASE:
//   TEST_CASE("my_device keeps the device contract") { check_device_backend([](std::size_t budget) { return ...; }); }
// `make(budget_bytes)` makes a fresh device, 0 meaning no particular budget. Host memory is never handed to an op, and
// results are read only after a synchronize, so the suite is right for devices that run later and elsewhere.
#pragma once

#include "support/catch.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <hetero/core/fixed_point.hpp>
#include <hetero/device/concepts.hpp>

namespace hetero::test {

/// The code of the error that `f` throws; fails the test when it throws none.
template <class F> [[nodiscard]] errc code_of(F f, std::string* text = nullptr) {
  try {
    f();
  } catch (const error& e) {
    if (text != nullptr) *text = e.what();
    return e.code();
  }
  FAIL("expected a hetero::error");
  return errc::aborted;
}

/// One device, one stream, and tensors that the device owns until the fixture ends.
template <device_backend D> class device_fixture {
 public:
  explicit device_fixture(D device) : device_{std::move(device)}, stream_{device_.create_stream()} {}
  device_fixture(const device_fixture&) = delete;
  device_fixture& operator=(const device_fixture&) = delete;
  ~device_fixture() {
    for (const tensor_view& each : owned_) device_.deallocate(each.data(), each.size_bytes(), stream_);
    device_.destroy_stream(stream_);
  }

  [[nodiscard]] D& device() noexcept { return device_; }
  [[nodiscard]] stream_id stream() const noexcept { return stream_; }

  [[nodiscard]] tensor_view tensor(dtype type, const shape& extents) {
    const tensor_view probe{nullptr, type, extents, device_.id()};
    if (probe.count() == 0) return probe;
    const tensor_view view{device_.allocate(probe.size_bytes(), stream_), type, extents, device_.id()};
    owned_.push_back(view);
    return view;
  }
  template <class T> [[nodiscard]] tensor_view tensor(const std::vector<T>& values, const shape& extents) {
    const tensor_view view = tensor(dtype_of<T>, extents);
    device_.copy(view, tensor_view{const_cast<T*>(values.data()), dtype_of<T>, extents}, stream_);
    device_.synchronize(stream_);  // the host vector may be a temporary
    return view;
  }
  template <class T> [[nodiscard]] tensor_view tensor(const std::vector<T>& values) {
    return tensor(values, shape{values.size()});
  }

  /// Waits for the stream and reads a dense tensor.
  template <class T> [[nodiscard]] std::vector<T> read(const tensor_view& view) {
    std::vector<T> values(view.count());
    device_.copy(tensor_view{values.data(), dtype_of<T>, view.extents()}, view, stream_);
    device_.synchronize(stream_);
    return values;
  }

  void launch(const device_op& op) { device_.launch(op, stream_); }
  /// Launches and waits, so that an error is thrown here by any backend.
  void run(const device_op& op) {
    device_.launch(op, stream_);
    device_.synchronize(stream_);
  }

 private:
  D device_;
  stream_id stream_;
  std::vector<tensor_view> owned_;
};

template <class D> device_fixture(D) -> device_fixture<D>;

/// `count` values around 0, equal on every call with the same seed.
template <class T> [[nodiscard]] std::vector<T> random_values(std::size_t count, unsigned seed, double width = 1) {
  std::mt19937 generator{seed};
  std::uniform_real_distribution<double> uniform{-width, width};
  std::vector<T> values(count);
  for (T& each : values) each = static_cast<T>(uniform(generator));
  return values;
}

template <class T> [[nodiscard]] double largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
  }
  return largest;
}

template <class Make> void check_device_memory(Make make) {
  SECTION("memory is aligned, and its contents survive a round trip") {
    device_fixture f{make(0)};
    for (const std::size_t count : {std::size_t{1}, std::size_t{63}, std::size_t{64}, std::size_t{100000}}) {
      const auto values = random_values<float>(count, 1);
      const tensor_view view = f.tensor(values);
      CHECK(reinterpret_cast<std::uintptr_t>(view.data()) % 64 == 0);
      CHECK(f.template read<float>(view) == values);
    }
  }
  SECTION("counters count allocations and copies exactly") {
    device_fixture f{make(0)};
    const device_counters before = f.device().counters();
    const tensor_view a = f.tensor(dtype::f32, {100});
    const tensor_view b = f.tensor(dtype::i64, {10});
    f.device().copy(a.flat(0, 50), a.flat(50, 100), f.stream());
    f.device().synchronize(f.stream());
    const device_counters after = f.device().counters();
    CHECK(after.allocations - before.allocations == 2);
    CHECK(after.bytes_allocated - before.bytes_allocated == 480);
    CHECK(after.bytes_in_use - before.bytes_in_use == 480);
    CHECK(after.peak_bytes_in_use >= after.bytes_in_use);
    CHECK(after.copies - before.copies == 1);
    CHECK(after.bytes_copied - before.bytes_copied == 200);
    CHECK(after.launches == before.launches);
    (void)b;
  }
  SECTION("the budget refuses by name and numbers, and nothing is lost") {
    auto device = make(4096);
    CHECK(device.budget_bytes() == 4096);
    const stream_id s = device.create_stream();
    void* const first = device.allocate(3000, s);
    std::string text;
    CHECK(code_of([&] { (void)device.allocate(1097, s); }, &text) == errc::out_of_memory);
    for (const char* part : {"1097", "3000", "4096"}) CHECK(text.find(part) != std::string::npos);
    CHECK(code_of([&] { (void)device.allocate(std::numeric_limits<std::size_t>::max(), s); }) == errc::out_of_memory);
    CHECK(device.counters().bytes_in_use == 3000);
    void* const second = device.allocate(1096, s);  // exactly the rest: the control
    device.deallocate(first, 3000, s);
    device.synchronize(s);
    void* const third = device.allocate(3000, s);
    device.deallocate(second, 1096, s);
    device.deallocate(third, 3000, s);
    device.synchronize(s);
    CHECK(device.counters().bytes_in_use == 0);
    CHECK(device.counters().peak_bytes_in_use == 4096);
    device.destroy_stream(s);
  }
  SECTION("a copy refuses sides that differ in count or type") {
    device_fixture f{make(0)};
    const tensor_view a = f.tensor(dtype::f32, {4});
    const tensor_view b = f.tensor(dtype::f32, {5});
    const tensor_view c = f.tensor(dtype::i32, {4});
    const auto copy = [&](const tensor_view& to, const tensor_view& from) {
      f.device().copy(to, from, f.stream());
      f.device().synchronize(f.stream());
    };
    std::string text;
    CHECK(code_of([&] { copy(a, b); }, &text) == errc::invalid_shape);
    CHECK(text.find("[4]") != std::string::npos);
    CHECK(text.find("[5]") != std::string::npos);
    CHECK(code_of([&] { copy(a, c); }) == errc::invalid_shape);
  }
}

template <class Make> void check_device_streams(Make make) {
  SECTION("streams have distinct ids, and one that is not alive is refused") {
    auto device = make(0);
    auto other = make(0);
    const stream_id a = device.create_stream();
    const stream_id b = device.create_stream();
    const stream_id foreign = other.create_stream();
    CHECK(a != b);
    device.order(a, b);
    device.synchronize(b);
    device.destroy_stream(b);
    const std::array<stream_id, 3> dead{b, foreign, stream_id{}};
    for (const stream_id s : dead) {
      CHECK(code_of([&] { device.synchronize(s); }) == errc::invalid_argument);
      CHECK(code_of([&] { device.order(a, s); }) == errc::invalid_argument);
      CHECK(code_of([&] { device.order(s, a); }) == errc::invalid_argument);
      CHECK(code_of([&] { (void)device.allocate(64, s); }) == errc::invalid_argument);
      CHECK(code_of([&] { device.launch(op::fill{}, s); }) == errc::invalid_argument);
    }
    device.synchronize(a);  // the control: a is alive
    device.destroy_stream(a);
    other.destroy_stream(foreign);
  }
  SECTION("work on one stream runs in order, and order() carries it to another") {
    device_fixture f{make(0)};
    const stream_id later = f.device().create_stream();
    const tensor_view x = f.tensor(dtype::f32, {1000});
    const tensor_view y = f.tensor(dtype::f32, {1000});
    f.launch(op::fill{.out = x, .value = 2});
    f.launch(op::scale{.values = x, .factor = 3});
    f.device().order(f.stream(), later);
    f.device().launch(op::add{.out = y, .a = x, .b = x}, later);
    f.device().order(later, f.stream());
    CHECK(f.template read<float>(y) == std::vector<float>(1000, 12.0F));
    f.device().destroy_stream(later);
  }
  SECTION("different streams may be used from different threads") {
    auto device = make(0);
    std::array<double, 2> sums{};
    std::vector<std::thread> users;
    for (std::size_t user = 0; user < 2; ++user) {
      users.emplace_back([&, user] {
        device_fixture<std::remove_cvref_t<decltype(device)>> f{device};
        const tensor_view x = f.tensor(dtype::f32, {100000});
        f.launch(op::fill{.out = x, .value = 0});
        for (int i = 0; i < 20; ++i) f.launch(op::accumulate{.into = x, .from = x, .factor = 0});
        f.launch(op::fill{.out = x, .value = static_cast<double>(user + 1)});
        for (const float each : f.template read<float>(x)) sums[user] += static_cast<double>(each);
      });
    }
    for (std::thread& each : users) each.join();
    CHECK(sums[0] == 100000);
    CHECK(sums[1] == 200000);
    CHECK(device.counters().launches == 44);
    CHECK(device.counters().bytes_in_use == 0);
  }
}

template <class Make> void check_device_ops(Make make) {
  SECTION("a product, its transposes and its accumulation") {
    device_fixture f{make(0)};
    constexpr std::size_t m = 37, n = 29, k = 53;
    const auto a = random_values<float>(m * k, 1);
    const auto b = random_values<float>(k * n, 2);
    std::vector<float> expected(m * n), at(k * m), bt(n * k);
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::size_t l = 0; l < k; ++l)
          sum += static_cast<double>(a[i * k + l]) * static_cast<double>(b[l * n + j]);
        expected[i * n + j] = static_cast<float>(sum);
      }
    }
    for (std::size_t i = 0; i < m; ++i) {
      for (std::size_t l = 0; l < k; ++l) at[l * m + i] = a[i * k + l];
    }
    for (std::size_t j = 0; j < n; ++j) {
      for (std::size_t l = 0; l < k; ++l) bt[j * k + l] = b[l * n + j];
    }
    const tensor_view out = f.tensor(dtype::f32, {m, n});
    for (const bool transpose_a : {false, true}) {
      for (const bool transpose_b : {false, true}) {
        f.launch(op::fill{.out = out, .value = std::numeric_limits<double>::quiet_NaN()});  // must not be read
        f.launch(op::matmul{.out = out,
                            .a = transpose_a ? f.tensor(at, {k, m}) : f.tensor(a, {m, k}),
                            .b = transpose_b ? f.tensor(bt, {n, k}) : f.tensor(b, {k, n}),
                            .transpose_a = transpose_a,
                            .transpose_b = transpose_b});
        CHECK(largest_difference(f.template read<float>(out), expected) < 2e-5);
      }
    }
    f.launch(op::matmul{.out = out, .a = f.tensor(a, {m, k}), .b = f.tensor(b, {k, n}), .accumulate = true});
    for (float& each : expected) each *= 2;
    CHECK(largest_difference(f.template read<float>(out), expected) < 4e-5);
  }
  SECTION("an optimizer step and a norm") {
    device_fixture f{make(0)};
    constexpr std::size_t count = 1001;
    const auto param = random_values<float>(count, 3);
    const auto grad = random_values<float>(count, 4);
    const tensor_view p = f.tensor(param);
    const tensor_view m = f.tensor(std::vector<float>(count, 0.0F));
    const tensor_view v = f.tensor(std::vector<float>(count, 0.0F));
    f.launch(op::adamw_update{.param = p, .grad = f.tensor(grad), .moment1 = m, .moment2 = v, .learning_rate = 0.1});
    std::vector<float> expected = param;
    for (std::size_t i = 0; i < count; ++i) {  // at the first step the bias correction leaves the sign of the gradient
      const double g = static_cast<double>(grad[i]);
      expected[i] = static_cast<float>(static_cast<double>(param[i]) - 0.1 * g / (std::abs(g) + 1e-8));
    }
    CHECK(largest_difference(f.template read<float>(p), expected) < 1e-5);
    const tensor_view norm = f.tensor(std::vector<double>{10.0});
    double squares = 10;
    for (const float each : grad) squares += static_cast<double>(each) * static_cast<double>(each);
    f.launch(op::sum_squares{.result = norm, .in = f.tensor(grad)});
    CHECK(f.template read<double>(norm)[0] == Approx(squares).epsilon(1e-12));
  }
  SECTION("fixed-point leaves are those of core, bit for bit") {
    device_fixture f{make(0)};
    const auto values = random_values<float>(1003, 5, 1e-3);
    const fixed_point scale{1e-3, 4};
    const tensor_view sum = f.tensor(std::vector<std::int64_t>(values.size(), 7));
    const tensor_view in = f.tensor(values);
    f.launch(op::fixed_point_accumulate{.into = sum, .in = in, .exponent = scale.exponent()});
    std::vector<std::int64_t> expected(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) expected[i] = 7 + scale.encode(static_cast<double>(values[i]));
    CHECK(f.template read<std::int64_t>(sum) == expected);
  }
  SECTION("launches and time are counted") {
    device_fixture f{make(0)};
    const tensor_view x = f.tensor(dtype::f32, {1 << 20});
    f.run(op::fill{.out = x, .value = 1});
    const device_counters before = f.device().counters();
    for (int i = 0; i < 10; ++i) f.launch(op::scale{.values = x, .factor = 1.5});
    f.device().synchronize(f.stream());
    const device_counters after = f.device().counters();
    CHECK(after.launches - before.launches == 10);
    CHECK(after.busy_s > before.busy_s);
    CHECK(after.allocations == before.allocations);
  }
  SECTION("a custom op runs its launcher with its arguments; without one it is unsupported by name") {
    device_fixture f{make(0)};
    const tensor_view x = f.tensor(std::vector<float>(8, 1.0F));
    op::custom_op halve{.name = "halve", .tensors = {x}, .numbers = {0.5}};
    std::string text;
    CHECK(code_of([&] { f.run(halve); }, &text) == errc::unsupported);
    CHECK(text.find("halve") != std::string::npos);
    if (f.device().id().kind == device_kind::cpu) {  // a device's launcher is written in its own language
      halve.launchers[device_kind::cpu] = [](const op::custom_arguments& arguments) {
        for (float& each : arguments.tensors[0].elements<float>()) each *= static_cast<float>(arguments.numbers[0]);
      };
      f.launch(halve);
      CHECK(f.template read<float>(x) == std::vector<float>(8, 0.5F));
    }
  }
  SECTION("shapes that do not fit are refused, naming both, and the device goes on") {
    device_fixture f{make(0)};
    const tensor_view a = f.tensor(std::vector<float>(6, 1.0F), {2, 3});
    const tensor_view b = f.tensor(std::vector<float>(20, 1.0F), {4, 5});
    const tensor_view out = f.tensor(dtype::f32, {2, 5});
    std::string text;
    CHECK(code_of([&] { f.run(op::matmul{.out = out, .a = a, .b = b}); }, &text) == errc::invalid_shape);
    CHECK(text.find("[2, 3]") != std::string::npos);
    CHECK(text.find("[4, 5]") != std::string::npos);
    CHECK(code_of([&] { f.run(op::add{.out = a, .a = a, .b = b}); }) == errc::invalid_shape);
    f.launch(op::scale{.values = a, .factor = 2});
    CHECK(f.template read<float>(a) == std::vector<float>(6, 2.0F));
  }
  SECTION("tensors without elements are legal") {
    device_fixture f{make(0)};
    const tensor_view none = f.tensor(dtype::f32, {0, 4});
    const tensor_view weight = f.tensor(std::vector<float>(12, 1.0F), {4, 3});
    const tensor_view nothing = f.tensor(dtype::f32, {0, 3});
    f.run(op::fill{.out = none, .value = 1});
    f.run(op::matmul{.out = nothing, .a = none, .b = weight});
    f.run(op::matmul{.out = weight, .a = none, .b = nothing, .transpose_a = true});  // k = 0: zeros
    CHECK(f.template read<float>(weight) == std::vector<float>(12, 0.0F));
  }
}

/// Runs the whole suite; call it inside a TEST_CASE.
template <class Make> void check_device_backend(Make make) {
  check_device_memory(make);
  check_device_streams(make);
  check_device_ops(make);
}

}  // namespace hetero::test
