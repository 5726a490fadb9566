# SPDX-License-Identifier: Apache-2.0
"""Keeps the C++ that README and docs show equal to code that is compiled and run.

    docs.py SOURCE_DIR            fails on a ```cpp block that differs from its source, or has none
    docs.py SOURCE_DIR --fix      writes the blocks anew from the sources
    docs.py SOURCE_DIR --control  proves that drift and unmarked blocks are found

A block is preceded by a line `<!-- snippet: FILE#NAME -->`; its text is what stands in tests/docs/FILE between the
lines `// [NAME]` and `// [NAME]`, less the common indentation. `<!-- snippet: FILE -->` is the whole file but its
licence line. Relative links must also point at something.
"""
import pathlib
import re
import sys
import tempfile
import textwrap

BLOCK = re.compile(r"^```(?:cpp|c\+\+|C\+\+|cxx)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
MARKER = re.compile(r"<!--\s*snippet:\s*([\w./-]+)(?:#([\w-]+))?\s*-->\s*\Z")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def snippet(root, file, name):
    path = root / "tests" / "docs" / file
    if not path.is_file():
        raise LookupError(f"tests/docs/{file} does not exist")
    text = path.read_text(encoding="utf-8")
    if name is None:
        text = re.sub(r"\A// SPDX[^\n]*\n", "", text)
        # Lines that speak to the reader of the test, not of the page.
        text = re.sub(r"^// docs: [^\n]*\n", "", text, flags=re.MULTILINE)
        return text.strip("\n") + "\n"
    parts = re.split(rf"^[ \t]*// \[{re.escape(name)}\][ \t]*\n", text, flags=re.MULTILINE)
    if len(parts) != 3:
        raise LookupError(f"tests/docs/{file} has {len(parts) - 1} lines `// [{name}]`, not two")
    return textwrap.dedent(parts[1]).strip("\n") + "\n"


def pages(root):
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def check(root, fix=False):
    found = []
    blocks = 0
    for page in pages(root):
        if not page.is_file():
            continue
        text = page.read_text(encoding="utf-8")
        name = page.relative_to(root)
        pieces = []
        end = 0
        for block in BLOCK.finditer(text):
            blocks += 1
            line = text.count("\n", 0, block.start()) + 1
            marker = MARKER.search(text, 0, block.start())
            wanted = block.group(1)
            if marker is None:
                found.append(f"{name}:{line}: a C++ block without a line `<!-- snippet: FILE#NAME -->` above it")
            else:
                try:
                    wanted = snippet(root, marker.group(1), marker.group(2))
                except LookupError as why:
                    found.append(f"{name}:{line}: {why}")
                if wanted != block.group(1) and not fix:
                    found.append(f"{name}:{line}: differs from tests/docs/{marker.group(1)}; run docs.py . --fix")
            pieces += [text[end:block.start(1)], wanted]
            end = block.end(1)
        pieces.append(text[end:])
        if fix and "".join(pieces) != text:
            page.write_text("".join(pieces), encoding="utf-8")
            print(f"rewrote {name}")
        prose = re.sub(r"^```.*?^```\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
        for link in LINK.finditer(prose):
            if not (page.parent / link.group(1)).exists():
                found.append(f"{name}: links to {link.group(1)}, which does not exist")
    print(f"{blocks} C++ blocks checked")
    return found


def control():
    source = "// SPDX\nint main() {\n  // [part]\n  int x = 1;\n  // [part]\n}\n"
    good = "<!-- snippet: a.cpp#part -->\n```cpp\nint x = 1;\n```\n"
    cases = {
        "drift": (good.replace("= 1", "= 2"), "differs"),
        "unmarked": ("Text.\n\n```cpp\nint x = 1;\n```\n", "without a line"),
        "marker_too_far": ("<!-- snippet: a.cpp#part -->\nText.\n```cpp\nint x = 1;\n```\n", "without a line"),
        "no_such_file": (good.replace("a.cpp", "b.cpp"), "does not exist"),
        "no_such_name": (good.replace("#part", "#other"), "not two"),
        "dead_link": (good + "[see](nowhere.md)\n", "nowhere.md"),
    }
    failures = []
    with tempfile.TemporaryDirectory(prefix="hetero-docs-") as folder:
        root = pathlib.Path(folder)
        (root / "tests/docs").mkdir(parents=True)
        (root / "tests/docs/a.cpp").write_text(source)
        readme = root / "README.md"
        readme.write_text(good)
        failures += [f"right, but reported: {line}" for line in check(root)]
        for name, (text, reason) in cases.items():
            readme.write_text(text)
            if not any(reason in line for line in check(root)):
                failures.append(f"{name}: not found")
        readme.write_text(cases["drift"][0])
        check(root, fix=True)
        if readme.read_text() != good:
            failures.append("--fix did not restore the block")
    return failures


def main():
    root = pathlib.Path(sys.argv[1])
    found = control() if "--control" in sys.argv[2:] else check(root, fix="--fix" in sys.argv[2:])
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
