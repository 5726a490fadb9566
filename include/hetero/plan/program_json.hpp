// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include <hetero/core/hash.hpp>
#include <hetero/plan/action.hpp>
#include <hetero/plan/field_json.hpp>

/// @file
/// A rank's program as JSON: a list of actions, each with the fields it uses, and a hash over all of them.
namespace hetero {

/// A hash over everything in the program.
[[nodiscard]] inline std::uint64_t program_hash(const program& actions) noexcept {
  stable_hash hash;
  hash.add(actions.size());
  for (const auto& a : actions) {
    hash.add(static_cast<std::uint64_t>(a.kind)).add(index_of(a.replica)).add(index_of(a.stage));
    hash.add(index_of(a.micro_batch)).add(a.first_layer).add(a.end_layer).add(a.bucket).add(index_of(a.peer));
    hash.add((a.split ? 1U : 0U) | (a.opportunistic ? 2U : 0U) | (a.gradient ? 4U : 0U)).add(a.after.size());
    for (const auto earlier : a.after) hash.add(earlier);
  }
  return hash.value();
}

/// One action as a JSON object; fields at their defaults are left out.
[[nodiscard]] inline nlohmann::json action_to_json(const action& a) {
  nlohmann::json json{{"kind", to_string(a.kind)}};
  const action plain{};
  if (a.replica != plain.replica) json["replica"] = index_of(a.replica);
  if (a.stage != plain.stage) json["stage"] = index_of(a.stage);
  if (a.micro_batch != plain.micro_batch) json["micro_batch"] = index_of(a.micro_batch);
  if (a.first_layer != plain.first_layer) json["first_layer"] = a.first_layer;
  if (a.end_layer != plain.end_layer) json["end_layer"] = a.end_layer;
  if (a.bucket != plain.bucket) json["bucket"] = a.bucket;
  if (a.peer != plain.peer) json["peer"] = index_of(a.peer);
  if (a.split) json["split"] = true;
  if (a.opportunistic) json["opportunistic"] = true;
  if (a.gradient) json["gradient"] = true;
  if (!a.after.empty()) json["after"] = a.after;
  return json;
}

/// The action that `action_to_json` wrote; `path` names it in errors.
/// @throws error bad_file naming the key; a key that no action has is refused too, since it was meant to do something
[[nodiscard]] inline action action_from_json(const nlohmann::json& json, const std::string& path = "action") {
  using detail::json_field;
  action a;
  a.kind = detail::json_enum<action_kind>(json_field<std::string>(json, "kind", path),
                                          static_cast<std::size_t>(action_kind::fetch) + 1, path + ".kind");
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const auto number = [&] { return json_field<std::uint32_t>(json, key, path); };
    if (key == "kind") continue;
    if (key == "replica") {
      a.replica = replica_id{number()};
    } else if (key == "stage") {
      a.stage = stage_id{number()};
    } else if (key == "micro_batch") {
      a.micro_batch = micro_batch_id{number()};
    } else if (key == "first_layer") {
      a.first_layer = json_field<std::size_t>(json, key, path);
    } else if (key == "end_layer") {
      a.end_layer = json_field<std::size_t>(json, key, path);
    } else if (key == "bucket") {
      a.bucket = number();
    } else if (key == "peer") {
      a.peer = rank_id{number()};
    } else if (key == "split") {
      a.split = json_field<bool>(json, key, path);
    } else if (key == "opportunistic") {
      a.opportunistic = json_field<bool>(json, key, path);
    } else if (key == "gradient") {
      a.gradient = json_field<bool>(json, key, path);
    } else if (key == "after") {
      for (const auto& earlier : detail::json_array(json, key, path)) {
        if (!detail::is_whole(earlier) || earlier.get<std::uint64_t>() > UINT32_MAX) {
          detail::refuse_json(path + ".after", "holds " + earlier.dump() + ", indices of earlier actions are needed");
        }
        a.after.push_back(earlier.get<std::uint32_t>());
      }
    } else {
      detail::refuse_json(path + '.' + key, "is not a field of an action");
    }
  }
  return a;
}

/// The program as a JSON object.
[[nodiscard]] inline nlohmann::json program_to_json(const program& actions) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& a : actions) list.push_back(action_to_json(a));
  return {{"format", "hetero.program"},
          {"version", 1},
          {"actions", std::move(list)},
          {"hash", to_hex(program_hash(actions))}};
}

/// The program that `program_to_json` wrote.
/// @throws error bad_file naming the key; also for a newer version or a hash that does not fit the content
[[nodiscard]] inline program program_from_json(const nlohmann::json& json) {
  using detail::json_field;
  if (const auto format = json_field<std::string>(json, "format", "program"); format != "hetero.program") {
    detail::refuse_json("program.format", "is \"" + format + "\", \"hetero.program\" is needed");
  }
  if (const auto version = json_field<std::uint32_t>(json, "version", "program"); version != 1) {
    detail::refuse_json("program.version", "is " + std::to_string(version) + "; this library reads version 1");
  }
  program actions;
  const auto& list = detail::json_array(json, "actions", "program");
  for (std::size_t i = 0; i < list.size(); ++i) {
    actions.push_back(action_from_json(list[i], "program.actions[" + std::to_string(i) + ']'));
  }
  const auto written = json_field<std::string>(json, "hash", "program");
  if (const auto computed = to_hex(program_hash(actions)); written != computed) {
    detail::refuse_json("program.hash", "is " + written + " but the content has " + computed +
                                            ": the program was changed after it was written");
  }
  return actions;
}

/// The program as text.
[[nodiscard]] inline std::string write_program(const program& actions) {
  return program_to_json(actions).dump(2) + '\n';
}

/// The program in `text`. @throws error bad_file, as `program_from_json`
[[nodiscard]] inline program read_program(std::string_view text) {
  return program_from_json(detail::parse_json(text, "the program"));
}

}  // namespace hetero
