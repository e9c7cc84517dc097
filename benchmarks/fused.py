"""Chains of elementwise ops in one kernel of norch-cpu: python benchmarks/fused.py

The bytes that a chain cannot do without (its inputs read once, its output written once) over the time, as a part of
the bandwidth of a copy of as many bytes that is timed between. Beside it the same ops one by one, PyTorch's, and
torch.compile's kernel where there is a compiler for it. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from timing import Call, Others, count_for, interleaved

import norch
from norch.backend import Operand
from norch.nn import functional

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

AT_LEAST = 0.55
SIZES = {"16M": 1 << 24, "64K": 1 << 16}


def gate(x: Any, library: Any, gelu: Any) -> Any:
    return x * library.sigmoid(x * 1.7) + x


def affine_gelu(x: Any, library: Any, gelu: Any) -> Any:
    return gelu(x * 1.3 + 0.2)


CHAINS: dict[str, tuple[Callable[..., Any], str, tuple[float, ...]]] = {
    "x*sigmoid(1.7x)+x": (
        gate,
        "mul float32 o1 o2;sigmoid float32 s0;mul float32 o1 s1;add float32 s2 o1",
        (1.7,),
    ),
    "gelu(x*a+b)": (
        affine_gelu,
        "mul float32 o1 o2;add float32 s0 o3;gelu float32 s1 approximate=none",
        (1.3, 0.2),
    ),
}


def fused(steps: str, numbers: tuple[float, ...], x: Any) -> tuple[Call, Any]:
    """The chain as one kernel, and its result."""
    n, out = x.numel(), norch.empty_like(x)
    vector, scalar = Operand(norch.float32, (n,), (1,)), Operand(norch.float32, (), (), True)
    operands = (vector, vector, *[scalar] * len(numbers))
    attrs = {"steps": steps, "results": (steps.count(";"),)}
    kernel = norch.device("cpu").backend.compile("fused", operands, attrs)
    if kernel is None:
        sys.exit("this backend has no kernel of fused programs")
    return lambda: kernel(out.buffer, 0, x.buffer, 0, *numbers), out


def compiled(call: Callable[[], Any]) -> Call | None:
    """PyTorch's kernel of the chain; None where it cannot make one."""
    try:
        made = torch.compile(call)
        made()
    except Exception as error:
        print(f"torch.compile: {type(error).__name__}", file=sys.stderr)
        return None
    return made


def measure(name: str, size: str, seconds: float, rounds: int, with_compile: bool) -> dict[str, Any]:
    formula, steps, numbers = CHAINS[name]
    values = np.random.default_rng(0).standard_normal(SIZES[size], np.float32)
    x = norch.tensor(values)
    target = norch.empty_like(x)
    one, out = fused(steps, numbers, x)
    one()
    apart = formula(x, norch, functional.gelu)
    if (out.numpy().view(np.int32) != apart.numpy().view(np.int32)).any():
        sys.exit(f"{name}: the fused kernel gives other bits")
    calls: dict[str, Call] = {
        "copy": lambda: target.copy_(x),
        "fused": one,
        "separate": lambda: formula(x, norch, functional.gelu),
    }
    if torch is not None:
        torch.set_num_threads(norch.get_num_threads())
        t = torch.from_numpy(values)
        eager: Call = lambda: formula(t, torch, torch.nn.functional.gelu)  # noqa: E731
        calls["torch"] = eager
        if with_compile and (made := compiled(eager)) is not None:
            calls["torch.compile"] = made
    counts = {key: count_for(call, seconds)[0] for key, call in calls.items()}
    times = interleaved(calls, rounds, counts, settle=0.01)
    medians = {key: statistics.median(found) for key, found in times.items()}
    of_copy = [c / f for c, f in zip(times["copy"], times["fused"], strict=True)]
    return {
        "chain": name,
        "elements": SIZES[size],
        "copy_gb_per_s": 8 * SIZES[size] / medians["copy"] / 1e9,
        "us": {key: value * 1e6 for key, value in medians.items()},
        "of_copy": {key: medians["copy"] / value for key, value in medians.items() if key != "copy"},
        "fused_of_copy_by_round": statistics.median(of_copy),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=norch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.05, help="of a timing")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", help="a file for the results")
    options = parser.parse_args()
    norch.set_num_threads(options.threads)
    others = Others()
    found = []
    for name in CHAINS:
        for size in SIZES:
            row = measure(name, size, options.seconds, options.rounds, not options.no_compile)
            found.append(row)
            shown = "  ".join(f"{key} {value:.2f}" for key, value in row["of_copy"].items())
            print(f"{name:18} {size:>4}  copy {row['copy_gb_per_s']:5.1f} GB/s, of which  {shown}", flush=True)
    share = others.share()
    report = {
        "threads": options.threads,
        "instruction_set": norch.cpu.instruction_set(),
        "at_least": AT_LEAST,
        "others": share,
        "rows": found,
    }
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
    if share is not None:
        print(f"other processes took {share:.0%} of the processors meanwhile")
    slow = [r["chain"] for r in found if r["elements"] == SIZES["16M"] and r["fused_of_copy_by_round"] < AT_LEAST]
    if slow:
        print(f"below {AT_LEAST} of the copy: {', '.join(slow)}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
