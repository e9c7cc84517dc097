"""What is asked of norch on an H200, what it reached, and PyTorch's figure of the same run, as one table.

The figures are read from the JSON files that the other benchmarks of this folder write (`--json FOLDER/NAME.json`).

    python benchmarks/cuda_targets.py FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMANDS: dict[str, list[str]] = {
    "gpt2": ["cuda_gpt2.py", "--steps", "4", "--kinds", "captured,compiled"],
    "images": ["cuda_images.py", "--only", "bf16|tf32", "--layouts", "NHWC"],
    "attention": ["cuda_attention.py"],
    "capture": ["cuda_capture.py", "--torch"],
    "rnn": ["cuda_rnn.py"],
    "host": ["cuda_host.py"],
    "linalg": ["cuda_linalg.py"],
    "ops": ["cuda.py"],
}
"""The benchmarks by the names of their files of figures."""


@dataclass(frozen=True)
class Target:
    """A figure: where in which file it lies, and what it must be.

    ours, theirs: keys one below the other; a dict stands for the one element of a list that has all of it.
    better: "higher" or "lower". relative: asked is a part of PyTorch's. convert: what the file has into the unit.
    """

    name: str
    asked: float
    unit: str
    better: str
    file: str
    ours: tuple[Any, ...]
    theirs: tuple[Any, ...] = ()
    relative: bool = False
    convert: Callable[[float], float] = float


def _images(name: str, precision: str, unit: str, asked: float, layout: str = "NHWC") -> Target:
    row = {"name": name, "precision": precision, "layout": layout}
    shown = f"{name.partition(',')[0]}, {precision}"
    if unit == "images/s":
        rate: Callable[[float], float] = lambda ms: 256e3 / ms  # noqa: E731
        ours, theirs = ("rows", row, "captured"), ("rows", row, "torch")
        return Target(f"{shown}, training", asked, unit, "higher", "images", ours, theirs, convert=rate)
    if unit == "ms":
        ours, theirs = ("rows", row, "captured"), ("rows", row, "torch")
        return Target(f"{shown}, training", asked, unit, "lower", "images", ours, theirs)
    ours, theirs = ("rows", row, "norch"), ("rows", row, "torch")
    return Target(f"{name}, {precision}", asked, unit, "higher", "images", ours, theirs, relative=True)


CONVOLUTIONS = ("conv 3x3 64 to 64, 32 px", "conv 3x3 256 to 256, 8 px", "conv 1x1 128 to 512, 16 px")
ATTENTION = {"name": "4x16x4096x64", "precision": "bf16"}
CHAIN = "x*sigmoid(1.7x)+x 268435456 float32"

TARGETS = [
    Target("GPT-2 124M, bf16, training", 530e3, "tokens/s", "higher", "gpt2",
           ("captured", "training"), ("compiled", "training")),
    Target("GPT-2 124M, bf16, forward", 1.75e6, "tokens/s", "higher", "gpt2",
           ("captured", "forward"), ("compiled", "forward")),
    Target("GPT-2 124M, bf16, peak memory", 9.2, "GB", "lower", "gpt2", ("captured", "memory"), ("compiled", "memory")),
    *(
        Target(f"attention, bf16 causal, {way}, asked {where}", asked, "TFLOP/s", "higher", "attention",
               ("rows", {**ATTENTION, "way": way}, "norch"), ("rows", {**ATTENTION, "way": way}, "torch"))
        for where, figures in (("with cuDNN", (405, 350)), ("without", (330, 240)))
        for way, asked in zip(("forward", "both"), figures, strict=True)
    ),
    _images("ResNet-18, 32 px, batch 256", "bf16", "images/s", 42e3),
    _images("ResNet-18, 32 px, batch 256", "tf32", "images/s", 34e3),
    *(_images(name, precision, "TFLOP/s", 0.97) for name in CONVOLUTIONS for precision in ("bf16", "tf32")),
    _images("U-Net, 64 px, batch 32", "tf32", "ms", 5.0),
    _images("U-Net, 64 px, batch 32", "bf16", "ms", 3.5),
    *(
        Target(f"LSTM 2x512, 32 x 64, {precision}, asked {where}", asked, "ms", "lower", "rnn",
               (precision, "norch"), (precision, "torch"))
        for precision in ("tf32", "float32") for where, asked in (("with cuDNN", 5.0), ("without", 7.0))
    ),
    Target("MLP in a recorded graph", 65, "us", "lower", "capture",
           ("steps", "MLP, batch 64", "captured"), ("steps", "MLP, batch 64", "torch")),
    Target("tiny GPT in a recorded graph", 640, "us", "lower", "capture",
           ("steps", "GPT 4x128, batch 16", "captured"), ("steps", "GPT 4x128, batch 16", "torch")),
    Target("x*sigmoid(1.7x)+x captured, useful", 2.9, "TB/s", "higher", "capture", ("chains", CHAIN, "fused")),
    Target("host time of recorded ops, mean", 0.6, "of PyTorch's", "lower", "host", ("recorded, mean ratio",)),
    Target("host time of item()", 1.0, "us", "lower", "host",
           ("others", "item()", "norch"), ("others", "item()", "torch"), relative=True),
    Target("host time of a[index]", 1.0, "us", "lower", "host",
           ("others", "a[index]", "norch"), ("others", "a[index]", "torch"), relative=True),
    Target("host time of a stream's context", 1.0, "us", "lower", "host",
           ("others", "with stream", "norch"), ("others", "with stream", "torch"), relative=True),
    Target("linear algebra, float32, mean", 1.0, "of PyTorch's", "lower", "linalg", ("mean ratio",)),
]  # fmt: skip


def at(report: Any, path: tuple[Any, ...]) -> Any:
    """What lies there; None where there is nothing."""
    for key in path:
        if isinstance(key, dict):
            found = [row for row in report or () if key.items() <= row.items()]
            report = found[0] if found else None
        else:
            report = report.get(key) if isinstance(report, dict) else None
    return report


def results(folder: Path) -> list[dict[str, Any]]:
    """A row for each target: asked, reached, PyTorch's figure (None where it was not measured), and if it holds."""
    reports = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    rows = []
    for t in TARGETS:
        ours, theirs = (at(reports.get(t.file), path) if path else None for path in (t.ours, t.theirs))
        ours, theirs = (None if v is None else t.convert(v) for v in (ours, theirs))
        bound = t.asked if not t.relative else None if theirs is None else t.asked * theirs
        held = None not in (ours, bound) and (ours >= bound if t.better == "higher" else ours <= bound)
        row = {"name": t.name, "asked": t.asked, "unit": t.unit, "better": t.better, "relative": t.relative}
        rows.append(row | {"reached": ours, "torch": theirs, "held": bool(held)})
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    def number(value: Any) -> str:
        return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"

    lines = [f"{'':<44}{'asked':>22}{'reached':>12}{'PyTorch':>12}"]
    for row in rows:
        asked = f"{'>=' if row['better'] == 'higher' else '<='} {number(row['asked'])} "
        asked += "of PyTorch's" if row["relative"] else row["unit"]
        mark = "" if row["held"] else " !" if row["reached"] is not None else " ?"
        lines.append(f"{row['name']:<44}{asked:>22}{number(row['reached']):>12}{number(row['torch']):>12}{mark}")
    lines.append(f"{sum(r['held'] for r in rows)} of {len(rows)} hold; ! marks what does not, ? what was not measured.")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(results(Path(sys.argv[1]))))
