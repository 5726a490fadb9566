// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

/// What machine this is, and how busy other processes keep it. Linux only, like the figures themselves.
namespace hetero::bench {

/// Share of all cores that other processes may use before a figure is refused.
inline constexpr double quiet_share = 0.05;

/// Cores this process may run on.
[[nodiscard]] inline unsigned usable_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return std::max(1U, std::thread::hardware_concurrency());
  return static_cast<unsigned>(CPU_COUNT(&set));
}

/// One line such as "AMD EPYC 7763, 2 cores, 24 GiB".
[[nodiscard]] inline std::string describe_machine() {
  static const std::string text = [] {
    std::string model = "unknown CPU";
    std::ifstream cpuinfo{"/proc/cpuinfo"};
    for (std::string line; std::getline(cpuinfo, line);)
      if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
        model = line.substr(line.find(": ") + 2);
        break;
      }
    std::string isa;
#if defined(__x86_64__)
    isa = __builtin_cpu_supports("avx512f") ? " (AVX-512)" : __builtin_cpu_supports("avx2") ? " (AVX2)" : " (SSE2)";
#endif
    const auto memory_bytes =
        static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGE_SIZE));
    return model + isa + ", " + std::to_string(usable_cores()) + " cores, " +
           std::to_string(static_cast<int>(memory_bytes / (1 << 30) + 0.5)) + " GiB";
  }();
  return text;
}

/// Highest resident memory of this process so far, in bytes.
[[nodiscard]] inline double peak_resident_bytes() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;  // Linux counts KiB
}

namespace detail {

/// Seconds all cores together spent on processes, or were withheld by the hypervisor. Interrupt time is left out: the
/// network traffic of a benchmark causes some that belongs to no process.
[[nodiscard]] inline double machine_busy_s() {
  std::ifstream stat{"/proc/stat"};
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  stat >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  return (user + nice + system + steal) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct process_times {
  int parent = 0;
  double seconds = 0;  ///< own and reaped children's, user and system
};

[[nodiscard]] inline process_times read_process(int pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  const auto name_end = text.rfind(')');  // the name before it may contain blanks
  if (name_end == std::string::npos) return {};
  std::istringstream fields{text.substr(name_end + 1)};
  char state = 0;
  process_times result;
  fields >> state >> result.parent;
  std::string skipped;
  for (int field = 5; field <= 13; ++field) fields >> skipped;
  double own_user = 0, own_system = 0, reaped_user = 0, reaped_system = 0;
  fields >> own_user >> own_system >> reaped_user >> reaped_system;
  result.seconds = (own_user + own_system + reaped_user + reaped_system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  return result;
}

/// CPU seconds of this process, of the children it reaped and of all its living descendants.
[[nodiscard]] inline double family_busy_s() {
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    ::getrusage(who, &usage);
    total += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  std::vector<std::pair<int, process_times>> others;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc", ignored}) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      const int pid = std::stoi(name);
      others.emplace_back(pid, read_process(pid));
    }
  }
  std::set<int> family{static_cast<int>(::getpid())};
  for (bool grown = true; grown;) {
    grown = false;
    for (const auto& [pid, times] : others)
      if (family.contains(times.parent) && family.insert(pid).second) {
        total += times.seconds;
        grown = true;
      }
  }
  return total;
}

}  // namespace detail

/// Measures from its construction on which share of all cores other processes used; a second or more gives a figure
/// that is good to about 2 %, since the kernel counts in ticks of 10 ms.
class foreign_load {
 public:
  foreign_load()
      : start_{std::chrono::steady_clock::now()},
        machine_s_{detail::machine_busy_s()},
        family_s_{detail::family_busy_s()} {}

  /// Share in [0, 1] of all cores, averaged since construction. Blocks until the window is a second long: over less,
  /// one tick of the kernel's clock would already look like noise.
  [[nodiscard]] double share() const {
    std::this_thread::sleep_until(start_ + std::chrono::seconds{1});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const double machine_s = detail::machine_busy_s() - machine_s_;
    const double family_s = detail::family_busy_s() - family_s_;
    const double available_s = elapsed.count() * static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
    return std::clamp((machine_s - family_s) / available_s, 0.0, 1.0);
  }

 private:
  std::chrono::steady_clock::time_point start_;
  double machine_s_, family_s_;
};

/// Share of all cores that other processes use, over a window of one second. Blocking.
[[nodiscard]] inline double foreign_share_now() { return foreign_load{}.share(); }

/// Blocks until other processes use at most `quiet_share` of the cores over a second, or `deadline` has passed; returns
/// whether it is quiet. Looks at least once.
inline bool wait_until_quiet(std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    if (foreign_share_now() <= quiet_share) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

}  // namespace hetero::bench
