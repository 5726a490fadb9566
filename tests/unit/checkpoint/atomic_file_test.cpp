// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <hetero/checkpoint/atomic_file.hpp>

#include "support/catch.hpp"
#include "support/temp_dir.hpp"

using namespace hetero;

namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

void put(const std::filesystem::path& path, const std::string& text) { std::ofstream{path, std::ios::binary} << text; }

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{folder}, {}));
}

/// Runs `action` in a child process, where limits and mounts harm nobody, and returns the text it gives; "killed" when
/// a signal ended it.
std::string in_child(const std::function<std::string()>& action) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::close(ends[0]);
    std::string text;
    try {
      text = action();
    } catch (const std::exception& e) {
      text = e.what();
    }
    const bool told = ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char piece[512];
  for (ssize_t got = 0; (got = ::read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? "killed" : text;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const error& e) {
    CHECK(e.code() == errc::io);
    return e.message();
  }
  return "nothing was thrown";
}

const std::string old_text = "the previous checkpoint";

}  // namespace

TEST_CASE("atomic file: appears on commit, whole, and nothing else stays") {
  test::temp_dir dir{"atomic"};
  const auto path = dir / "file";
  {
    atomic_file file{path.string()};
    file.write("hello ");
    file.write("world");
    CHECK(file.size() == 11);
    file.rewrite(std::as_bytes(std::span{"J", 1}), 0);
    CHECK_FALSE(std::filesystem::exists(path));
    file.commit();
    CHECK(content_of(path) == "Jello world");
    REQUIRE_THROWS_WITH(file.commit(), ContainsSubstring("committed"));
    REQUIRE_THROWS_WITH(file.write("more"), ContainsSubstring("committed"));
  }
  CHECK(files_in(dir.path()) == 1);
  write_atomically(path.string(), std::as_bytes(std::span{old_text}));
  CHECK(content_of(path) == old_text);
  CHECK(files_in(dir.path()) == 1);
}

TEST_CASE("atomic file: without commit the old file stays and the new one goes") {
  test::temp_dir dir{"atomic"};
  put(dir / "file", old_text);
  {
    atomic_file file{(dir / "file").string()};
    file.write("half of a new one");
    CHECK(files_in(dir.path()) == 2);
  }
  CHECK(content_of(dir / "file") == old_text);
  CHECK(files_in(dir.path()) == 1);
}

TEST_CASE("atomic file: two writers of one path do not mix") {
  test::temp_dir dir{"atomic"};
  atomic_file a{(dir / "file").string()};
  atomic_file b{(dir / "file").string()};
  a.write("aaaa");
  b.write("bb");
  b.commit();
  a.commit();
  CHECK(content_of(dir / "file") == "aaaa");
  CHECK(files_in(dir.path()) == 1);
}

TEST_CASE("atomic file: the file behind a link is replaced, and its permissions stay") {
  test::temp_dir dir{"atomic"};
  std::filesystem::create_directory(dir / "store");
  put(dir / "store/real", old_text);
  std::filesystem::permissions(dir / "store/real", std::filesystem::perms{0640});
  std::filesystem::create_symlink("store/real", dir / "link");
  write_atomically((dir / "link").string(), std::as_bytes(std::span{"new", 3}));
  CHECK(std::filesystem::is_symlink(dir / "link"));
  CHECK(content_of(dir / "store/real") == "new");
  CHECK(std::filesystem::status(dir / "store/real").permissions() == std::filesystem::perms{0640});
}

