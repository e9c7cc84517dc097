"""What norch itself costs: per-op overhead on a backend whose kernels do nothing, in-place arithmetic, import time.

Each figure is taken between those of its peers, NumPy and (where it is installed) PyTorch, in the same run: rounds are
interleaved, and the least is kept, since what else the machine does can only add. Wanted of the overhead: no row slower
than PyTorch, a geometric mean of at most 0.6 of its time, and the ratios of TARGETS. In-place arithmetic of a million
floats on the CPU allocates nothing and takes at most NumPy's time. Import: at most 40 ms over `import numpy`.

    python benchmarks/overhead.py [--rounds 15] [--only add_] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from timing import interleaved

import norch
from norch.backend import PRIMITIVES, Kernel, Operand
from norch.backend.registry import register, unregister
from norch.testing.null import NullBackend, NullBuffer

try:
    import torch
except ImportError:
    torch = None

Times = dict[str, dict[str, float]]

CALLS = 3_000


class NullCpu(NullBackend):
    """The null backend as the CPU's: what the host reads and writes takes the way that it takes there."""

    device_type = "cpu"
    priority = 1000
    compiled = PRIMITIVES | {"axpy", "clamp", "relu", "softmax"}
    memory = memoryview(bytearray(4096))

    def device_count(self) -> int:
        return 1

    def host_view(self, buffer: NullBuffer) -> memoryview:
        return self.memory

    def from_host(self, data: memoryview) -> NullBuffer:
        return self.allocate(data.nbytes, 0)

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        return super().compile("copy", operands, attrs) if op in self.compiled else None


ROWS: dict[str, str] = {
    "a + b": "a + b",
    "a - b": "a - b",
    "a * b": "a * b",
    "a / b": "a / b",
    "a * 0.5": "a * 0.5",
    "a - 1": "a - 1",
    "1 - a": "1 - a",
    "2 / a": "2 / a",
    "a ** 2": "a ** 2",
    "2 ** a": "2 ** a",
    "-a": "-a",
    "a == b": "a == b",
    "a < 1": "a < 1",
    "a.exp()": "np.exp(a)",
    "a.relu()": "np.maximum(a, 0)",
    "a.clamp(0, 1)": "a.clip(0, 1)",
    "where(mask, a, b)": "np.where(mask, a, b)",
    "maximum(a, b)": "np.maximum(a, b)",
    "a.softmax(1)": "",
    # In place
    "c.add_(b)": "np.add(c, b, out=c)",
    "c.sub_(b)": "np.subtract(c, b, out=c)",
    "c.mul_(b)": "np.multiply(c, b, out=c)",
    "c.div_(b)": "np.divide(c, b, out=c)",
    "c.add_(b, alpha=2)": "",
    "c += b": "c += b",
    "c += 1.0": "c += 1.0",
    "c -= 1.0": "c -= 1.0",
    "c *= 1.0": "c *= 1.0",
    "c /= 1.0": "c /= 1.0",
    "c.exp_()": "np.exp(c, out=c)",
    "c.clamp_(0, 1)": "c.clip(0, 1, out=c)",
    "c.zero_()": "c.fill(0)",
    "c.fill_(1.0)": "c.fill(1.0)",
    "c.copy_(b)": "np.copyto(c, b)",
    # Reductions
    "a.sum()": "a.sum()",
    "a.sum(1)": "a.sum(1)",
    "a.mean()": "a.mean()",
    "a.max()": "a.max()",
    "a.max(1)": "",
    "a.min(1)": "",
    "a.argmax(1)": "a.argmax(1)",
    "a.sum().item()": "a.sum().item()",
    # Matrices
    "a @ b": "a @ b",
    "einsum('ij,jk->ik', a, b)": "np.einsum('ij,jk->ik', a, b)",
    # Indexing
    "a[0]": "a[0]",
    "a[1:3]": "a[1:3]",
    "a[:, 0]": "a[:, 0]",
    "a[index]": "a[index]",
    "a[mask]": "a[mask]",
    "c[0] = 1.0": "c[0] = 1.0",
    "c[0] = row": "c[0] = row",
    "c[index] = 1.0": "c[index] = 1.0",
    # Views
    "a.transpose(0, 1)": "a.transpose(1, 0)",
    "a.reshape(16)": "a.reshape(16)",
    "a.view(16)": "a.reshape(16)",
    "a.flatten()": "a.reshape(-1)",
    "a.unsqueeze(0)": "np.expand_dims(a, 0)",
    "a.split(2)": "np.split(a, 2)",
    "a.chunk(2)": "np.array_split(a, 2)",
    "a.detach()": "",
    # Copies and casts
    "a.clone()": "a.copy()",
    "a.double()": "a.astype(np.float64)",
    "a.to(float64)": "a.astype(np.float64)",
    "a.int()": "a.astype(np.int32)",
    "cat((a, b))": "np.concatenate((a, b))",
    "stack((a, b))": "np.stack((a, b))",
    "pad(a, (1, 1))": "np.pad(a, ((0, 0), (1, 1)))",
    # Creation
    "tensor([1., 2.])": "np.array([1., 2.])",
    "zeros(4, 4)": "np.zeros((4, 4), np.float32)",
    "ones(4, 4)": "np.ones((4, 4), np.float32)",
    "full((4, 4), 2.0)": "np.full((4, 4), 2.0)",
    "empty(4, 4)": "np.empty((4, 4), np.float32)",
    "arange(4)": "np.arange(4)",
    "rand(4, 4)": "generator.random((4, 4), np.float32)",
    "randn(4, 4)": "generator.standard_normal((4, 4), np.float32)",
    "zeros_like(a)": "np.zeros_like(a)",
    "empty_like(a)": "np.empty_like(a)",
    # Recorded
    "w + b": "",
    "w @ b": "",
    "w.relu()": "",
    "w.transpose(0, 1)": "",
    "cat((w, b))": "",
    "(w * b).sum().backward()": "",
}
"""A statement of norch's and PyTorch's, and of NumPy's where it has one. `w` requires a gradient, `c` is written to."""

