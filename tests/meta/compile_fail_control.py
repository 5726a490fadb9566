# SPDX-License-Identifier: Apache-2.0
"""The negative control of compile_fail.py: cases that it must not accept."""
import pathlib
import sys
import tempfile

import compile_fail

BROKEN = {
    "compiles": ("// expect: anything\n#ifdef HETERO_CONTROL\n#endif\nint x;\n", "it compiles"),
    "other_reason": ("// expect: words that no compiler says\n#ifndef HETERO_CONTROL\nint x = ;\n#endif\n",
                     "not for this reason"),
    "broken_control": ("// expect: error\n#ifdef HETERO_CONTROL\nint y = ;\n#endif\nint x = ;\n", "control does not compile"),
    "no_expectation": ("#ifndef HETERO_CONTROL\nint x = ;\n#endif\n", "has no line"),
    "no_control": ("// expect: error\nint x = ;\n", "has no branch"),
}


def main():
    command = sys.argv[sys.argv.index("--") + 1:]
    failures = 0
    with tempfile.TemporaryDirectory(prefix="hetero-compile-fail-") as folder:
        for name, (text, reason) in BROKEN.items():
            case = pathlib.Path(folder) / f"{name}.cpp"
            case.write_text(text, encoding="utf-8")
            problems = compile_fail.check(case, command)
            if not any(reason in problem for problem in problems):
                print(f"{name}: accepted or for another reason: {problems}")
                failures += 1
    print(f"{len(BROKEN)} broken cases, {failures} of them accepted")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
