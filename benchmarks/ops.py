"""What programs ask of tensors, in sizes that they have (op_rows/), beside PyTorch: forward without a graph, and back.

Both libraries are timed in turn, in microseconds, the least of the rounds; PyTorch and norch use the same precision of
float32 products. What fails is listed with its error.

    python benchmarks/ops.py [--device cuda] [--only PATTERN] [--precision high] [--rounds 3] [--json out.json]
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from op_rows import MODULES

import norch
import norch.nn

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

SECONDS, CALLS = 0.01, 40  # a round has as many calls as take this long, at most CALLS

Row = tuple[Callable[..., Any], tuple[Callable[[], Any], ...], bool]


def rows_of(lib: Any, device: str) -> dict[str, Row]:
    found: dict[str, Row] = {}

    def op(name: str, function: Callable[..., Any], *inputs: Callable[[], Any], grad: bool = True) -> None:
        found[name] = function, inputs, grad

    for module in MODULES:
        module.rows(op, lib, device)
    return found


def leaves_of(lib: Any, inputs: list[Any]) -> list[Any]:
    return [x.detach().requires_grad_() if isinstance(x, lib.Tensor) and x.is_floating_point() else x for x in inputs]


def calls_of(lib: Any, row: Row) -> dict[str, Callable[[], Any]]:
    """The row's calls: "forward" and, where there is a gradient, "backward"."""
    function, makers, has_grad = row
    inputs = [make() for make in makers]

    def forward() -> Any:
        with lib.no_grad():
            return function(*inputs)

    calls: dict[str, Callable[[], Any]] = {"forward": forward}
    if has_grad:
        given = leaves_of(lib, inputs)
        leaves = [x for x in given if isinstance(x, lib.Tensor) and x.requires_grad]
        found = function(*given)
        results = [y for y in (found if isinstance(found, tuple | list) else [found]) if y.requires_grad]
        if leaves and results:
            grads = [lib.ones_like(y) for y in results]
            calls["backward"] = lambda: lib.autograd.grad(results, leaves, grads, retain_graph=True, allow_unused=True)
    return calls


def took(lib: Any, device: str, call: Callable[[], Any], count: int) -> float:
    """Seconds that a call takes, of `count`."""
    wait = getattr(lib, device).synchronize
    wait()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    wait()
    return (time.perf_counter() - begin) / count


def timed(libraries: dict[str, Any], device: str, rows: dict[str, Row], rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds, by pass and library."""
    calls = {name: calls_of(lib, rows[name]) for name, lib in libraries.items()}
    found: dict[str, dict[str, float]] = {}
    for kind in calls["norch"]:
        counts, least = {}, dict.fromkeys(libraries, math.inf)
        for name, lib in libraries.items():
            took(lib, device, calls[name][kind], 2)
            counts[name] = max(2, min(CALLS, int(SECONDS / took(lib, device, calls[name][kind], 1))))
        for _ in range(rounds):
            for name, lib in libraries.items():
                least[name] = min(least[name], 1e6 * took(lib, device, calls[name][kind], counts[name]))
        found[kind] = {name: round(value, 2) for name, value in least.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--only", default="", help="a pattern that names are to have")
    parser.add_argument("--precision", default="high", choices=["highest", "high", "medium"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    libraries: dict[str, Any] = {"norch": norch} | ({"torch": torch} if torch is not None else {})
    rows: dict[str, dict[str, Row]] = {}
    for name, lib in libraries.items():
        lib.manual_seed(0)
        lib.set_float32_matmul_precision(options.precision)
        rows[name] = rows_of(lib, options.device)
    found: dict[str, dict[str, dict[str, float]]] = {}
    ratios = []
    print(f"{'us':<44}{'norch':>12}{'torch':>12}{'ratio':>8}")
    for name in rows["norch"]:
        if not re.search(options.only, name):
            continue
        gc.collect()
        try:
            found[name] = timed(libraries, options.device, {lib: rows[lib][name] for lib in libraries}, options.rounds)
        except Exception as error:
            print(f"{name:<44}{type(error).__name__}: {str(error)[:100]}")
            continue
        for kind, times in found[name].items():
            line = f"{name + (', back' if kind == 'backward' else ''):<44}{times['norch']:>12.1f}"
            if "torch" in times:
                ratios.append(times["norch"] / times["torch"])
                line += f"{times['torch']:>12.1f}{ratios[-1]:>8.2f}"
            print(line, flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean {mean:.3f}; {sum(r > 1 for r in ratios)} of {len(ratios)} above 1")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
