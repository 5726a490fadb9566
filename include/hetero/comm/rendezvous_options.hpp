// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace hetero {

/// How one process finds the others. All ranks pass equal values except `rank`, `host_id` and `on_listening`; what rank
/// 0 passes as `streams` and `local_streams` counts for all.
struct rendezvous_options {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::string host = "127.0.0.1";    ///< where rank 0 listens: a name or an address, IPv6 with or without brackets
  std::vector<std::uint16_t> ports;  ///< rank 0 takes the first free one; 0 lets the system choose
  std::string port_file;             ///< rank 0 writes its address there, the others read it instead of `ports`
  std::string job;                   ///< ranks of another job are sent away
  std::string settings;              ///< printable; ranks that differ are an error on every rank
  std::chrono::milliseconds timeout{30'000};        ///< until every rank must be there
  bool allow_unauthenticated = false;               ///< permits an address that other machines reach
  std::uint32_t streams = 2;                        ///< connections between two ranks of different hosts
  std::uint32_t local_streams = 1;                  ///< connections between two ranks of one host
  bool shared_memory = true;                        ///< ranks of one host exchange messages through memory
  std::uint64_t host_id = 0;                        ///< names the memory this rank can share; 0 asks the system
  std::function<void(std::uint16_t)> on_listening;  ///< rank 0 publishes its port here, once
};

}  // namespace hetero