TARGETS = {"a + b": 0.38, "w + b": 0.41, "a.transpose(0, 1)": 0.36}

IN_PLACE: dict[str, str] = {
    "x += y": "x += y",
    "x -= y": "x -= y",
    "x.add_(y)": "x += y",
    "x.mul_(0.999)": "x *= 0.999",
    "x.add_(y, alpha=0.5)": "",
    "leaf.backward(y)": "x += y",
}
"""On a million floats. The last accumulates a gradient."""


def cases() -> dict[str, dict[str, Callable[[], object]]]:
    """By row, a call for each library."""
    libraries = {"norch": _names(norch), "numpy": _numpy_names()}
    if torch is not None:
        torch.set_num_threads(1)
        libraries["torch"] = _names(torch)
    return _calls(ROWS, libraries)


def _names(library: Any) -> dict[str, Any]:
    """What the statements of ROWS mean for norch and PyTorch: their functions, and some tensors."""
    pad = (library.nn.functional if library is torch else library).pad
    names = {**vars(library), "einsum": library.einsum, "pad": pad}
    a, b, c = (library.ones(4, 4) for _ in "abc")
    return {
        **names, "a": a, "b": b, "c": c, "w": library.ones(4, 4, requires_grad=True), "row": b[0],
        "index": library.tensor([0, 2]), "mask": a < 0,
    }  # fmt: skip


def _numpy_names() -> dict[str, Any]:
    a, b, c = (np.ones((4, 4), np.float32) for _ in "abc")
    return {
        "np": np, "a": a, "b": b, "c": c, "row": b[0], "index": np.array([0, 2]), "mask": a < 0,
        "generator": np.random.default_rng(0),
    }  # fmt: skip


def _calls(rows: dict[str, str], libraries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Callable[[], object]]]:
    """Each statement as a function of no arguments, by row and library."""
    found: dict[str, dict[str, Callable[[], object]]] = {}
    for row, numpy_statement in rows.items():
        for library, names in libraries.items():
            statement = numpy_statement if library == "numpy" else row
            if statement:
                exec(f"def call():\n    global c, x\n    {statement}", names)
                found.setdefault(row, {})[library] = names["call"]
    return found


def measure(calls: dict[str, dict[str, Callable[[], object]]], rounds: int, number: int) -> Times:
    """Microseconds a call, the least of the rounds, by row and library; the empty call's cost is taken off."""
    flat = {(row, library): call for row, by in calls.items() for library, call in by.items()}
    times = interleaved({("", ""): lambda: None, **flat}, rounds, number)
    base = min(times.pop(("", "")))
    result: Times = {}
    for (row, library), found in times.items():
        result.setdefault(row, {})[library] = (min(found) - base) * 1e6
    return result


