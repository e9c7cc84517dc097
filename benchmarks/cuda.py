"""How fast norch is on a GPU: ops and training steps beside eager PyTorch, and how near the device's limit that is.

Both libraries are timed in turn in one run; a figure is the median of the rounds. Ops on large tensors are timed by the
device's own events, small ones by the host's clock while the device follows, steps by the host's clock with a
synchronisation at the end of many. Results are compared before anything is timed. Every row says what must be reached;
the device's limit, the rate of a copy, is measured by the same run.

    python benchmarks/cuda.py [--only PATTERN] [--json out.json]
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cpu import commit
from timing import Call
from trained_models import (
    BATCH,
    IMAGE,
    article,
    classes,
    cnn,
    gpt,
    lstm,
    mlp,
    norch_library,
    same_weights,
    sequences,
    text,
    torch_library,
    training_step,
)

import norch

try:
    import torch
except ImportError:
    torch = None

DEVICE = "cuda"
GIB = 1 << 28  # float32 elements
ROUNDS = 9


@dataclass(frozen=True)
class Row:
    """Work of both libraries, and the figure that norch must reach: at most so many us, at least so many TB/s or
    TFLOP/s, or at least so much of PyTorch's rate ("ratio")."""

    name: str
    unit: str
    must: float
    prepare: Callable[[], dict[str, Call]]
    amount: float = 0.0  # bytes or operations; 0 for rows in us
    relative: bool = False
    tolerance: float = 1e-5
    precision: str = "float32"  # what is computed in: IEEE float32, tf32 or bfloat16


# --- Timing -----------------------------------------------------------------------------------------------------------


def synchronize() -> None:
    norch.cuda.synchronize()
    if torch is not None:
        torch.cuda.synchronize()


def event_seconds(library: str, call: Call) -> float:
    """Seconds on the device."""
    cuda = norch.cuda if library == "norch" else torch.cuda
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def host_seconds(call: Call, count: int) -> float:
    """Seconds a call takes the host, the device following."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    taken = (time.perf_counter() - start) / count
    synchronize()
    return taken


def step_seconds(call: Call, count: int) -> float:
    """Seconds a call takes host and device together."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    synchronize()
    return (time.perf_counter() - start) / count


def measure(row: Row) -> dict[str, Any]:
    """The row's figures by library, in its unit."""
    for lib in (norch, torch) if torch is not None else (norch,):
        lib.set_float32_matmul_precision("high" if row.precision == "tf32" else "highest")
        lib.backends.cudnn.allow_tf32 = row.precision == "tf32"  # on at first in PyTorch
    calls = row.prepare()
    found: dict[str, Any] = {"name": row.name, "unit": row.unit, "must": row.must, "relative": row.relative}
    found["precision"] = row.precision
    wrong = compare(calls, row.tolerance)
    if wrong:
        return found | {"refused": wrong, "held": False}
    for call in calls.values():
        for _ in range(3 if row.amount else 50):
            call()
    synchronize()
    times: dict[str, list[float]] = {library: [] for library in calls}
    for turn in range(ROUNDS):
        order = list(calls) if turn % 2 == 0 else list(calls)[::-1]
        for library in order:
            if row.amount:
                times[library].append(event_seconds(library, calls[library]))
            elif row.unit == "us of host":
                times[library].append(host_seconds(calls[library], 2000))
            else:
                times[library].append(step_seconds(calls[library], 50))
    seconds = {library: statistics.median(taken) for library, taken in times.items()}
    values = {library: row.amount / s / 1e12 if row.amount else s * 1e6 for library, s in seconds.items()}
    found["values"] = values
    found["by_round"] = {k: [row.amount / s / 1e12 if row.amount else s * 1e6 for s in v] for k, v in times.items()}
    if "torch" in values:
        found["time_ratio"] = seconds["norch"] / seconds["torch"]
    if row.relative:
        found["held"] = "torch" in values and values["norch"] >= row.must * values["torch"]
    else:
        found["held"] = values["norch"] >= row.must if row.amount else values["norch"] <= row.must
    return found


def compare(calls: dict[str, Call], tolerance: float) -> str | None:
    """Says where the libraries' results differ."""
    if len(calls) < 2:
        return None
    results = {}
    for library, call in calls.items():
        results[library] = call().detach().reshape(-1)[:65536].cpu()  # type: ignore[attr-defined]
    ours, theirs = (r.float().numpy() for r in results.values())
    worst = float(np.abs(ours - theirs).max())
    scale = float(np.abs(theirs).max())
    return (
        None if worst <= tolerance * max(scale, 1e-6) else f"results differ by {worst:.1e}, the largest is {scale:.1e}"
    )


