"""What a Timer has measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_ROUGH = 0.1
"""The spread, as a part of the median, from which a measurement is told to be unsure."""


@dataclass(frozen=True)
class TaskSpec:
    """What was measured: a statement, and what tables show of it."""

    stmt: str
    setup: str = ""
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """Its label, or the statement, and its sub_label."""
        name = self.label or (self.stmt if "\n" not in self.stmt else "[multi-line stmt]")
        return name + (f": {self.sub_label}" if self.sub_label else "")


def unit_of(seconds: float) -> tuple[str, float]:
    """The unit in which a time is between 1 and 1,000, and its length in seconds."""
    name = next((u for u in reversed(_UNITS) if seconds >= _UNITS[u]), "ns")
    return name, _UNITS[name]


@dataclass
class Measurement:
    """Times of one statement. raw_times: in seconds, each of `number_per_run` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """In seconds a run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.times)

    @property
    def iqr(self) -> float:
        """The distance between the first and the third quartile."""
        if len(self.raw_times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    @property
    def significant_figures(self) -> int:
        """How many digits of the median the spread leaves."""
        sure = self.iqr / 1.35 * 2 * 1.645 / len(self.raw_times) ** 0.5
        return max(1, floor(log10(self.median / sure))) if sure else 4

    @property
    def has_warnings(self) -> bool:
        """Whether the times are spread over more than a tenth of the median."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _ROUGH) -> bool:
        """Whether they are spread over less than `threshold` of the median."""
        return self.iqr / self.median < threshold

    def __getattr__(self, name: str) -> Any:
        if name in ("stmt", "setup", "label", "sub_label", "description", "env", "num_threads", "title"):
            return getattr(self.task_spec, name)
        raise AttributeError(f"a Measurement has no {name!r}")

    def __repr__(self) -> str:
        unit, size = unit_of(self.median)
        lines = [f"{type(self).__module__}.{type(self).__name__}", self.task_spec.title]
        several = len(self.raw_times) > 1
        lines.append(f"  {'Median' if several else 'Time'}: {self.median / size:.2f} {unit}")
        if several:
            lines.append(f"  IQR:    {self.iqr / size:.2f} {unit}")
        threads = self.task_spec.num_threads
        lines.append(f"  {len(self.raw_times)} measurements, {self.number_per_run} runs each, {threads} threads")
        if self.has_warnings:
            lines.append("  WARNING: the times are spread widely")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """`measurements`, those of one task as one, by times a run."""
        groups: dict[TaskSpec, list[float]] = {}
        for m in measurements:
            groups.setdefault(m.task_spec, []).extend(m.times)
        return [Measurement(1, times, task) for task, times in groups.items()]


def trimmed(value: float, digits: int) -> float:
    """A number with so many significant digits."""
    return 0.0 if not value else round(value, digits - ceil(log10(abs(value))))


def column_order(measurements: Sequence[Measurement]) -> list[str]:
    """The descriptions, in the order of their first measurement."""
    return list(dict.fromkeys(str(m.description or "") for m in measurements))
