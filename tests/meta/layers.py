# SPDX-License-Identifier: Apache-2.0
"""Checks which way the rooms of include/hetero look, and what only some files may include.

    layers.py INCLUDE_DIR            every finding is one line; exit code 1 if there is any
    layers.py INCLUDE_DIR --control  copies the tree, plants one violation of each rule, and fails unless each is found
"""
import pathlib
import re
import shutil
import sys
import tempfile

# Rooms of one line do not see each other; a room sees the lines above its own.
ORDER = [
    ["core"],
    ["device"],
    ["comm", "model"],
    ["plan"],
    ["partition", "schedule", "data", "optim"],
    ["shard", "sync"],
    ["checkpoint", "report"],
    ["predict"],
    ["planner"],
    ["trainer"],
    ["recipe"],
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
LEAF_SEES = {"core", "device", "comm"}  # cuda/, nccl/, mpi/, ...: folders that may name their vendor
LONGEST = 500
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
VENDOR = re.compile(r"^(cuda|nccl|cub/|thrust/|hip/|rocblas|mpi\.h|torch/)")


def room_of(relative):
    """The room of a path below include/hetero. A header that stands directly there (trainer.hpp) is the room it opens."""
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def findings(include_dir):
    base = include_dir / "hetero"
    found = []
    headers = sorted(path for path in base.rglob("*") if path.suffix in (".hpp", ".cuh"))
    if not headers:
        return [f"{base}: no headers found, nothing was checked"]
    for path in headers:
        relative = path.relative_to(base)
        name = str(relative)
        room = room_of(relative)
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n") + 1
        if lines > LONGEST:
            found.append(f"{name}: {lines} lines; {LONGEST} is the end, split it by idea")
        if not text.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
            found.append(f"{name}:1: the first line is not the licence identifier")
        if not re.search(r"^#pragma once$", text, re.MULTILINE):
            found.append(f"{name}: no #pragma once")
        leaf = room not in LEVEL
        for match in INCLUDE.finditer(text):
            quote, target = match.groups()
            line = text.count("\n", 0, match.start()) + 1
            where = f"{name}:{line}: includes {target}"
            if quote == '"':
                found.append(f"{where} in quotes; write <hetero/...>")
            elif target.startswith("hetero/"):
                seen = pathlib.PurePosixPath(target).relative_to("hetero")
                other = room_of(seen)
                if not (base / seen).is_file():
                    found.append(f"{where}, which does not exist")
                if other == room:
                    continue
                if leaf:
                    if other not in LEAF_SEES:
                        found.append(f"{where}: the leaf {room}/ may see only {', '.join(sorted(LEAF_SEES))}")
                elif other not in LEVEL:
                    if room != "recipe":
                        found.append(f"{where}: only recipe/ and users name the leaf {other}/")
                elif LEVEL[other] >= LEVEL[room]:
                    found.append(f"{where}: {room}/ is not above {other}/")
            elif target.startswith("nlohmann/"):
                if not name.endswith("_json.hpp"):
                    found.append(f"{where}: JSON lives in *_json.hpp")
            elif target.startswith("boost/asio"):
                if not re.match(r"comm/(tcp|rendezvous)", name):
                    found.append(f"{where}: Asio lives in comm/tcp* and comm/rendezvous*")
            elif VENDOR.match(target) and not leaf:
                found.append(f"{where}: only a leaf names its vendor")
    return found + door_findings(base)


def reached_from(base, header):
    """Every include that a header reaches through headers of hetero, with the hetero header that names it."""
    reached, waiting = {}, [header]
    while waiting:
        current = waiting.pop()
        if not (base / current).is_file():
            continue
        for _, target in INCLUDE.findall((base / current).read_text(encoding="utf-8")):
            if target not in reached:
                reached[target] = current
                if target.startswith("hetero/"):
                    waiting.append(target.removeprefix("hetero/"))
    return reached


def door_findings(base):
    return [f"trainer.hpp reaches {target} through {through}: the door includes no JSON"
            for target, through in reached_from(base, "trainer.hpp").items() if target.startswith("nlohmann/")]


def control(include_dir):
    plants = {
        "core/planted_upward.hpp": ("#include <hetero/device/planted.hpp>", "core/ is not above device/"),
        "device/planted.hpp": ("", None),
        "comm/planted_sideways.hpp": ("#include <hetero/model/planted.hpp>", "comm/ is not above model/"),
        "model/planted.hpp": ("", None),
        "optim/planted_json.hpp.hpp": ("#include <nlohmann/json.hpp>", "JSON lives in"),
        "comm/planted_asio.hpp": ("#include <boost/asio.hpp>", "Asio lives in"),
        "device/planted_vendor.hpp": ("#include <cuda_runtime.h>", "only a leaf names its vendor"),
        "vendor/planted_leaf.hpp": ("#include <hetero/plan/planted.hpp>", "the leaf vendor/ may see only"),
        "plan/planted.hpp": ("", None),
        "trainer/planted_names_leaf.hpp": ("#include <hetero/vendor/planted_leaf.hpp>", "name the leaf vendor/"),
        "core/planted_missing.hpp": ("#include <hetero/core/planted_nowhere.hpp>", "does not exist"),
        "core/planted_quotes.hpp": ('#include "planted_missing.hpp"', "in quotes"),
        "core/planted_long.hpp": ("\n" * LONGEST, "is the end"),
    }
    head = "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n"
    missed = []
    with tempfile.TemporaryDirectory(prefix="hetero-layers-") as folder:
        copy = pathlib.Path(folder) / "include"
        shutil.copytree(include_dir, copy)
        for name, (line, _) in plants.items():
            path = copy / "hetero" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(head + line + "\n", encoding="utf-8")
        (copy / "hetero/optim/planted_json.hpp").write_text(head + "#include <nlohmann/json.hpp>\n", encoding="utf-8")
        with open(copy / "hetero/trainer.hpp", "a", encoding="utf-8") as door:
            door.write("#include <hetero/optim/planted_json.hpp>\n")
        (copy / "hetero/core/planted_bare.hpp").write_text("int x;\n", encoding="utf-8")
        found = findings(copy)
        expected = [(name, text) for name, (_, text) in plants.items() if text]
        expected += [("core/planted_bare.hpp", "licence"), ("core/planted_bare.hpp", "#pragma once")]
        expected += [("trainer.hpp", "the door includes no JSON")]
        for name, text in expected:
            if not any(line.startswith(name) and text in line for line in found):
                missed.append(f"planted in {name}, not found: {text}")
        for name, (_, text) in plants.items():
            if text is None and any(line.startswith(name) for line in found):
                missed.append(f"{name} is right but was reported")
    return missed


def main():
    include_dir = pathlib.Path(sys.argv[1])
    lines = control(include_dir) if "--control" in sys.argv[2:] else findings(include_dir)
    for line in lines:
        print(line)
    print(f"{len(lines)} findings")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
