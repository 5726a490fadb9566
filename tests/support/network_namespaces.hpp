// SPDX-License-Identifier: Apache-2.0
// Hosts of a small network, made of network namespaces: a port each, its rate shaped, joined by a switch.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace hetero::test {

/// One network namespace per port, joined by a bridge in a namespace of its own, so that nothing of the machine's own
/// network changes. Each port has an IPv4 and an IPv6 address; loopback is up. Several ranks in one namespace are an
/// island: they talk over its loopback at full speed and share its port. Everything is removed by the destructor; what
/// a killed run leaves has a name of its own and disturbs nobody (`ip netns list | grep hetero-`). Move-only.
class network_namespaces {
 public:
  /// One port for each element of `rates_mbit`: Mbit/s each way, or 0 for no limit. Blocking.
  /// @throws std::runtime_error with what `ip` or `tc` said
  explicit network_namespaces(const std::vector<double>& rates_mbit) {
    static std::atomic<unsigned> instances{0};
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::string prefix = "hetero-" + std::to_string(::getpid()) + '-' + std::to_string(instances++) + '-' +
                               std::to_string(now.tv_sec % 100'000) + '-';
    try {
      const std::string bridge = add(prefix + "switch");
      for (std::size_t i = 0; i < rates_mbit.size(); ++i) add(prefix + std::to_string(i));
      run("ip -n " + bridge + " -batch -", "link add switch type bridge\nlink set switch up\n");
      for (std::size_t i = 0; i < rates_mbit.size(); ++i) {
        const std::string port = "port" + std::to_string(i);
        run("ip -n " + bridge + " -batch -", "link add " + port + " type veth peer name port netns " + name(i) +
                                                 "\nlink set " + port + " master switch up\n");
        run("ip -n " + name(i) + " -batch -", "link set lo up\naddr add " + address(i) + "/24 dev port\naddr add " +
                                                  address6(i) + "/64 dev port nodad\nlink set port up\n");
        if (rates_mbit[i] > 0) {
          run("tc -n " + name(i) + " -batch -", shaping("port", rates_mbit[i]));
          run("tc -n " + bridge + " -batch -", shaping(port, rates_mbit[i]));
        }
      }
    } catch (...) {
      remove();
      throw;
    }
  }
  network_namespaces(network_namespaces&& other) noexcept : names_{std::move(other.names_)} { other.names_.clear(); }
  network_namespaces& operator=(network_namespaces&&) = delete;
  ~network_namespaces() { remove(); }

  /// Why this user cannot make them, or nothing. Tries once per process.
  [[nodiscard]] static std::optional<std::string> unavailable() {
    static const std::optional<std::string> reason = []() -> std::optional<std::string> {
      if (::geteuid() != 0) return "network namespaces need root";
      try {
        const network_namespaces tried{{100, 0}};
      } catch (const std::exception& e) {
        return std::string{"network namespaces cannot be made here: "} + e.what();
      }
      return std::nullopt;
    }();
    return reason;
  }

  [[nodiscard]] std::size_t size() const noexcept { return names_.size() - 1; }
  [[nodiscard]] const std::string& name(std::size_t port) const { return names_.at(port + 1); }
  [[nodiscard]] std::string address(std::size_t port) const { return "10.213.0." + std::to_string(port + 1); }
  /// A unique local address, without brackets.
  [[nodiscard]] std::string address6(std::size_t port) const { return "fd68:6574:726f::" + std::to_string(port + 1); }
  /// The words before a command that shall run behind this port.
  [[nodiscard]] std::vector<std::string> exec(std::size_t port) const { return {"ip", "netns", "exec", name(port)}; }
  /// Changes the rate of a port that was made with one.
  /// @throws std::runtime_error with what `tc` said
  void set_rate(std::size_t port, double rate_mbit) {
    run("tc -n " + name(port) + " -batch -", shaping("port", rate_mbit));
    run("tc -n " + names_.front() + " -batch -", shaping("port" + std::to_string(port), rate_mbit));
  }

 private:
  const std::string& add(const std::string& name) {
    run("ip netns add " + name, "");
    return names_.emplace_back(name);
  }

  /// A burst of 2 ms and a queue of 50 ms: 95 % of the rate and more arrives as payload between 10 Mbit/s and 1 Gbit/s.
  static std::string shaping(const std::string& device, double rate_mbit) {
    const double burst_bytes = rate_mbit * 1e6 / 8 * 2e-3;
    return "qdisc replace dev " + device + " root tbf rate " +
           std::to_string(static_cast<std::uint64_t>(rate_mbit * 1e3)) + "kbit burst " +
           std::to_string(static_cast<std::uint64_t>(burst_bytes < 65536 ? 65536 : burst_bytes)) + "b latency 50ms\n";
  }

  static void run(const std::string& command, const std::string& input) {
    std::FILE* const pipe = ::popen((command + " 2>&1 <<'END'\n" + input + "END\n").c_str(), "re");
    if (pipe == nullptr) throw std::runtime_error{"cannot start '" + command + "'"};
    std::string said;
    for (char piece[512]; const std::size_t got = std::fread(piece, 1, sizeof piece, pipe);) said.append(piece, got);
    const int status = ::pclose(pipe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error{"'" + command + "' says: " + said};
  }

  void remove() noexcept {
    for (; !names_.empty(); names_.pop_back()) {
      try {
        run("ip netns del " + names_.back(), "");
      } catch (const std::exception& e) {
        std::fprintf(stderr, "left behind: %s\n", e.what());
      }
    }
  }

  std::vector<std::string> names_;  // the switch, then the ports
};

}  // namespace hetero::test
