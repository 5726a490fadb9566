# SPDX-License-Identifier: Apache-2.0
"""Runs benchmark programs one after another, each with --json, and gathers their lines in one file.

A program that fails does not stop the others, but the whole run then fails and says which.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gather", required=True, type=pathlib.Path, help="file to write all figures to")
    parser.add_argument("programs", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()

    failed = []
    lines = []
    with tempfile.TemporaryDirectory(prefix="hetero-bench-") as folder:
        for program in arguments.programs:
            figures = pathlib.Path(folder) / (program.name + ".jsonl")
            print(f"\n=== {program.name}", flush=True)
            started = time.monotonic()
            code = subprocess.run([str(program), "--json", str(figures)]).returncode
            print(f"=== {program.name}: exit {code} after {time.monotonic() - started:.1f} s", flush=True)
            if code != 0:
                failed.append(f"{program.name} ended with exit code {code}")
            if not figures.exists():
                failed.append(f"{program.name} wrote no figures")
                continue
            for line in figures.read_text().splitlines():
                if not line.strip():
                    continue
                try:
                    figure = json.loads(line)
                    figure["figure"], figure["value"], figure["unit"]
                except (ValueError, KeyError, TypeError) as why:
                    failed.append(f"{program.name} wrote a line that is no figure ({why!r}): {line[:120]}")
                    continue
                lines.append(json.dumps(figure))

    # Written whole or not at all: the figures of an earlier run stay until then.
    partial = arguments.gather.with_suffix(".partial")
    partial.write_text("".join(line + "\n" for line in lines))
    partial.replace(arguments.gather)
    met = [json.loads(line) for line in lines]
    print(f"\n{len(lines)} figures in {arguments.gather}; goals missed:")
    for figure in met:
        if figure.get("met") is False:
            print(f"  {figure['figure']}: {figure['value']} {figure['unit']}, goal {figure.get('goal')}")
    for text in failed:
        print("failed: " + text, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
