#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch peer: optimizer.step() of AdamW alone, on parameters shaped like GPT-2 124M."""

import argparse
import sys

import peer


def gpt2_shapes(layers=12, width=768, vocabulary=50257, context=1024):
    shapes = [(vocabulary, width), (context, width)]
    for _ in range(layers):
        shapes += [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
        shapes += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return shapes + [(width,), (width,)]


def probe(torch, count):
    seconds = {kind: peer.time_adamw(torch, kind, count) for kind in peer.ADAMW_OPTIONS}
    possible = {kind: value for kind, value in seconds.items() if value is not None}
    peer.emit(event="probe", seconds=seconds, best=min(possible, key=possible.get))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    peer.add_common_arguments(parser)
    parser.add_argument("--probe", type=int, metavar="COUNT", help="time each AdamW kind on COUNT parameters and end")
    arguments = parser.parse_args()

    torch = peer.import_torch(arguments.threads)
    facts = peer.describe(torch, arguments.threads)
    if arguments.probe:
        probe(torch, arguments.probe)
        return 0

    kind = peer.best_adamw(arguments.threads) if arguments.optimizer == "auto" else arguments.optimizer
    parameters = [torch.nn.Parameter(0.02 * torch.randn(shape)) for shape in gpt2_shapes()]
    for parameter in parameters:
        parameter.grad = 0.01 * torch.randn_like(parameter)
    optimizer = peer.adamw_or_end(torch, kind, parameters)

    def step():
        optimizer.step()

    for _ in range(arguments.warm_up):
        step()
    count = sum(parameter.numel() for parameter in parameters)
    peer.emit(event="ready", optimizer=kind, parameters=count, peak_resident_bytes=peer.peak_resident_bytes(), **facts)
    return peer.run(arguments, step)


if __name__ == "__main__":
    sys.exit(main())
