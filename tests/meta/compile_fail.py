# SPDX-License-Identifier: Apache-2.0
"""Proves that a piece of code is refused by the compiler, for the reason we mean.

    compile_fail.py CASE.cpp -- COMPILER FLAG...

The case holds `// expect: REGEX` (one or more lines, each must match a line of the compiler's errors), and code that
differs by `#ifdef HETERO_CONTROL`: with it the file must compile, so that the failure without it is not a typing error.
"""
import pathlib
import re
import subprocess
import sys


def compile_once(command, case, control):
    extra = ["-DHETERO_CONTROL"] if control else []
    return subprocess.run(command + extra + ["-fsyntax-only", str(case)], capture_output=True, text=True, timeout=120,
                          stdin=subprocess.DEVNULL)


def check(case, command):
    text = case.read_text(encoding="utf-8")
    expected = re.findall(r"^// expect: (.+)$", text, re.MULTILINE)
    if not expected:
        return [f"{case.name} has no line `// expect: REGEX`"]
    if "HETERO_CONTROL" not in text:
        return [f"{case.name} has no branch for HETERO_CONTROL"]
    problems = []
    control = compile_once(command, case, True)
    if control.returncode != 0:
        problems.append("the control does not compile:\n" + control.stderr)
    refused = compile_once(command, case, False)
    if refused.returncode == 0:
        problems.append("it compiles, but must be refused")
    else:
        for pattern in expected:
            if not re.search(pattern, refused.stderr):
                problems.append(f"refused, but not for this reason: {pattern}\n{refused.stderr}")
    return problems


def main():
    case = pathlib.Path(sys.argv[1])
    command = sys.argv[sys.argv.index("--") + 1:]
    problems = check(case, command)
    for problem in problems:
        print(f"{case.name}: {problem}")
    if not problems:
        print(f"{case.name}: refused as expected, and its control compiles")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