def in_place(rounds: int) -> tuple[Times, dict[str, int]]:
    """Microseconds a call of in-place arithmetic on a million floats, and the bytes that norch allocates meanwhile."""
    libraries: dict[str, dict[str, Any]] = {"numpy": {name: np.ones(1_000_000, np.float32) for name in "xy"}}
    for name, library in (("norch", norch), ("torch", torch)):
        if library is not None:
            libraries[name] = {n: library.ones(1_000_000) for n in "xy"}
            libraries[name]["leaf"] = library.ones(1_000_000, requires_grad=True)
    calls = _calls(IN_PLACE, libraries)
    # A leaf's first gradient is its own copy; from the second on it is added to.
    times = measure(calls, rounds, 20)
    return times, {row: allocated(by["norch"]) for row, by in calls.items()}


def allocated(call: Callable[[], object]) -> int:
    """The most bytes, of tensors' memory, that there are during a call beyond those before it."""
    cpu: Any = norch.cpu
    if hasattr(cpu, "reset_peak_memory_stats"):
        cpu.reset_peak_memory_stats()
        before = cpu.memory_stats()["allocated_bytes"]
        call()
        return int(cpu.memory_stats()["peak_allocated_bytes"] - before)
    tracemalloc.start()  # the reference takes its memory from NumPy, which reports it there
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return max(0, tracemalloc.get_traced_memory()[1] - before) // 4096 * 4096  # Python's own objects are less
    finally:
        tracemalloc.stop()


def import_milliseconds(rounds: int) -> dict[str, float]:
    """The least time of a fresh interpreter that imports each, in turn."""
    # Without bytecode every start would compile all of norch, which no installed package does.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, list[float]] = {"pass": [], "import numpy": [], "import norch": []}
    for _ in range(rounds):
        for statement, times in found.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
            times.append((time.perf_counter() - start) * 1e3)
    return {statement: min(times) for statement, times in found.items()}


def show(title: str, times: Times, last: str, notes: dict[str, str]) -> None:
    """A line for each row: microseconds by library, ratios, and a note in the last column."""
    print(f"{title:<28}{'norch':>8}{'numpy':>8}{'torch':>8}{'to numpy':>10}{'to torch':>10}{last:>13}")
    for row, by in times.items():
        cells = "".join(f"{by[n]:>8.2f}" if n in by else f"{'-':>8}" for n in ("norch", "numpy", "torch"))
        ratios = "".join(f"{by['norch'] / by[n]:>10.2f}" if n in by else f"{'-':>10}" for n in ("numpy", "torch"))
        print(f"{row:<28}{cells}{ratios}{notes.get(row, ''):>13}".rstrip())


def show_summary(times: Times) -> None:
    """The geometric mean of the ratios to PyTorch, and the rows that take longer than it."""
    ratios = {row: by["norch"] / by["torch"] for row, by in times.items() if "torch" in by}
    if ratios:
        mean = math.exp(statistics.mean(math.log(ratio) for ratio in ratios.values()))
        print(f"\ngeometric mean of {len(ratios)} ratios to torch: {mean:.2f} (at most 0.60)")
        slower = sorted(((ratio, row) for row, ratio in ratios.items() if ratio > 1.0), reverse=True)
        print(f"{len(slower)} rows slower than torch: " + "; ".join(f"{row} {ratio:.2f}" for ratio, row in slower))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", action="append", help="measure the rows whose name contains this, and nothing else")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    register(NullCpu(), "norch-core")
    calls = cases()
    if options.only:
        calls = {row: by for row, by in calls.items() if any(part in row for part in options.only)}
    with np.errstate(all="ignore"):  # c.exp_() again and again is infinite
        overhead = measure(calls, options.rounds, CALLS)
    unregister("cpu")
    show("us a call, 4x4 float32", overhead, "at most", {row: f"{ratio:.2f}" for row, ratio in TARGETS.items()})
    show_summary(overhead)
    if options.only:
        return
    big, allocations = in_place(options.rounds)
    print()
    show("us a call, 1M float32", big, "allocates", {row: f"{nbytes:,} B" for row, nbytes in allocations.items()})
    imports = import_milliseconds(options.rounds)
    over = imports["import norch"] - imports["import numpy"]
    print(
        f"\nimport, ms: python {imports['pass']:.0f}, numpy {imports['import numpy']:.0f}, "
        f"norch {imports['import norch']:.0f}: {over:.0f} over numpy (at most 40)"
    )
    if options.json:
        figures = {"overhead_us": overhead, "in_place_us": big, "allocated_bytes": allocations, "import_ms": imports}
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
