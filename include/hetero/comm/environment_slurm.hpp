// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <hetero/comm/environment_variables.hpp>
#include <hetero/core/error.hpp>

/// @file
/// What Slurm tells the tasks that srun starts.
namespace hetero::detail {

inline constexpr std::size_t max_host_list = max_world_size;

[[noreturn]] inline void refuse_host_list(const char* name, std::string_view list) {
  throw error{errc::rendezvous, std::string{name} + "='" + std::string{list} +
                                    "' is no list of hosts such as node[003-007,012],gpu-1; set MASTER_ADDR to the "
                                    "host of rank 0"};
}

/// "3-5,12" between brackets: 3, 4, 5, 12, each as wide as its first number was written.
inline void expand_numbers(const char* name, std::string_view list, std::string_view inside,
                           std::vector<std::string>& out) {
  while (!inside.empty()) {
    const std::string_view range = inside.substr(0, inside.find(','));
    inside.remove_prefix(std::min(inside.size(), range.size() + 1));
    const std::size_t dash = range.find('-');
    const std::string_view from = range.substr(0, dash);
    const std::string_view to = dash == std::string_view::npos ? from : range.substr(dash + 1);
    const auto digits = [](std::string_view s) {
      return !s.empty() && s.size() < 10 && s.find_first_not_of("0123456789") == std::string_view::npos;
    };
    if (!digits(from) || !digits(to)) refuse_host_list(name, list);
    const std::uint32_t first = number_of(name, from, 0, 999'999'999);
    const std::uint32_t last = number_of(name, to, 0, 999'999'999);
    if (last < first || last - first >= max_host_list || out.size() >= max_host_list) refuse_host_list(name, list);
    for (std::uint32_t n = first; n <= last; ++n) {
      std::string text = std::to_string(n);
      if (text.size() < from.size()) text.insert(0, from.size() - text.size(), '0');
      out.push_back(text);
    }
  }
}

/// Every host of Slurm's short form, in order: "node[003-004],gpu-1" is node003, node004, gpu-1. Several brackets in
/// one name multiply.
/// @throws error rendezvous naming the variable when the text is no such list
[[nodiscard]] inline std::vector<std::string> expand_host_list(const char* name, std::string_view list) {
  std::vector<std::string> hosts;
  std::vector<std::string> words{""};  // the alternatives of the name at hand
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i == list.size() || list[i] == ',') {
      if (words.front().empty()) refuse_host_list(name, list);
      hosts.insert(hosts.end(), words.begin(), words.end());
      words.assign(1, "");
    } else if (list[i] == '[') {
      const std::size_t end = list.find(']', i);
      std::vector<std::string> numbers;
      if (end == std::string_view::npos) refuse_host_list(name, list);
      expand_numbers(name, list, list.substr(i + 1, end - i - 1), numbers);
      if (numbers.empty() || words.size() * numbers.size() > max_host_list) refuse_host_list(name, list);
      std::vector<std::string> longer;
      for (const std::string& w : words) {
        for (const std::string& n : numbers) longer.push_back(w + n);
      }
      words = std::move(longer);
      i = end;
    } else if (list[i] == ']') {
      refuse_host_list(name, list);
    } else {
      for (std::string& w : words) w += list[i];
    }
    if (hosts.size() > max_host_list) refuse_host_list(name, list);
  }
  return hosts;
}

/// The number of tasks on node `index` in Slurm's short form "2(x3),1"; nothing when the text does not say.
[[nodiscard]] inline std::optional<std::uint32_t> tasks_on_node(std::string_view list, std::uint32_t index) {
  const auto number = [](std::string_view text) -> std::optional<std::uint32_t> {
    std::uint32_t value = 0;
    const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
    return ec == std::errc{} && end == text.data() + text.size() ? std::optional{value} : std::nullopt;
  };
  while (!list.empty()) {
    std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    std::optional<std::uint32_t> times = 1;
    if (const std::size_t at = item.find("(x"); at != std::string_view::npos && item.back() == ')') {
      times = number(item.substr(at + 2, item.size() - at - 3));
      item = item.substr(0, at);
    }
    if (!times) return std::nullopt;
    if (index < *times) return number(item);
    index -= *times;
  }
  return std::nullopt;
}

/// A task of a job step that srun started. Nothing in an allocation without a step: the shell of salloc and the batch
/// script see SLURM_NTASKS too, and are one process.
/// @throws error rendezvous
[[nodiscard]] inline std::optional<launch_place> slurm_place(const environment& get) {
  const char* const step = first_set(get, {"SLURM_STEP_ID", "SLURM_STEPID"});
  if (step == nullptr || !get("SLURM_PROCID")) return std::nullopt;
  // Batch script, interactive shell and helpers have steps of their own at the end of the range.
  constexpr std::uint32_t first_special_step = 0xfffffff0U;
  if (number_of(step, *get(step), 0, 0xffffffffU) >= first_special_step) return std::nullopt;
  const char* const size = first_set(get, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  require(size != nullptr, errc::rendezvous,
          "SLURM_PROCID is set and SLURM_NTASKS is not; start the tasks with srun -n, or set RANK and WORLD_SIZE");
  launch_place place = place_from(get, "SLURM_PROCID", size, {"SLURM_LOCALID"}, {});
  const char* const tasks = first_set(get, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  if (const auto node = get("SLURM_NODEID"); node && tasks != nullptr) {
    const auto here = tasks_on_node(*get(tasks), number_of("SLURM_NODEID", *node, 0, max_world_size));
    if (here && *here <= place.world_size) place.local_world_size = *here;
  }
  const char* const nodes = first_set(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  if (place.local_world_size != place.world_size && nodes != nullptr) {
    const std::vector<std::string> hosts = expand_host_list(nodes, *get(nodes));
    if (hosts.size() > 1) place.host = hosts.front();
  }
  place.job = "slurm " + get("SLURM_JOB_ID").value_or("?") + '.' + *get(step);
  place.ports = derived_ports(place.job);
  return place;
}

}  // namespace hetero::detail
