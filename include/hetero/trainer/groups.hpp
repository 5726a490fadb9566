// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>

#include <hetero/core/error.hpp>
#include <hetero/model/parameter.hpp>

namespace hetero {

/// Communicator groups that layers may talk to, by name. Owns its handles, one per group, used on the trainer's thread.
template <class World>
class named_groups {
 public:
  /// Adds or replaces a group, usually made by `world.split`.
  void set(parallel_group name, World group) { groups_.insert_or_assign(name, std::move(group)); }

  /// @throws error unsupported when the group was never set
  [[nodiscard]] World& get(parallel_group name) {
    const auto found = groups_.find(name);
    require(found != groups_.end(), errc::unsupported, [&] {
      return "a layer asked for communicator group " + std::to_string(static_cast<int>(name)) +
             ", which this trainer was not given; set it with trainer.groups().set(name, world.split(...))";
    });
    return found->second;
  }

 private:
  std::map<parallel_group, World> groups_;
};

}  // namespace hetero
