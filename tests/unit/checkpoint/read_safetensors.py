# SPDX-License-Identifier: Apache-2.0
"""Reads a safetensors file with NumPy alone and prints one line per tensor: name, dtype, shape, sum, first and last element.

Written from the format's description and not from hetero's code, so that the two can disagree.
"""
import json
import struct
import sys

import numpy

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1"}

with open(sys.argv[1], "rb") as file:
    raw = file.read()
(length,) = struct.unpack_from("<Q", raw)
header = json.loads(raw[8 : 8 + length].decode("utf-8"))
print("metadata", json.dumps(header.pop("__metadata__", {}).get("made by"), ensure_ascii=False))
covered = 0
for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
    begin, end = entry["data_offsets"]
    assert begin == covered, "tensors must tile the data"
    covered = end
    kind = numpy.dtype(TYPES.get(entry["dtype"], "<u2"))  # NumPy has no bf16: its bits are shown
    assert (8 + length + begin) % kind.itemsize == 0, "elements must be aligned"
    tensor = numpy.frombuffer(raw[8 + length + begin : 8 + length + end], kind).reshape(entry["shape"])
    ends = [tensor.flat[0], tensor.flat[-1]] if tensor.size else []
    print(name, entry["dtype"], list(tensor.shape), tensor.astype("f8").sum(), *map(float, ends))
assert 8 + length + covered == len(raw), "bytes beyond the last tensor"