# --- Rows -------------------------------------------------------------------------------------------------------------


def both(shape: tuple[int, ...], dtype: str = "float32", grad: bool = False) -> dict[str, Any]:
    """One random tensor for each library, with the same values."""
    given = norch.randn(*shape, device=DEVICE)
    if dtype != "float32":
        given = given.to(getattr(norch, dtype))
    made = {"norch": given.requires_grad_() if grad else given}
    if torch is not None:
        host = given.detach().float().cpu().numpy()
        made["torch"] = torch.from_numpy(host).to(DEVICE).to(getattr(torch, dtype)).requires_grad_(grad)
    return made


def op(function: Callable[..., Any], *shapes: tuple[int, ...], grad: bool = False, dtype: str = "float32") -> Any:
    """`prepare` for a function of tensors of these shapes, of which the first may need a gradient."""

    def prepare() -> dict[str, Call]:
        operands = [both(shape, dtype, grad and i == 0) for i, shape in enumerate(shapes)]
        lib = {"norch": norch, "torch": torch}
        return {
            name: lambda name=name: function(lib[name], *[o[name] for o in operands])  # type: ignore[misc]
            for name in operands[0]
        }

    return prepare


def layer_norm(lib: Any, x: Any, w: Any, b: Any) -> Any:
    return (lib if lib is norch else lib.nn.functional).layer_norm(x, (1024,), w, b)


def step(model: Any, loss: str, optimizer: Any, data: Any) -> Any:
    """`prepare` for a training step from the same weights."""

    def prepare() -> dict[str, Call]:
        norch.manual_seed(0)
        x, y = data(np.random.default_rng(0))
        libs = {"norch": norch_library(DEVICE)}
        if torch is not None:
            libs["torch"] = torch_library(DEVICE)
        nets = {name: model(lib).to(DEVICE) for name, lib in libs.items()}
        same_weights(str(model), list(nets.values()), [lib.tensor for lib in libs.values()])
        return {
            name: training_step(
                nets[name],
                getattr(lib, loss)(),
                optimizer(lib, list(nets[name].parameters())),
                lib.tensor(x),
                lib.tensor(y),
            )
            for name, lib in libs.items()
        }

    return prepare


