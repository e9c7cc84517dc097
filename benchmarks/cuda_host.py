"""What an op costs the host on a GPU, beside eager PyTorch: tiny operands, so that the device follows.

Ops that are recorded in the graph, reads of values, indexing, streams and events. Both libraries are timed in turn; a
figure is the median of the rounds, in microseconds. Wanted of the recorded ops: a geometric mean of at most 0.6 of
PyTorch's time; of all others: no more than PyTorch's.

    python benchmarks/cuda_host.py [--only PATTERN] [--rounds 7] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import norch
import norch.nn

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

DEVICE = "cuda"
LIBRARIES: dict[str, Any] = {"norch": norch} | ({"torch": torch} if torch is not None else {})

Make = Callable[[Any], Callable[[], object]]


def of_two(function: Callable[[Any, Any, Any], object], recorded: bool = False) -> Make:
    """A call on two 4 x 4 tensors, of which the first may need a gradient."""

    def make(lib: Any) -> Callable[[], object]:
        a, b = lib.randn(4, 4, device=DEVICE).requires_grad_(recorded), lib.randn(4, 4, device=DEVICE)
        return lambda: function(lib, a, b)

    return make


def linear(lib: Any) -> Callable[[], object]:
    x, w, b = lib.randn(8, 16, device=DEVICE), lib.randn(32, 16, device=DEVICE), lib.randn(32, device=DEVICE)
    w.requires_grad_(), b.requires_grad_()
    return lambda: lib.nn.functional.linear(x, w, b)


def embedding(lib: Any) -> Callable[[], object]:
    table, at = lib.randn(64, 64, device=DEVICE).requires_grad_(), lib.randint(0, 64, (64,), device=DEVICE)
    return lambda: lib.nn.functional.embedding(at, table)


def backward(lib: Any) -> Callable[[], object]:
    a = lib.randn(4, 4, device=DEVICE).requires_grad_()

    def call() -> None:
        (a * a).sum().backward()
        a.grad = None

    return call


def indexed(function: Callable[[Any, Any, Any], object], *shape: int) -> Make:
    def make(lib: Any) -> Callable[[], object]:
        x, at = lib.randn(64, 64, device=DEVICE), lib.randint(0, 64, shape, device=DEVICE)
        return lambda: function(lib, x, at)

    return make


def number(lib: Any) -> Callable[[], object]:
    x = lib.randn((), device=DEVICE)
    return lambda: x.item()


def stream(lib: Any) -> Callable[[], object]:
    other = lib.cuda.Stream()

    def call() -> None:
        with lib.cuda.stream(other):
            pass

    return call


def streams_wait(lib: Any) -> Callable[[], object]:
    other = lib.cuda.Stream()

    def call() -> None:
        other.wait_stream(lib.cuda.current_stream())
        lib.cuda.current_stream().wait_stream(other)

    return call


def event(lib: Any) -> Callable[[], object]:
    made = lib.cuda.Event()
    return lambda: made.record()


def device(lib: Any) -> Callable[[], object]:
    def call() -> None:
        with lib.cuda.device(0):
            pass

    return call


RECORDED: dict[str, Make] = {
    "add": of_two(lambda lib, a, b: a + b, True),
    "mul by a number": of_two(lambda lib, a, b: a * 2.0, True),
    "matmul": of_two(lambda lib, a, b: a @ b, True),
    "linear": linear,
    "relu": of_two(lambda lib, a, b: a.relu(), True),
    "softmax": of_two(lambda lib, a, b: a.softmax(-1), True),
    "sum": of_two(lambda lib, a, b: a.sum(), True),
    "transpose": of_two(lambda lib, a, b: a.transpose(0, 1), True),
    "reshape": of_two(lambda lib, a, b: a.reshape(2, 8), True),
    "embedding": embedding,
    "(a * a).sum().backward()": backward,
}
OTHERS: dict[str, Make] = {
    "add, not recorded": of_two(lambda lib, a, b: a + b),
    "add_": of_two(lambda lib, a, b: a.add_(b)),
    "cat": of_two(lambda lib, a, b: lib.cat([a, b])),
    "zeros": of_two(lambda lib, a, b: lib.zeros(4, 4, device=DEVICE)),
    "to bfloat16": of_two(lambda lib, a, b: a.to(lib.bfloat16)),
    "a[1]": of_two(lambda lib, a, b: a[1]),
    "item()": number,
    "a[0, 0].item()": of_two(lambda lib, a, b: a[0, 0].item()),
    "(a + a).sum().item()": of_two(lambda lib, a, b: (a + a).sum().item()),
    "tolist()": of_two(lambda lib, a, b: a.tolist()),
    "cpu()": of_two(lambda lib, a, b: a.cpu()),
    "if (a > 9).any()": of_two(lambda lib, a, b: bool((a > 9).any())),
    "tensor(3.0)": of_two(lambda lib, a, b: lib.tensor(3.0, device=DEVICE)),
    "a[index]": indexed(lambda lib, x, at: x[at], 64),
    "index_select": indexed(lambda lib, x, at: lib.index_select(x, 0, at), 64),
    "gather": indexed(lambda lib, x, at: lib.gather(x, 1, at), 64, 4),
    "with stream": stream,
    "current_stream()": lambda lib: lambda: lib.cuda.current_stream(),
    "wait_stream, both ways": streams_wait,
    "event record": event,
    "with device": device,
    "synchronize()": lambda lib: lambda: lib.cuda.synchronize(),
}


def microseconds(call: Callable[[], object], count: int) -> float:
    for lib in LIBRARIES.values():
        lib.cuda.synchronize()
    for _ in range(count // 10):
        call()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def measure(make: Make, rounds: int, count: int) -> dict[str, float]:
    calls = {name: make(lib) for name, lib in LIBRARIES.items()}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            taken[name].append(microseconds(calls[name], count))
    return {name: statistics.median(found) for name, found in taken.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description="What an op costs the host on a GPU, beside PyTorch.")
    parser.add_argument("--only", metavar="PATTERN", default="", help="the rows whose name it finds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=500, help="calls in a round")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    report: dict[str, Any] = {"device": norch.cuda.get_device_name(), "recorded": {}, "others": {}}
    for kind, rows in (("recorded", RECORDED), ("others", OTHERS)):
        print(f"{kind + ', us':<30}{'norch':>8}{'torch':>8}{'ratio':>8}")
        ratios = []
        for name, make in rows.items():
            if not re.search(options.only, name, re.I):
                continue
            report[kind][name] = found = measure(make, options.rounds, options.count)
            ratio = found["norch"] / found["torch"] if "torch" in found else math.nan
            ratios.append(ratio)
            print(f"{name:<30}{found['norch']:>8.2f}{found.get('torch', math.nan):>8.2f}{ratio:>8.2f}", flush=True)
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            report[f"{kind}, mean ratio"], report[f"{kind}, largest ratio"] = mean, max(ratios)
            print(f"{'geometric mean, largest':<30}{mean:>24.2f}{max(ratios):>8.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
