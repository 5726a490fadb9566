// SPDX-License-Identifier: Apache-2.0
// Storage for one layer on one device, and host access to it: what a trainer owns, in its simplest form.
#pragma once

#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <hetero/core/rng.hpp>
#include <hetero/device/buffer.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/model/concepts.hpp>

namespace hetero::test {

/// Host copies in double, whatever the element type.
[[nodiscard]] inline std::vector<double> download(any_device device, stream_id stream, tensor_view from) {
  std::vector<std::byte> host(from.size_bytes() + 8);
  const tensor_view view{host.data(), from.type(), from.extents()};
  if (from.count() > 0) device.copy(view, from, stream);
  device.synchronize(stream);
  std::vector<double> values(from.count());
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (from.type()) {
      case dtype::f64:
        values[i] = view.as<double>()[i];
        break;
      case dtype::f32:
        values[i] = view.as<float>()[i];
        break;
      case dtype::i32:
        values[i] = view.as<std::int32_t>()[i];
        break;
      case dtype::i64:
        values[i] = static_cast<double>(view.as<std::int64_t>()[i]);
        break;
      default:
        throw error{errc::unsupported, "download of this type"};
    }
  }
  return values;
}

inline void upload(any_device device, stream_id stream, tensor_view to, std::span<const double> values) {
  std::vector<std::byte> host(to.size_bytes() + 8);
  const tensor_view view{host.data(), to.type(), to.extents()};
  require(values.size() == to.count(), errc::invalid_shape, "upload of another count");
  for (std::size_t i = 0; i < values.size(); ++i) {
    switch (to.type()) {
      case dtype::f64:
        view.as<double>()[i] = values[i];
        break;
      case dtype::f32:
        view.as<float>()[i] = static_cast<float>(values[i]);
        break;
      case dtype::i32:
        view.as<std::int32_t>()[i] = static_cast<std::int32_t>(values[i]);
        break;
      case dtype::i64:
        view.as<std::int64_t>()[i] = static_cast<std::int64_t>(values[i]);
        break;
      default:
        throw error{errc::unsupported, "upload of this type"};
    }
  }
  if (to.count() > 0) device.copy(to, view, stream);
  device.synchronize(stream);
}

/// Reproducible standard normal numbers.
[[nodiscard]] inline std::vector<double> normals(std::size_t count, std::uint32_t stream) {
  const counter_rng rng{20, rng_purpose::test, stream};
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(rng.normal(i));
  return values;
}

/// Whole numbers below `bound`.
[[nodiscard]] inline std::vector<double> whole_numbers(std::size_t count, std::size_t bound, std::uint32_t stream) {
  const counter_rng rng{20, rng_purpose::test, stream};
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<double>(rng.word(i) % bound);
  return values;
}

template <class Context> auto group_type() {
  if constexpr (requires(Context & c) { c.groups; }) {
    return decltype(std::declval<Context&>().groups){};
  } else {
    return nullptr;
  }
}

/// How a layer is run.
struct layer_case {
  shape input;
  dtype type = dtype::f64;     ///< activations and parameters
  std::size_t vocabulary = 0;  ///< more than 0: the input is i32 ids below it
  bool split = false;
  std::uint32_t weights = 1;  ///< which random parameters
};