SQUARE = (16384, 16384)
LARGE = (8192, 8192)
ROWS = [
    Row("add 4x4", "us of host", 3.5, op(lambda _, a, b: a + b, (4, 4), (4, 4))),
    Row("add 4x4, recorded", "us of host", 4.0, op(lambda _, a, b: a + b, (4, 4), (4, 4), grad=True)),
    Row("add", "TB/s", 4.1, op(lambda _, a, b: a + b, (GIB,), (GIB,)), 12 * GIB),
    Row("exp", "TB/s", 4.1, op(lambda _, a: a.exp(), (GIB,)), 8 * GIB),
    Row("sum", "TB/s", 4.1, op(lambda _, a: a.sum(), (GIB,)), 4 * GIB, tolerance=1e-3),
    Row("copy", "TB/s", 4.1, op(lambda _, a: a.clone(), (GIB,)), 8 * GIB),
    Row("softmax, rows of 1024", "TB/s", 4.0, op(lambda _, a: a.softmax(1), (GIB // 1024, 1024)), 8 * GIB),
    Row("layer_norm, rows of 1024", "TB/s", 3.8, op(layer_norm, (GIB // 1024, 1024), (1024,), (1024,)), 8 * GIB),
    Row("add of a row", "TB/s", 4.0, op(lambda _, a, b: a + b, SQUARE, (16384,)), 8 * GIB),
    Row("transposed copy", "TB/s", 3.4, op(lambda _, a: a.T.contiguous(), SQUARE), 8 * GIB),
    Row("matmul 8192", "TFLOP/s", 0.98, op(lambda _, a, b: a @ b, LARGE, LARGE), 2 * 8192**3, True, 1e-4),
    Row(
        "matmul 8192",
        "TFLOP/s",
        0.98,
        op(lambda _, a, b: a @ b, LARGE, LARGE),
        2 * 8192**3,
        True,
        5e-3,
        "tf32",
    ),
    Row(
        "matmul 8192",
        "TFLOP/s",
        0.98,
        op(lambda _, a, b: a @ b, LARGE, LARGE, dtype="bfloat16"),
        2 * 8192**3,
        True,
        2e-2,
        "bfloat16",
    ),
    Row(
        "the article's model, batch 1",
        "us",
        150,
        step(
            article,
            "MSELoss",
            lambda lib, params: lib.SGD(params, lr=0.001),
            lambda rng: (np.full((1, 1), 0.4, np.float32), np.full((1, 1), 0.15, np.float32)),
        ),
        tolerance=1e-3,
    ),
    Row(
        "MLP 784-512-256-10, batch 64",
        "us",
        300,
        step(
            mlp,
            "CrossEntropyLoss",
            lambda lib, params: lib.SGD(params, lr=0.01, momentum=0.9),
            lambda rng: classes(rng, 64, 784),
        ),
        tolerance=1e-3,
    ),
    Row(
        "CNN 1x28x28, batch 256",
        "us",
        900,
        step(
            cnn,
            "CrossEntropyLoss",
            lambda lib, params: lib.Adam(params, lr=0.001),
            lambda rng: classes(rng, 256, 1, IMAGE, IMAGE),
        ),
        tolerance=1e-3,
    ),
    Row(
        f"GPT, 4 layers of 128, batch {BATCH}",
        "us",
        2000,
        step(gpt, "CrossEntropyLoss", lambda lib, params: lib.AdamW(params, lr=0.001), text),
        tolerance=1e-3,
    ),
    Row(
        "LSTM, 2 layers of 512, 32 x 64",
        "us",
        5000,
        step(
            lambda lib: lstm(lib, 512),
            "MSELoss",
            lambda lib, params: lib.SGD(params, lr=0.01),
            lambda rng: sequences(rng, 512),
        ),
        tolerance=1e-3,
    ),
]


# --- Showing ----------------------------------------------------------------------------------------------------------


def limits() -> dict[str, float]:
    """What the device does at most, by this run's own measure: a copy, in TB/s."""
    x = norch.randn(GIB, device=DEVICE)
    return {"TB/s": 8 * GIB / min(event_seconds("norch", lambda: x.clone()) for _ in range(10)) / 1e12}


def table(report: dict[str, Any]) -> str:
    """The rows, with what each must reach and how much of the device's limit it is."""
    lines = [f"{'':<34}{'precision':<10}{'norch':>10}{'torch':>10}{'must reach':>18}  {'of the copy':>12}"]
    for r in report["rows"]:
        if "refused" in r:
            lines.append(f"{r['name']:<34}  refused: {r['refused']}")
            continue
        ours, theirs = (f"{r['values'][n]:.2f}" if n in r["values"] else "-" for n in ("norch", "torch"))
        must = f"{r['must']} of torch" if r["relative"] else f"{r['must']:g} {r['unit']}"
        part = f"{r['values']['norch'] / report['limits']['TB/s']:.0%}" if r["unit"] == "TB/s" else ""
        named = f"{r['name']:<34}{r['precision']:<10}"
        lines.append(f"{named}{ours:>10}{theirs:>10}{must:>18}{' ' if r['held'] else '!'} {part:>12}".rstrip())
    held = sum(r["held"] for r in report["rows"])
    lines.append(f"{held} of {len(report['rows'])} held; ! marks one that is not. {report['device']}, copies at")
    lines[-1] += f" {report['limits']['TB/s']:.2f} TB/s; {report['versions']}"
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast norch is on a GPU, beside PyTorch.")
    parser.add_argument("--only", metavar="PATTERN", help="the rows whose name this regular expression finds")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    rows = [r for r in ROWS if not options.only or re.search(options.only, r.name, re.I)]
    versions = {"norch-core": norch.__version__, **norch.cuda.versions()}
    if torch is not None:
        versions["torch"] = torch.__version__
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": norch.cuda.get_device_name(),
        "versions": versions,
        "limits": limits(),
        "rows": [],
    }
    for row in rows:
        try:
            found = measure(row)
        except Exception as error:
            found = {"name": row.name, "unit": row.unit, "must": row.must, "held": False, "refused": f"{error}"[:300]}
        report["rows"].append(found)
        norch.cuda.empty_cache()
        if torch is not None:
            torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
