"""The chart of benchmarks/cpu.py: norch's time over PyTorch's, a bar a row."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
from cpu import DISTURBED

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

HELD, OVER, INK, PALE = "#2a7f9e", "#d1603d", "#222222", "#dddddd"
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Writes the chart of a report that has ratios to `path`; bars start at 1, as fast as PyTorch."""
    rows = [r for r in report["rows"] if "held" in r]
    drawn = [r for r in rows if "ratio" in r]
    if not drawn:
        raise SystemExit("--png: there is no ratio to draw")
    places, heads, at = [], [], 0.0
    for index, row in enumerate(rows):
        if not index or row["group"] != rows[index - 1]["group"]:
            at += 0.4 if index else 0.0
            heads.append((at, row["group"]))
            at += 1.0
        places.append(at)
        at += 1.0
    figure, axes = plt.subplots(figsize=(9, 1.6 + 0.23 * at), layout="constrained")
    low = max(0.03, min(min(r["ratio"], r["at_most"]) for r in drawn) / 1.2)
    high = min(40.0, max(1.3, *(r["ratio"] * 1.1 for r in drawn)))
    colours = [HELD if r["held"] else OVER for r in rows]
    ends = [min(max(r.get("ratio", 1), low), high) for r in rows]
    axes.barh(places, [end - 1 for end in ends], left=1, height=0.62, color=colours, zorder=2)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(at - 0.3, -0.7)
    for place, row in zip(places, rows):
        axes.plot([row["at_most"]] * 2, [place - 0.42, place + 0.42], color=INK, linewidth=1.8, zorder=4)
        _beside(
            axes,
            place,
            44,
            f"{row['ratio']:.2f}" if "ratio" in row else "refused",
            weight="bold",
            color=HELD if row["held"] else OVER,
        )
        _beside(axes, place, 92, f"{row['at_most']:.2f}", color=INK)
        if row["others"] > DISTURBED:
            _beside(axes, place, 104, "~", color=INK)
    _beside(axes, 0, 44, "ratio", color=INK)
    _beside(axes, 0, 92, "at most", color=INK)
    axes.set_yticks(places, [r["name"] for r in rows], fontsize=8.5)
    for place, head in heads:
        axes.annotate(
            head,
            (0, place),
            xycoords=("axes fraction", "data"),
            xytext=(-6, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8.5,
            weight="bold",
        )
    _dress(axes, report, low, high)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _beside(axes: Any, place: float, points: float, text: str, **style: Any) -> None:
    """Text to the right of the axes, which ends so many points from them."""
    axes.annotate(
        text,
        (1, place),
        xycoords=("axes fraction", "data"),
        xytext=(points, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=8.5,
        annotation_clip=False,
        **style,
    )


def _dress(axes: Any, report: Mapping[str, Any], low: float, high: float) -> None:
    """Ticks, grid, title and key."""
    ticks = [t for t in TICKS if low <= t <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(axis="x", color=PALE, linewidth=0.8, zorder=0)
    axes.axvline(1, color=INK, linewidth=0.8, zorder=3)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("norch's time / PyTorch's (less is faster)")
    versions = report["versions"]
    built = f" ({report['instruction_set']})" if report["instruction_set"] else ""
    under = (
        f"{report['backend']}{built}, PyTorch {versions['torch']}, {report['threads']} threads, {report['date'][:10]}"
    )
    if any(r["others"] > DISTURBED for r in report["rows"]):
        under += f"\n~ other processes took over {DISTURBED:.0%} of the processors' time: this row tells little"
    key = [
        Patch(color=HELD, label="limit held"),
        Patch(color=OVER, label="limit not held"),
        Line2D([], [], color=INK, linewidth=1.8, label="at most"),
    ]
    axes.set_title(f"norch and PyTorch on {report['cpu']}\n{under}", loc="left", fontsize=10)
    axes.figure.legend(handles=key, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