/// One replica of a layer: parameters, gradients, input, output, kept tensors, scratch.
template <class L, class Context = layer_context<>> class layer_runner {
 public:
  layer_runner(const L& l, any_device on, const layer_case& how)
      : device{std::move(on)}, layer_{l}, stream_{device}, scratch_{device, stream_.id()}, how_{how} {
    specs = l.parameters();
    for (std::size_t i = 0; i < specs.size(); ++i) {
      params_.push_back(make(how.type, specs[i].extents));
      grads_.push_back(make(how.type, specs[i].extents));
      params.push_back(params_.back().view());
      slots.push_back({specs[i].trainable ? grads_.back().view() : tensor_view{}, false});
      // Around 1, so that gains and denominators are neither 0 nor equal to their initial value.
      auto values = normals(specs[i].extents.count(), 100 * how.weights + static_cast<std::uint32_t>(i));
      for (double& v : values) v = specs[i].trainable ? 0.5 * v + 0.3 : 0.0;
      write(params.back(), values);
    }
    const dtype input_type = how.vocabulary > 0 ? dtype::i32 : how.type;
    const shape out = l.output_shape(how.input);
    input_ = make(input_type, how.input);
    output_ = make(how.type, out);
    grad_output_ = make(how.type, out);
    grad_input_ = make(how.type, how.vocabulary > 0 ? shape{0} : how.input);
    for (const auto& spec : l.saved({how.input, how.type, how.split})) {
      kept_.push_back(make(spec.type, spec.extents));
      kept.push_back(kept_.back().view());
    }
    write(input(),
          how.vocabulary > 0 ? whole_numbers(how.input.count(), how.vocabulary, 7) : normals(how.input.count(), 7));
    write(grad_output(), normals(out.count(), 8));
    sample_ids.resize(how.input[0]);
    std::iota(sample_ids.begin(), sample_ids.end(), std::int64_t{40});
  }

  /// Fills everything a forward pass writes with NaN, then runs it.
  void forward(phase pass = phase::train) {
    poison(output());
    for (const auto& k : kept) poison(k);
    Context c = context(pass);
    layer_.forward(c, params, input(), output(), state());
  }

  /// Both halves at once.
  void backward(bool wants_input = true) {
    poison_gradients();
    Context c = context(phase::train, wants_input);
    hetero::backward(layer_, c, params, grad_output(), wants_input ? grad_input() : tensor_view{}, state(), slots);
  }

  /// The two halves as separate calls, with other work on the same scratch between them.
  void backward_split(bool wants_input = true) {
    poison_gradients();
    Context c = context(phase::train, wants_input);
    layer_.backward_input(c, params, grad_output(), wants_input ? grad_input() : tensor_view{}, state(), slots);
    {
      const scratch_pool::frame frame{scratch_};
      poison(scratch_.take(dtype::f64, {std::size_t{1} << 16U}));
    }
    if constexpr (L::splits_backward) layer_.backward_weight(c, params, grad_output(), state(), slots);
  }

  [[nodiscard]] Context context(phase pass = phase::train, bool wants_input = true) {
    Context c{{.device = device,
               .stream = stream_.id(),
               .scratch = scratch_,
               .pass = pass,
               .needs_input_gradient = wants_input,
               .split_backward = how_.split,
               .seed = 11,
               .step = 3,
               .sample_ids = tensor_view{std::span{sample_ids}}}};
    if constexpr (requires { c.groups = groups; }) c.groups = groups;
    return c;
  }
  [[nodiscard]] saved_state state() const { return {input(), output(), kept}; }

  [[nodiscard]] tensor_view input() const { return input_.view(); }
  [[nodiscard]] tensor_view output() const { return output_.view(); }
  [[nodiscard]] tensor_view grad_output() const { return grad_output_.view(); }
  [[nodiscard]] tensor_view grad_input() const { return grad_input_.view(); }

  [[nodiscard]] std::vector<double> read(const tensor_view& v) { return download(device, stream_.id(), v); }
  void write(const tensor_view& v, std::span<const double> values) { upload(device, stream_.id(), v, values); }
  void poison(const tensor_view& v) {
    if (v && is_floating(v.type())) write(v, std::vector<double>(v.count(), std::numeric_limits<double>::quiet_NaN()));
  }
  void poison_gradients() {
    if (grad_input().count() > 0) poison(grad_input());
    for (const auto& slot : slots) {
      if (!slot.accumulate) poison(slot.view);
    }
  }

  /// sum(grad_output * output): the scalar whose gradient the backward pass gives.
  [[nodiscard]] double objective() {
    const auto out = read(output());
    const auto factors = read(grad_output());
    return std::inner_product(out.begin(), out.end(), factors.begin(), 0.0);
  }

  [[nodiscard]] std::vector<std::vector<double>> read_gradients() {
    std::vector<std::vector<double>> all;
    for (const auto& slot : slots) all.push_back(slot.view ? read(slot.view) : std::vector<double>{});
    return all;
  }

  std::vector<parameter_spec> specs;
  std::vector<tensor_view> params;
  std::vector<gradient_slot> slots;
  std::vector<tensor_view> kept;
  std::vector<std::int64_t> sample_ids;
  any_device device;
  decltype(group_type<Context>()) groups = nullptr;

 private:
  [[nodiscard]] buffer make(dtype type, const shape& extents) { return {device, stream_.id(), type, extents}; }

  const L& layer_;
  stream stream_;
  scratch_pool scratch_;
  layer_case how_;
  std::vector<buffer> params_;
  std::vector<buffer> grads_;
  std::vector<buffer> kept_;
  buffer input_;
  buffer output_;
  buffer grad_output_;
  buffer grad_input_;
};

}  // namespace hetero::test
