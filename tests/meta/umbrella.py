# SPDX-License-Identifier: Apache-2.0
"""Writes two source files that include every header, to be linked into one program.

    umbrella.py INCLUDE_DIR FORWARD.cpp REVERSE.cpp [FOLDER_LEFT_OUT...]

A function that lacks `inline` is then defined twice. The second file includes the headers in the opposite order, after
defining the short names that system headers are known to define as macros (`I` of complex.h, `major` of
sys/sysmacros.h, `small` of Windows): a header that uses one as a name does not compile there. What the headers include
from elsewhere comes before those definitions.
"""
import pathlib
import re
import sys

POISON = ["I", "small", "major", "minor"]


def write_if_changed(path, text):
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main():
    include_dir, forward, reverse = (pathlib.Path(argument) for argument in sys.argv[1:4])
    left_out = {include_dir / "hetero" / name for name in sys.argv[4:]}
    headers = sorted(str(path.relative_to(include_dir)) for path in (include_dir / "hetero").rglob("*.hpp")
                     if path.parent not in left_out)
    foreign = set()
    for header in headers:
        text = (include_dir / header).read_text(encoding="utf-8")
        foreign |= {name for name in re.findall(r"^\s*#\s*include\s*<([^>]+)>", text, re.MULTILINE)
                    if not name.startswith("hetero/")}
    # <utility> first: Asio of Boost 1.74 uses std::exchange without including it.
    lines = ["#include <utility>"]
    lines += [f"#if __has_include(<{name}>)\n#include <{name}>\n#endif" for name in sorted(foreign)]
    lines += [f"#undef {name}\n#define {name} @ poisoned by tests/meta/umbrella.py @" for name in POISON]
    lines += [f"#include <{header}>" for header in reversed(headers)]
    lines += ["int main() { return 0; }"]
    write_if_changed(reverse, "\n".join(lines) + "\n")
    write_if_changed(forward, "".join(f"#include <{header}>\n" for header in headers))


if __name__ == "__main__":
    main()
