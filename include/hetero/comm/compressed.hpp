// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <hetero/comm/decorator.hpp>

namespace hetero {

/// How gradients look on the wire. `encode` turns a view of f32 into one that an all_reduce may sum, in `room` or where
/// it lies; `decode` turns the sum back. `exact` promises that the sum is the one of the originals.
template <class K>
concept codec = std::copy_constructible<K> && requires(K& k, const tensor_view& view, std::vector<std::byte>& room) {
  { K::exact } -> std::convertible_to<bool>;
  { k.encode(view, room) } -> std::same_as<tensor_view>;
  { k.decode(view, view) } -> std::same_as<void>;
};

/// Changes nothing.
struct identity_codec {
  static constexpr bool exact = true;
  [[nodiscard]] tensor_view encode(const tensor_view& values, std::vector<std::byte>&) const { return values; }
  void decode(const tensor_view&, const tensor_view&) const {}
};

/// Half the bytes. Each rank's value is rounded to 8 significant bits, the rounded ones are summed in f32, and the sum
/// is rounded once more: an element ends within 2^-7 (and its square) of the sum of the magnitudes, with equal bits on
/// all ranks.
struct bf16_codec {
  static constexpr bool exact = false;
  [[nodiscard]] tensor_view encode(const tensor_view& values, std::vector<std::byte>& room) const {
    room.resize(values.count() * sizeof(bfloat16));
    const std::span wire{reinterpret_cast<bfloat16*>(room.data()), values.count()};
    const std::span<float> from = values.elements<float>();
    for (std::size_t i = 0; i < wire.size(); ++i) wire[i] = bfloat16{from[i]};
    return tensor_view{wire};
  }
  void decode(const tensor_view& wire, const tensor_view& values) const {
    const std::span<bfloat16> from = wire.elements<bfloat16>();
    const std::span<float> to = values.elements<float>();
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<float>(from[i]);
  }
};

/// Sends the gradients that pass through it in another form: sums of f32 in traffic class `gradient`. Everything else
/// goes as it is. Exact when its codec is; an inexact one is for a synchronizer that says so.
template <communicator C, codec Codec> class compressed : public detail::decorator<compressed<C, Codec>, C> {
  using base = detail::decorator<compressed<C, Codec>, C>;
  friend base;

 public:
  static constexpr bool exact = Codec::exact;

  explicit compressed(C inner, Codec how = {}) : base{std::move(inner)}, codec_{std::move(how)} {}

  using detail::collective_mixin<compressed>::all_reduce;
  void all_reduce(const tensor_view& view, reduce_op op,
                  traffic_class traffic = traffic_class::other) requires all_reducer<C> {
    if (traffic != traffic_class::gradient || op != reduce_op::sum || view.type() != dtype::f32) {
      return base::all_reduce(view, op, traffic);
    }
    detail::check_view(view);
    const tensor_view wire = codec_.encode(view, room_);
    base::all_reduce(wire, op, traffic);
    codec_.decode(wire, view);
  }

 private:
  [[nodiscard]] compressed wrap(C inner) const { return compressed{std::move(inner), codec_}; }

  template <class Body> void around(const comm_call&, Body& body) { body(); }

  Codec codec_;
  std::vector<std::byte> room_;
};

template <class C, class Codec> compressed(C, Codec) -> compressed<C, Codec>;

}  // namespace hetero
