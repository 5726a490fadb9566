# SPDX-License-Identifier: Apache-2.0
"""Writes measured figures into README.md and docs/performance.md from the lines of figures.jsonl.

    python3 docs/figures.py build/bench/figures.jsonl

A page asks for one value by `<!-- figure: NAME -->...<!-- /figure -->` and for a table by `<!-- figures: PREFIX -->` and
`<!-- /figures -->` on lines of their own; what stands between is replaced. A figure that is not in the file keeps what it
says now, so a value is never invented and never silently dropped.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONE = re.compile(r"(<!-- figure: (\S+) -->)(.*?)(<!-- /figure -->)")
TABLE = re.compile(r"(^<!-- figures: (\S+) -->\n)(.*?)(^<!-- /figures -->)", re.MULTILINE | re.DOTALL)


def number(value, unit):
    if value is None:
        return "not measured"
    text = f"{value:.4g}"
    return text if unit == "ratio" else f"{text} {unit}"


def cell(text):
    return str(text).replace("|", "/").replace("\n", " ")


def row(figure):
    unit = figure["unit"]
    goal = "" if figure.get("goal") is None else f'{figure.get("direction", "at least")} {number(figure["goal"], unit)}'
    met = {True: "yes", False: "no", None: ""}[figure.get("met")]
    spread = " / ".join(f"{value:.4g}" for value in figure.get("spread") or [])
    note = "; ".join(part for part in (figure.get("peer"), figure.get("note"), "noisy" if figure.get("noisy") else "") if part)
    cells = [f'`{figure["figure"]}`', number(figure["value"], unit), goal, met, figure.get("runs", 1), spread, note]
    return "| " + " | ".join(cell(c) for c in cells) + " |\n"


def table(figures, old):
    if not figures:
        return old
    head = "| figure | value | goal | met | runs | min / median / max | compared with, notes |\n|---|---|---|---|---|---|---|\n"
    machines = sorted({figure["machine"] for figure in figures if figure.get("machine")})
    return "\n" + head + "".join(map(row, figures)) + "\n" + "".join(f"Measured on {machine}.\n" for machine in machines) + "\n"


def main():
    figures = [json.loads(line) for line in pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").splitlines() if line.strip()]
    by_name = {figure["figure"]: figure for figure in figures}
    for page in (ROOT / "README.md", ROOT / "docs" / "performance.md"):
        old = page.read_text(encoding="utf-8")
        missing = []

        def one(match):
            figure = by_name.get(match.group(2))
            if figure is None:
                missing.append(match.group(2))
                return match.group(0)
            return match.group(1) + number(figure["value"], figure["unit"]) + match.group(4)

        def many(match):
            chosen = [figure for figure in figures if figure["figure"].startswith(match.group(2))]
            if not chosen:
                missing.append(match.group(2))
            return match.group(1) + table(chosen, match.group(3)) + match.group(4)

        new = TABLE.sub(many, ONE.sub(one, old))
        if new != old:
            page.write_text(new, encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {'rewritten' if new != old else 'unchanged'}")
        for name in missing:
            print(f"  not in the file, kept as it is: {name}")


if __name__ == "__main__":
    main()
