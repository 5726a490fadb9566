// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <hetero/plan/field_json.hpp>
#include <hetero/plan/plan.hpp>

/// @file
/// A plan as JSON, with its hash inside: a plan that was edited by hand or cut short is refused.
namespace hetero {

/// The plan as a JSON object.
[[nodiscard]] inline nlohmann::json plan_to_json(const plan& p) {
  nlohmann::json roles = nlohmann::json::array();
  for (const auto role : p.roles) roles.push_back(to_string(role));
  nlohmann::json replicas = nlohmann::json::array();
  for (const auto& r : p.replicas) {
    nlohmann::json stages = nlohmann::json::array();
    for (const auto& s : r.stages) {
      nlohmann::json shards = nlohmann::json::array();
      for (const auto& box : s.shards) {
        shards.push_back({{"parameter", box.parameter}, {"begin", box.begin}, {"end", box.end}});
      }
      stages.push_back({{"first_layer", s.first_layer},
                        {"end_layer", s.end_layer},
                        {"rank", index_of(s.rank)},
                        {"device", s.device},
                        {"stream", s.stream},
                        {"shards", std::move(shards)}});
    }
    replicas.push_back({{"share", r.share}, {"micro_batches", r.micro_batches}, {"stages", std::move(stages)}});
  }
  return {{"format", "hetero.plan"},         {"version", p.version},           {"epoch", p.epoch},
          {"num_layers", p.num_layers},      {"global_batch", p.global_batch}, {"roles", std::move(roles)},
          {"replicas", std::move(replicas)}, {"hash", to_hex(plan_hash(p))}};
}

/// The plan that `plan_to_json` wrote; validated.
/// @throws error bad_file naming the key that is missing, of another type, or out of range; also for another format, a
///         newer version, or a hash that does not fit the content
/// @throws error plan_does_not_fit when the content breaks a rule of plans
[[nodiscard]] inline plan plan_from_json(const nlohmann::json& json) {
  using detail::json_field;
  const std::string top = "plan";
  if (const auto format = json_field<std::string>(json, "format", top); format != "hetero.plan") {
    detail::refuse_json("plan.format", "is \"" + format + "\", \"hetero.plan\" is needed");
  }
  plan p;
  p.version = json_field<std::uint32_t>(json, "version", top);
  if (p.version == 0 || p.version > plan::current_version) {
    detail::refuse_json("plan.version", "is " + std::to_string(p.version) + "; this library reads up to version " +
                                            std::to_string(plan::current_version) +
                                            ", a newer library reads newer plans");
  }
  p.epoch = json_field<std::uint64_t>(json, "epoch", top);
  p.num_layers = json_field<std::size_t>(json, "num_layers", top);
  p.global_batch = json_field<std::size_t>(json, "global_batch", top);
  const auto& roles = detail::json_array(json, "roles", top);
  for (std::size_t i = 0; i < roles.size(); ++i) {
    const std::string path = "plan.roles[" + std::to_string(i) + ']';
    if (!roles[i].is_string()) detail::refuse_json(path, "is " + roles[i].dump() + ", a role is needed");
    p.roles.push_back(detail::json_enum<rank_role>(roles[i].get<std::string>(), 3, path));
  }
  const auto& replicas = detail::json_array(json, "replicas", top);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    const std::string path = "plan.replicas[" + std::to_string(i) + ']';
    auto& r = p.replicas.emplace_back();
    r.share = json_field<std::size_t>(replicas[i], "share", path);
    r.micro_batches = json_field<std::uint32_t>(replicas[i], "micro_batches", path);
    const auto& stages = detail::json_array(replicas[i], "stages", path);
    for (std::size_t j = 0; j < stages.size(); ++j) {
      const std::string stage_path = path + ".stages[" + std::to_string(j) + ']';
      auto& s = r.stages.emplace_back();
      s.first_layer = json_field<std::size_t>(stages[j], "first_layer", stage_path);
      s.end_layer = json_field<std::size_t>(stages[j], "end_layer", stage_path);
      s.rank = rank_id{json_field<std::uint32_t>(stages[j], "rank", stage_path)};
      s.device = json_field<std::uint16_t>(stages[j], "device", stage_path);
      s.stream = json_field<std::uint16_t>(stages[j], "stream", stage_path);
      const auto& shards = detail::json_array(stages[j], "shards", stage_path);
      for (std::size_t k = 0; k < shards.size(); ++k) {
        const std::string shard_path = stage_path + ".shards[" + std::to_string(k) + ']';
        s.shards.push_back({json_field<std::string>(shards[k], "parameter", shard_path),
                            json_field<std::size_t>(shards[k], "begin", shard_path),
                            json_field<std::size_t>(shards[k], "end", shard_path)});
      }
    }
  }
  const auto written = json_field<std::string>(json, "hash", top);
  if (const auto computed = to_hex(plan_hash(p)); written != computed) {
    detail::refuse_json("plan.hash", "is " + written + " but the content has " + computed +
                                         ": the plan was changed after it was written");
  }
  validate(p);
  return p;
}

/// The plan as text, indented for people.
[[nodiscard]] inline std::string write_plan(const plan& p) { return plan_to_json(p).dump(2) + '\n'; }

/// The plan in `text`. @throws error bad_file, plan_does_not_fit; as `plan_from_json`
[[nodiscard]] inline plan read_plan(std::string_view text) {
  return plan_from_json(detail::parse_json(text, "the plan"));
}

}  // namespace hetero
