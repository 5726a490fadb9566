# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch peers share: threads fixed before torch loads, the choice of AdamW, the request loop.

A peer answers in JSON lines on standard output. First comes one `ready` line that says what is measured; after that
either one `step` line per step, or, with `--serve`, one answer per request line on standard input:

    step K    runs K steps, answers {"event": "steps", "seconds": [...], "loss": ..., "peak_resident_bytes": ...}
    quit      ends the process, as does the end of standard input

A served peer waits in a blocking read, so it costs nothing while the other side of an interleaved run works.
"""

import json
import os
import resource
import sys
import time


def fix_threads(threads):
    """Sets the thread count of every library torch may call; must run before `import torch`."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        os.environ[name] = str(threads)


def import_torch(threads):
    fix_threads(threads)
    try:
        import torch
    except ImportError as reason:
        emit(event="error", message="%s cannot import torch: %s" % (sys.executable, reason))
        sys.exit(1)
    torch.set_num_threads(threads)
    torch.manual_seed(1337)
    return torch


def peak_resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB


def emit(**fields):
    print(json.dumps(fields), flush=True)


def describe(torch, threads):
    """The facts that make a figure repeatable: versions, libraries, threads."""
    config = torch.__config__.show()
    blas = [word for word in config.replace(",", " ").split() if word.startswith("BLAS_INFO=")]
    capability = [line.split(":")[1].strip() for line in config.splitlines() if "CPU capability usage" in line]
    return {
        "peer": "torch " + torch.__version__,
        "python": sys.version.split()[0],
        "threads": threads,
        "blas": blas[0].split("=")[1] if blas else "unknown",
        "instruction_set": capability[0] if capability else "unknown",
        "resident_after_import_bytes": peak_resident_bytes(),
    }


ADAMW_OPTIONS = {"default": {}, "foreach": {"foreach": True}, "fused": {"fused": True}}


def make_adamw(torch, kind, parameters, learning_rate=1e-3, weight_decay=0.1):
    """One AdamW of the asked kind; raises TypeError, ValueError or RuntimeError where this torch lacks it."""
    return torch.optim.AdamW(
        parameters, lr=learning_rate, betas=(0.9, 0.95), eps=1e-8, weight_decay=weight_decay, **ADAMW_OPTIONS[kind]
    )


def adamw_or_end(torch, kind, parameters):
    """`make_adamw`, or an error line and the end of the process where this torch lacks the kind."""
    try:
        return make_adamw(torch, kind, parameters)
    except (TypeError, ValueError, RuntimeError):
        emit(event="error", message="torch %s has no %s AdamW here" % (torch.__version__, kind))
        sys.exit(1)


def time_adamw(torch, kind, count, steps=4):
    """Seconds of the best of `steps` updates of `count` parameters, or None where this torch lacks the kind."""
    try:
        tensors = [torch.nn.Parameter(torch.randn(count // 16)) for _ in range(16)]
        for tensor in tensors:
            tensor.grad = torch.randn_like(tensor)
        optimizer = make_adamw(torch, kind, tensors)
        optimizer.step()
    except (TypeError, ValueError, RuntimeError):
        return None
    best = float("inf")
    for _ in range(steps):
        start = time.monotonic()
        optimizer.step()
        best = min(best, time.monotonic() - start)
    return best


def best_adamw(threads, count=32_000_000):
    """The fastest AdamW kind of this torch, tried in a child so that its memory is not counted against the peer."""
    import subprocess

    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_adamw.py")
    command = [sys.executable, here, "--probe", str(count), "--threads", str(threads)]
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, timeout=120)
    return json.loads(answer.stdout.decode().strip().splitlines()[-1])["best"]


def run(arguments, step):
    """Runs `step`, which returns the loss or None, as the arguments ask: a fixed number of times, or on request."""

    def timed():
        start = time.monotonic()
        loss = step()
        return time.monotonic() - start, loss

    if not arguments.serve:
        for index in range(arguments.steps):
            seconds, loss = timed()
            emit(event="step", step=index, seconds=seconds, loss=loss, peak_resident_bytes=peak_resident_bytes())
        return 0

    for line in sys.stdin:
        words = line.split()
        if words == ["quit"]:
            return 0
        if len(words) == 2 and words[0] == "step" and words[1].isdigit() and int(words[1]) > 0:
            results = [timed() for _ in range(int(words[1]))]
            emit(
                event="steps",
                seconds=[seconds for seconds, _ in results],
                loss=results[-1][1],
                peak_resident_bytes=peak_resident_bytes(),
            )
        else:
            emit(event="error", message="unknown request %r; this peer understands 'step K' and 'quit'" % line.strip())
    return 0


def add_common_arguments(parser):
    parser.add_argument("--threads", type=int, default=1, help="threads of every library torch calls (default 1)")
    parser.add_argument("--steps", type=int, default=5, help="steps to time when not serving (default 5)")
    parser.add_argument("--warm-up", type=int, default=2, help="untimed steps before the ready line (default 2)")
    parser.add_argument("--serve", action="store_true", help="answer 'step K' lines on standard input")
    parser.add_argument(
        "--optimizer",
        choices=["auto", *ADAMW_OPTIONS],
        default="auto",
        help="which AdamW; auto tries all that this torch has and takes the fastest (default auto)",
    )
