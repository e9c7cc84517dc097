"""What `norch.capture` gains: training steps replayed, beside the same steps eagerly, and beside PyTorch's, eager and
compiled.

All are timed in turn in one run, in rounds of rotated order; a figure is the median of the rounds. Before anything is
timed the captured step's losses are compared with the eager one's, bit for bit. The first captured calls are timed too.

    python benchmarks/capture.py [--only PATTERN] [--threads 2] [--rounds 15] [--compile] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from cpu import surroundings
from cpu_models import MODELS
from cpu_rows import set_precision


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Training steps captured, beside eager ones and PyTorch's.")
    parser.add_argument("--only", metavar="PATTERN", help="the models whose name this regular expression finds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compile", action="store_true", help="torch.compile too, which takes a minute")
    parser.add_argument("--json", type=Path)
    parser.set_defaults(quick=False)
    return parser.parse_args()


def main(options: argparse.Namespace) -> int:
    import norch

    norch.set_num_threads(options.threads)
    try:
        import torch

        torch.set_num_threads(options.threads)
    except ModuleNotFoundError:
        torch = None  # type: ignore[assignment]
    rows = {}
    for row in MODELS:
        if not options.only or re.search(options.only, row.name):
            rows[row.name] = measure(row, options, norch, torch)
    if options.json:
        options.json.write_text(json.dumps({**surroundings(options), "rows": rows}, indent=2) + "\n")
    return 0


def measure(row: Any, options: argparse.Namespace, norch: Any, torch: Any) -> dict[str, float]:
    """Microseconds a step by kind, and of the first captured calls beyond eager ones."""
    from timing import count_for, interleaved

    set_precision(*row.precision)
    twins = [row.prepare() for _ in range(2)]
    eager, captured = twins[0]["norch"], norch.capture(twins[1]["norch"])
    expected = [eager().item() for _ in range(8)]
    began = time.perf_counter()
    found = [captured().item() for _ in range(3)]
    first = time.perf_counter() - began
    found += [captured().item() for _ in range(5)]
    if found != expected:
        raise AssertionError(f"{row.name}: captured losses {found} are not the eager ones {expected}")
    calls = {"eager": eager, "captured": captured}
    if "torch" in twins[0]:
        calls["torch"] = twins[0]["torch"]
        if options.compile:
            calls["compiled"] = torch.compile(twins[1]["torch"])
            for _ in range(3):
                calls["compiled"]()
    for call in calls.values():  # past the first checks of a captured step, which take as long as thousands of replays
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            call()
    times = interleaved(calls, options.rounds, {k: count_for(c, 0.02)[0] for k, c in calls.items()}, 0.05)
    taken = {kind: statistics.median(seconds) * 1e6 for kind, seconds in times.items()}
    taken["first calls beyond three eager ones, ms"] = (first - 3 * taken["eager"] / 1e6) * 1e3
    peers = [taken[kind] for kind in ("torch", "compiled") if kind in taken]
    shown = " ".join(f"{kind} {value:,.1f}" for kind, value in taken.items())
    ratio = f", {taken['captured'] / taken['eager']:.2f} of eager"
    if peers:
        ratio += f", {taken['captured'] / min(peers):.2f} of the better of PyTorch's"
    print(f"{row.name}: us {shown}{ratio}", flush=True)
    return taken


if __name__ == "__main__":
    chosen = arguments()
    for variable in ("NORCH_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(chosen.threads)
    sys.exit(main(chosen))