TEST_CASE("atomic file: places that cannot be written are refused at once") {
  test::temp_dir dir{"atomic"};
  const std::string folder = dir.path().string();
  put(dir / "plain", old_text);
  CHECK_THAT(message_of([&] { preflight_output(folder + "/none/file"); }),
             ContainsSubstring("create its folder first"));
  CHECK_THAT(message_of([&] { preflight_output(folder + "/plain/file"); }),
             ContainsSubstring("create its folder first"));
  CHECK_THAT(message_of([&] { preflight_output(folder); }), ContainsSubstring("is a folder"));
  CHECK_THAT(message_of([&] { preflight_output(folder + "/"); }), ContainsSubstring("is a folder"));
  CHECK_THAT(message_of([&] { preflight_output(folder + "/new/"); }), ContainsSubstring("names a folder"));
  CHECK_THAT(message_of([&] { preflight_output(""); }), ContainsSubstring("empty path"));
  CHECK_THAT(message_of([&] { preflight_output("/dev/full"); }), ContainsSubstring("not a regular file"));
  CHECK(std::filesystem::is_character_file("/dev/full"));  // it was not replaced, even for root
  CHECK_THAT(message_of([&] { preflight_output(folder + "/plain", std::uint64_t{1} << 60U); }),
             ContainsSubstring("free"));
  CHECK(message_of([&] { preflight_output(folder + "/plain", 10); }) == "nothing was thrown");  // control
  CHECK(message_of([&] { preflight_output(folder + "/fresh"); }) == "nothing was thrown");
  CHECK(files_in(dir.path()) == 1);
  CHECK(content_of(dir / "plain") == old_text);
  if (::geteuid() != 0) {  // root may write everywhere
    std::filesystem::permissions(dir.path(), std::filesystem::perms{0500});
    CHECK_THAT(message_of([&] { preflight_output(folder + "/fresh"); }), ContainsSubstring("this user may write"));
    std::filesystem::permissions(dir.path(), std::filesystem::perms{0700});
  }
}

TEST_CASE("atomic file: a limit on file size in the middle of a write leaves the old file and nothing else") {
  test::temp_dir dir{"atomic"};
  put(dir / "file", old_text);
  const std::string said = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8192, 8192};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    atomic_file file{(dir / "file").string()};
    file.write(std::string(100'000, 'x'));
    file.commit();
    return std::string{"it went through"};
  });
  CHECK_THAT(said, ContainsSubstring("io: writing") && ContainsSubstring("size limit") &&
                       ContainsSubstring("previous file is unchanged"));
  CHECK(content_of(dir / "file") == old_text);
  CHECK(files_in(dir.path()) == 1);
}

TEST_CASE("atomic file: a full disk leaves the old file and nothing else") {
  test::temp_dir dir{"atomic"};
  const std::string said = in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return "no mounts here";
    (void)::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr);  // what is mounted here stays in this process
    if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) return "no mounts here";
    put(dir / "file", old_text);
    std::string text;
    try {
      atomic_file file{(dir / "file").string()};
      for (int i = 0; i < 100; ++i) file.write(std::string(4096, 'x'));
      file.commit();
      text = "it went through";
    } catch (const error& e) {
      text = e.what();
    }
    text += content_of(dir / "file") == old_text && files_in(dir.path()) == 1 ? " | kept" : " | lost";
    write_atomically((dir / "file").string(), std::as_bytes(std::span{"small", 5}));  // control: what fits is written
    return text + (content_of(dir / "file") == "small" ? " | written" : " | not written");
  });
  if (said == "no mounts here") {
    WARN("this process may not mount a small file system: a full disk was not tried");
    return;
  }
  CHECK_THAT(said, ContainsSubstring("No space left") && ContainsSubstring("another disk") &&
                       ContainsSubstring("previous file is unchanged") && ContainsSubstring("| kept | written"));
}

TEST_CASE("atomic file: kill -9 in the middle of a write leaves the old file, and the next write works") {
  test::temp_dir dir{"atomic"};
  put(dir / "file", old_text);
  const std::string said = in_child([&] {
    atomic_file file{(dir / "file").string()};
    file.write("half");
    ::raise(SIGKILL);
    return std::string{};
  });
  CHECK(said == "killed");
  CHECK(content_of(dir / "file") == old_text);
  write_atomically((dir / "file").string(), std::as_bytes(std::span{"new", 3}));
  CHECK(content_of(dir / "file") == "new");
}
