// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>
#include <variant>

/// @file
/// What a policy was set to, as text that ranks compare (law 4). Policies are aggregates, so nobody has to write it.
namespace hetero {

namespace detail {

struct any_field {
  template <class T> constexpr operator T() const noexcept;
};

template <class Derived> struct any_base {
  template <class T>
  requires(std::is_base_of_v<T, Derived> && !std::same_as<T, Derived>) constexpr operator T() const noexcept;
};

/// An aggregate whose members are all its own, so that they can be bound by name.
template <class T> inline constexpr bool has_plain_fields = std::is_aggregate_v<T> && !requires { T{any_base<T>{}}; };

/// Fields of an aggregate, up to 8.
template <class T, class... Fields> [[nodiscard]] consteval std::size_t field_count() {
  if constexpr (sizeof...(Fields) < 8 && requires { T{Fields{}..., any_field{}}; }) {
    return field_count<T, Fields..., any_field>();
  } else {
    return sizeof...(Fields);
  }
}

template <class T, class F> void for_each_field(const T& value, F&& f) {
  const auto all = [&](const auto&... fields) { (f(fields), ...); };
  constexpr std::size_t n = field_count<T>();
  if constexpr (n == 1) {
    const auto& [a] = value;
    all(a);
  }
  if constexpr (n == 2) {
    const auto& [a, b] = value;
    all(a, b);
  }
  if constexpr (n == 3) {
    const auto& [a, b, c] = value;
    all(a, b, c);
  }
  if constexpr (n == 4) {
    const auto& [a, b, c, d] = value;
    all(a, b, c, d);
  }
  if constexpr (n == 5) {
    const auto& [a, b, c, d, e] = value;
    all(a, b, c, d, e);
  }
  if constexpr (n == 6) {
    const auto& [a, b, c, d, e, g] = value;
    all(a, b, c, d, e, g);
  }
  if constexpr (n == 7) {
    const auto& [a, b, c, d, e, g, h] = value;
    all(a, b, c, d, e, g, h);
  }
  if constexpr (n == 8) {
    const auto& [a, b, c, d, e, g, h, i] = value;
    all(a, b, c, d, e, g, h, i);
  }
}

template <class T> inline constexpr bool is_variant = false;
template <class... Ts> inline constexpr bool is_variant<std::variant<Ts...>> = true;

}  // namespace detail

/// The fields of a policy in order, "{0.001, 0.9, 0.999}"; a policy's own `describe(policy)` comes first. Numbers are
/// written so that different ones differ. A class with bases or hidden members says nothing: give it a `describe`.
template <class P> [[nodiscard]] std::string describe_policy(const P& policy) {
  if constexpr (requires {
                  { describe(policy) } -> std::convertible_to<std::string>;
                }) {
    return describe(policy);
  } else if constexpr (std::same_as<P, bool>) {
    return policy ? "on" : "off";
  } else if constexpr (std::is_enum_v<P>) {
    return std::to_string(static_cast<std::underlying_type_t<P>>(policy));
  } else if constexpr (std::is_arithmetic_v<P>) {
    char text[32];
    return {text, std::to_chars(text, text + sizeof text, policy).ptr};
  } else if constexpr (std::convertible_to<P, std::string>) {
    return std::string{policy};
  } else if constexpr (detail::is_variant<P>) {
    return std::to_string(policy.index()) +
           std::visit([](const auto& chosen) { return describe_policy(chosen); }, policy);
  } else if constexpr (requires {
                         policy.begin();
                         policy.end();
                       }) {
    std::string text;
    for (const auto& element : policy) text += (text.empty() ? "[" : ", ") + describe_policy(element);
    return text.empty() ? "[]" : text + ']';
  } else if constexpr (detail::has_plain_fields<P>) {
    std::string text;
    detail::for_each_field(policy,
                           [&](const auto& field) { text += (text.empty() ? "{" : ", ") + describe_policy(field); });
    return text.empty() ? "{}" : text + '}';
  } else {
    return "{}";
  }
}

}  // namespace hetero
