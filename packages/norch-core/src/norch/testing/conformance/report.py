"""What the kit found: a table by op, dtype and level, the smallest failing cases as scripts, JSON, and a badge."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...backend.contract import CONTRACT
from .case import LEVELS, Case


@dataclass(frozen=True)
class Result:
    """A case with what it raised (None if it passed), or why it was not tried, or the dtype that the device lacks for
    it."""

    case: Case
    error: str | None
    skipped: str | None = None
    without: str | None = None


@dataclass
class Report:
    """All results for a device."""

    device: str
    distribution: str
    levels: tuple[int, ...]
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0
    missing_dtypes: dict[str, str] = field(default_factory=dict)

    @property
    def failures(self) -> list[Result]:
        """Of each op and level the smallest case that fails, by level."""
        found: dict[tuple[int, str], Result] = {}
        for r in self.results:
            key = r.case.level, r.case.op
            if r.error and (key not in found or r.case.size < found[key].case.size):
                found[key] = r
        return sorted(found.values(), key=lambda r: (r.case.level, r.case.size))

    @property
    def level(self) -> int:
        """The highest level that is reached: it and all below it were tried and passed, but for missing dtypes."""
        reached = 0
        for level in LEVELS:
            results = [r for r in self.results if r.case.level == level]
            if all(r.without for r in results) or any(r.error or r.skipped for r in results):
                break
            reached = level
        return reached

    @property
    def passed(self) -> bool:
        return not any(r.error for r in self.results)

    def badge(self) -> str:
        """A line of Markdown."""
        colour = "brightgreen" if self.level == len(LEVELS) else "yellow" if self.level >= 4 else "red"
        reached = f"level {self.level} of {len(LEVELS)}{self._but}"
        label = f"norch_{CONTRACT[0]}.{CONTRACT[1]}-{reached.replace(' ', '_').replace(',', '')}-{colour}"
        return f"![norch conformance: {reached}](https://img.shields.io/badge/{label})"

    @property
    def _but(self) -> str:
        return f" without {', '.join(self.missing_dtypes)}" if self.missing_dtypes else ""

    def json(self) -> dict[str, Any]:
        """Everything but the cases that passed, which are counted."""
        return {
            "device": self.device,
            "distribution": self.distribution,
            "contract": list(CONTRACT),
            "level": self.level,
            "passed": self.passed,
            "seconds": round(self.seconds, 1),
            "levels": [
                {"level": n, "name": LEVELS[n], **_counts(r for r in self.results if r.case.level == n)}
                for n in self.levels
            ],
            "ops": [
                {"op": op, "dtype": dtype, "level": level, **_counts(rows)}
                for (level, op, dtype), rows in sorted(self._by_row().items())
            ],
            "failures": [
                {"case": r.case.id, "error": r.error, "script": r.case.snippet(self.device)} for r in self.failures
            ],
            "skipped": [{"case": r.case.id, "reason": r.skipped} for r in self.results if r.skipped],
            "missing_dtypes": self.missing_dtypes,
            "without": {dtype: self.not_tried(dtype) for dtype in self.missing_dtypes},
        }

    def not_tried(self, dtype: str) -> dict[str, int]:
        """By op how many cases were not tried because the device lacks a dtype."""
        found: dict[str, int] = {}
        for r in self.results:
            if r.without == dtype:
                found[r.case.op] = found.get(r.case.op, 0) + 1
        return found

    def _lacks(self) -> list[str]:
        """A line for each missing dtype, and the ops of which no case at all could be tried."""
        lines = []
        tried = {r.case.op for r in self.results if not r.without}
        for dtype, reason in self.missing_dtypes.items():
            ops = self.not_tried(dtype)
            instead = "; derivatives were tried in float32" if dtype == "float64" and 5 in self.levels else ""
            lines.append(f"no {dtype} ({reason}): {sum(ops.values())} cases of {len(ops)} ops were not tried{instead}")
            lost = sorted(set(ops) - tried)
            if lost:
                text = f"of these none: {', '.join(lost)}"
                lines += textwrap.wrap(text, 110, initial_indent="    ", subsequent_indent="    ")
        return lines

    def _by_row(self) -> dict[tuple[int, str, str], list[Result]]:
        rows: dict[tuple[int, str, str], list[Result]] = {}
        for r in self.results:
            rows.setdefault((r.case.level, r.case.op, r.case.dtype), []).append(r)
        return rows

    def text(self, *, scripts: int = 3) -> str:
        """The table, then the smallest failing cases, the first `scripts` of them as scripts."""
        lines = [f"norch conformance of {self.device} ({self.distribution})", "", *self._table(), ""]
        for n in self.levels:
            counts = _counts(r for r in self.results if r.case.level == n)
            state = "failed" if counts["failed"] else "skipped" if counts["skipped"] else "passed"
            shown = f"{state}: {', '.join(f'{v} {k}' for k, v in counts.items() if v)}" if any(counts.values()) else "-"
            lines.append(f"level {n}  {LEVELS[n]:<24}{shown}")
        reasons = dict.fromkeys(r.skipped for r in self.results if r.skipped)
        lines += [f"skipped: {reason}" for reason in reasons] + self._lacks()
        failures = self.failures
        for i, r in enumerate(failures):
            lines += ["", f"FAILED {r.case.id}", textwrap.indent(_shortened(str(r.error)), "    ")]
            if i < scripts:
                lines += ["", textwrap.indent(r.case.snippet(self.device), "        ")]
        verdict = f"level {self.level} of {len(LEVELS)}{self._but}"
        if self.passed and not self.level:
            verdict = "all of these passed (a level is reached by all ops, from level 1 up)"
        lines += ["", f"{verdict} in {self.seconds:.1f} s"]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """A line for each op: by level how many cases passed, or which dtypes failed."""
        columns = [n for n in self.levels if any(r.case.level == n for r in self.results)]
        ops = dict.fromkeys(r.case.op for r in sorted(self.results, key=lambda r: (r.case.level, r.case.op)))
        rows = self._by_row()
        body = []
        for op in ops:
            cells = [op]
            for n in columns:
                own = {d: _counts(found) for (level, o, d), found in rows.items() if level == n and o == op}
                failed = [d for d, counts in own.items() if counts["failed"]]
                total = sum(counts["passed"] for counts in own.values())
                cells.append(f"FAIL {', '.join(failed)}" if failed else str(total) if total else "-" if own else "")
            body.append(cells)
        failing = [line for line in body if any(c.startswith("FAIL") for c in line)]
        shown = failing or body
        head = ["op", *(f"level {n}" for n in columns)]
        widths = [max(len(line[i]) for line in (head, *shown)) + 2 for i in range(len(head))]
        lines = ["".join(f"{c:<{w}}" for c, w in zip(line, widths)).rstrip() for line in (head, *shown)]
        others = len(body) - len(shown)
        return lines + ([f"({others} other ops passed)"] if others else [])


def _counts(results: Iterable[Result]) -> dict[str, int]:
    counts = {"passed": 0, "failed": 0, "skipped": 0, "not tried": 0}
    for r in results:
        counts["failed" if r.error else "skipped" if r.skipped else "not tried" if r.without else "passed"] += 1
    return counts


def _shortened(text: str, most: int = 1200) -> str:
    return text if len(text) <= most else text[:most] + " ..."


def levels_of(text: str) -> Sequence[int]:
    """The levels that a user wrote: "3", "1-4", "2,4,8"."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    if not found or not set(found) <= set(LEVELS):
        raise ValueError(f"levels are 1 to {len(LEVELS)}, such as 3 or 1-4 or 2,4,8; got {text!r}")
    return sorted(set(found))
