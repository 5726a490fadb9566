# SPDX-License-Identifier: Apache-2.0
"""One rank of torch.distributed's gloo backend, for benchmarks/collectives. The lines are those of
benchmarks/support/rank_server.hpp.

    torch_all_reduce.py --rank R --ranks N --store FILE --control PATH
"""
import argparse
import datetime
import socket
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--control", required=True)
    args = parser.parse_args()

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank, world_size=args.ranks,
                            timeout=datetime.timedelta(minutes=5))
    control = socket.socket(socket.AF_UNIX)
    control.connect(args.control)
    lines = control.makefile("rw", encoding="utf-8", newline="\n")

    def answer(text):
        lines.write(text.replace("\n", " ") + "\n")
        lines.flush()

    answer(f"hello {args.rank} PyTorch {torch.__version__}")
    held = None
    while line := lines.readline():
        words = line.split()
        try:
            count = int(words[1])
            if held is None or held.numel() != count:
                held = None
                held = torch.zeros(count)
            if words[0] == "run":
                iterations, warm = int(words[2]), int(words[3])
                if warm:
                    dist.all_reduce(held[:warm])
                start = time.perf_counter_ns()
                for _ in range(iterations):
                    dist.all_reduce(held)
                answer(f"nanoseconds {(time.perf_counter_ns() - start) / iterations:.1f}")
            elif words[0] == "check":
                pattern = (torch.arange(count) % 7 + 1).to(torch.float32)
                held.copy_(pattern).mul_(args.rank + 1)
                dist.all_reduce(held)
                wrong = int((held != pattern * (args.ranks * (args.ranks + 1) // 2)).sum())
                held.zero_()
                answer(f"error {wrong} wrong sums of {count}" if wrong else "ok")
            else:
                answer("error unknown request " + line)
        except Exception as reason:  # the benchmark reports it
            answer(f"error {reason}")


main()
