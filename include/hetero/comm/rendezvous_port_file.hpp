// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <hetero/comm/rendezvous_address.hpp>
#include <hetero/comm/rendezvous_host.hpp>
#include <hetero/core/error.hpp>
#include <hetero/core/hash.hpp>

namespace hetero::detail {

/// What rank 0 writes into the port file: a line "host:port" for each way to it, then "run " and a number that no other
/// run has. A file that an earlier run left behind may name a port that somebody else has now; that one knows another
/// number and sends whoever asks away.
struct port_file {
  struct place {
    std::string host;
    std::uint16_t port = 0;
    bool operator==(const place&) const = default;
  };
  std::vector<place> places;
  std::string run;

  bool operator==(const port_file&) const = default;

  /// Nothing when the file is not there, or is no port file.
  [[nodiscard]] static std::optional<port_file> read(const std::string& path) {
    constexpr std::size_t most_lines = 64;
    std::ifstream in{path};
    port_file found;
    for (std::string line; found.places.size() < most_lines && std::getline(in, line);) {
      if (line.starts_with("run ")) {
        found.run = line.substr(4);
        return found.places.empty() ? std::nullopt : std::optional{found};
      }
      const std::size_t colon = line.rfind(':');
      std::uint32_t port = 0;
      if (colon == std::string::npos || colon == 0) return std::nullopt;
      const char* const end = line.data() + line.size();
      const auto [stop, ec] = std::from_chars(line.data() + colon + 1, end, port);
      if (ec != std::errc{} || stop != end || port == 0 || port > 65535) return std::nullopt;
      found.places.push_back({line.substr(0, colon), static_cast<std::uint16_t>(port)});
    }
    return std::nullopt;
  }

  /// The job's name as ranks that came through this file tell it.
  [[nodiscard]] std::string job(const std::string& name) const { return name + " [run " + run + ']'; }
};

/// The port file of this process: appears whole, and goes with the object unless another run has replaced it.
class published_port {
 public:
  /// @throws error io when it cannot be written
  published_port(std::string path, const port_file& content) : path_{std::move(path)}, run_{content.run} {
    const std::string draft = path_ + '.' + run_;
    {
      std::ofstream out{draft};
      for (const auto& p : content.places) out << endpoint_text(p.host, p.port) << '\n';
      out << "run " << run_ << '\n';
    }
    std::error_code ec;
    std::filesystem::rename(draft, path_, ec);
    if (!ec) return;
    std::error_code ignored;
    std::filesystem::remove(draft, ignored);
    throw error{errc::io,
                "rank 0 cannot write the port file '" + path_ + "' (" + ec.message() +
                    "); set HETERO_PORT_FILE to a file in a folder that rank 0 may write and every rank sees",
                {rank_id{0}, {}}};
  }
  published_port(const published_port&) = delete;
  published_port& operator=(const published_port&) = delete;
  ~published_port() {
    std::error_code ignored;
    const auto found = port_file::read(path_);
    if (found && found->run == run_) std::filesystem::remove(path_, ignored);
  }

 private:
  std::string path_;
  std::string run_;
};

/// Where rank 0 can be reached: the address everybody was told and, where other machines may come, every address of
/// this host that a network gave it.
[[nodiscard]] inline std::vector<port_file::place> places_of_leader(const std::string& host, std::uint16_t port,
                                                                    bool open_to_others) {
  std::vector<port_file::place> places{{host, port}};
  if (!open_to_others) return places;
  for (const interface_address& i : interface_addresses()) {
    const bool local = i.address.is_loopback() || (i.address.is_v6() && i.address.to_v6().is_link_local());
    const port_file::place place{i.address.to_string(), port};
    if (!local && place.host != host) places.push_back(place);
  }
  return places;
}

}  // namespace hetero::detail
