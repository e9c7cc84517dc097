"""The charts and tables of benchmarks.md, from the committed results of benchmarks/results."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from norch.inspection.svg import Drawing, text_width

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
Report = dict[str, Any]


@dataclass
class Row:
    """A measurement beside PyTorch's. `ratio`: norch's time over PyTorch's."""

    group: str
    name: str
    ratio: float
    norch: str
    torch: str


def _cpu(report: Report) -> Iterable[Row]:
    for r in report["rows"]:
        if "torch" in r["us"]:
            yield Row(r["group"], r["name"], r["ratio"], _time(r["us"]["norch"]), _time(r["us"]["torch"]))


def _capture(report: Report) -> Iterable[Row]:
    for name, r in report["rows"].items():
        yield Row("as it is", name, r["eager"] / r["torch"], _time(r["eager"]), _time(r["torch"]))
    for name, r in report["rows"].items():
        yield Row("captured", name, r["captured"] / r["torch"], _time(r["captured"]), _time(r["torch"]))


def _gpu(report: Report) -> Iterable[Row]:
    for r in report["rows"]:
        group = {"us of host": "overhead", "us": "training step"}.get(r["unit"], r["unit"])
        unit = r["unit"].removesuffix(" of host")
        norch, torch = (f"{r['values'][k]:.3g} {unit}" for k in ("norch", "torch"))
        yield Row(group, r["name"], r["time_ratio"], norch, torch)


def _models(report: Report) -> Iterable[Row]:
    for r in report["networks"]["rows"]:
        name = f"{r['model']}, {r['precision']} {r['layout']}"
        yield Row("training step", name, r["norch"] / r["torch"], f"{r['norch']} ms", f"{r['torch']} ms")
    for r in report["networks"]["rows"]:
        name = f"{r['model']}, {r['precision']} {r['layout']}"
        yield Row("captured step", name, r["captured"] / r["torch"], f"{r['captured']} ms", f"{r['torch']} ms")
    for r in report["recurrent"]["rows"]:
        name = f"{r['kind']} {r['layers']} x {r['hidden']}, {r['batch']} x {r['steps']}, {r['precision']}"
        yield Row("recurrent, step", name, r["norch"] / r["torch"], f"{r['norch']} ms", f"{r['torch']} ms")
    for r in report["attention"]["rows"]:
        best = max(r["torch cuDNN"], r["torch flash"])
        name = f"{r['shape']}{', causal' if r['causal'] else ''}, {r['way']}"
        yield Row("attention, bf16", name, best / r["norch"], f"{r['norch']} TFLOP/s", f"{best} TFLOP/s")
    for r in report["convolutions"]["rows"]:
        name = f"{r['conv']}, {r['precision']} {r['layout']}"
        yield Row("convolution", name, r["torch"] / r["norch"], f"{r['norch']} TFLOP/s", f"{r['torch']} TFLOP/s")


CHARTS: dict[str, Callable[[Report], Iterable[Row]]] = {
    "cpu": _cpu,
    "capture": _capture,
    "h200": _gpu,
    "h200_models": _models,
}


def page(text: str) -> tuple[str, dict[str, str]]:
    """The page with the parts between `<!-- results NAME -->` and `<!-- end -->` written anew, and its pictures."""
    pictures = {}
    for name, rows in CHARTS.items():
        report = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        drawn = list(rows(report))
        file = f"benchmark_{name}.svg"
        pictures[file] = chart(drawn).svg(standalone=True)
        before, start, rest = text.partition(f"<!-- results {name} -->\n")
        _, end, after = rest.partition("<!-- end -->\n")
        if not start or not end:
            raise ValueError(f"benchmarks.md has no place for {name}")
        text = f"{before}{start}{_part(name, file, report, drawn)}{end}{after}"
    return text, pictures


def _part(name: str, file: str, report: Report, rows: list[Row]) -> str:
    quicker = sum(r.ratio < 1 for r in rows)
    lines = [
        "",
        f"![norch's time over PyTorch's: {quicker} of {len(rows)} rows are below 1](pictures/{file})",
        "",
        f"*{_machine(report)}. Less is faster: norch is, in {quicker} of {len(rows)} rows.*",
        "",
        f"The numbers ([{name}.json](../benchmarks/results/{name}.json)):",
        "",
        "| | norch | PyTorch | time ratio |",
        "| --- | --- | --- | --- |",
    ]
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append(f"| **{group}** | | | |")
        lines.append(f"| {row.name} | {row.norch} | {row.torch} | {row.ratio:.2f} |")
    return "\n".join(lines) + "\n\n"


def _machine(report: Report) -> str:
    where = report.get("device") or f"{report['cpu']}, {report['cores']} cores ({report['instruction_set']})"
    versions = report["versions"]
    parts = {p["commit"] for p in report.values() if isinstance(p, dict) and "commit" in p}
    commit = f"commit {report['commit'][:12]}" if "commit" in report else f"commits {', '.join(sorted(parts))}"
    return f"{where}; PyTorch {versions['torch']}; {report['date'][:10]}; {commit}"


def _time(us: float) -> str:
    """Three digits, in the unit that suits."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if us >= size:
            return f"{us / size:.3g} {unit}"
    return f"{us:.3g} us"


def chart(rows: list[Row]) -> Drawing:
    """A bar a row, from 1 to the ratio, on a logarithmic scale: to the left where norch is faster."""
    drawing = Drawing("norch's time over PyTorch's")
    left, width = 8 + max(text_width(r.name, 12) for r in rows) * 0.88, 380
    low, high = min(0.2, *(r.ratio for r in rows)) / 1.15, max(2.0, *(r.ratio for r in rows)) * 1.15
    scale = width / math.log(high / low)

    def x(ratio: float) -> float:
        return left + math.log(ratio / low) * scale

    y, group, top = 24.0, "", 20.0
    places: list[tuple[float, Row]] = []
    heads: list[tuple[float, str]] = []
    for row in rows:
        if row.group != group:
            group = row.group
            y += 8
            heads.append((y, group))
            y += 20
        places.append((y, row))
        y += 18
    for tick in TICKS:
        if low < tick < high:
            drawing.line([(x(tick), top), (x(tick), y)], dashed=tick != 1)
            drawing.text(x(tick), top - 6, f"{tick:g}", anchor="middle", size=11, muted=True)
    for at, head in heads:
        drawing.text(0, at + 10, head, bold=True, size=12)
    for at, row in places:
        drawing.text(left - 8, at + 10, row.name, anchor="end", size=12)
        begin, end = sorted((x(1), x(row.ratio)))
        tip = f"{row.name}: norch {row.norch}, PyTorch {row.torch}"
        drawing.rect(begin, at, max(end - begin, 1), 13, "blue" if row.ratio <= 1 else "orange", radius=2, tip=tip)
        drawing.text(left + width + 40, at + 10, f"{row.ratio:.2f}", anchor="end", size=12, bold=row.ratio > 1)
    return drawing
