// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <vector>

#include <hetero/device/cpu_device.hpp>
#include <hetero/device/stream.hpp>
#include <hetero/model/layer/chain.hpp>
#include <hetero/model/layer/linear.hpp>

// [op]
/// out = in * sigmoid(in); grad_in = grad_out * d of that. The kernel is plain code for one element type and device kind.
inline void swish_on_cpu(const hetero::op::custom_arguments& a) {
  const auto out = a.tensors[0].elements<float>();
  const auto in = a.tensors[1].elements<float>();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = in[i] / (1 + std::exp(-in[i]));
}

inline void swish_backward_on_cpu(const hetero::op::custom_arguments& a) {
  const auto grad_in = a.tensors[0].elements<float>();
  const auto grad_out = a.tensors[1].elements<float>();
  const auto in = a.tensors[2].elements<float>();
  for (std::size_t i = 0; i < in.size(); ++i) {
    const float s = 1 / (1 + std::exp(-in[i]));
    grad_in[i] = grad_out[i] * s * (1 + in[i] * (1 - s));
  }
}

hetero::op::custom_op swish(hetero::tensor_view out, hetero::tensor_view in) {
  return {.name = "swish", .tensors = {out, in}, .launchers = {{hetero::device_kind::cpu, swish_on_cpu}}};
}

hetero::op::custom_op swish_backward(hetero::tensor_view grad_in, hetero::tensor_view grad_out, hetero::tensor_view in) {
  return {.name = "swish_backward",
          .tensors = {grad_in, grad_out, in},
          .launchers = {{hetero::device_kind::cpu, swish_backward_on_cpu}}};
}
// [op]

// [layer]
struct swish_layer {
  static constexpr bool splits_backward = true;
  static constexpr bool reads_output = false;

  std::vector<hetero::parameter_spec> parameters() const { return {}; }
  hetero::shape output_shape(const hetero::shape& input) const { return input; }
  std::vector<hetero::tensor_spec> saved(const hetero::saved_request&) const { return {}; }
  double forward_flops(const hetero::shape& input) const { return 4.0 * static_cast<double>(input.count()); }

  void forward(hetero::execution& context, hetero::layer_parameters, hetero::tensor_view input,
               hetero::tensor_view output, const hetero::saved_state&) const {
    context.launch(swish(output, input));
  }
  void backward_input(hetero::execution& context, hetero::layer_parameters, hetero::tensor_view grad_output,
                      hetero::tensor_view grad_input, const hetero::saved_state& saved, hetero::layer_gradients) const {
    if (grad_input) context.launch(swish_backward(grad_input, grad_output, saved.input));
  }
  void backward_weight(hetero::execution&, hetero::layer_parameters, hetero::tensor_view, const hetero::saved_state&,
                       hetero::layer_gradients) const {}
};

static_assert(hetero::layer<swish_layer>);
static_assert(hetero::layer<hetero::chain<hetero::linear, swish_layer>>);
// [layer]

int main() {
  // [launch]
  hetero::stream queue{hetero::cpu_device{{.threads = 1}}};
  std::vector<float> values{-1, 0, 2};
  const hetero::tensor_view view{std::span{values}};
  queue.launch(swish(view, view));  // every element is read before it is written, so in place is fine
  queue.synchronize();
  std::printf("%.4f %.4f %.4f\n", values[0], values[1], values[2]);  // -0.2689 0.0000 1.7616
  // [launch]
  bool right = std::abs(values[0] + 0.2689F) < 1e-4F && values[1] == 0 && std::abs(values[2] - 1.7616F) < 1e-4F;

  // [refused]
  hetero::op::custom_op elsewhere = swish(view, view);
  elsewhere.launchers = {{hetero::device_kind::cuda, swish_on_cpu}};
  try {
    queue.launch(elsewhere);
    right = false;
  } catch (const hetero::error& e) {
    right = right && e.code() == hetero::errc::unsupported;
    std::printf("%s\n", e.what());  // unsupported: custom op "swish" has no launcher for cpu (it has: cuda) ...
  }
  // [refused]
  return right ? 0 : 1;
}
