"""Compare: measurements side by side."""

from __future__ import annotations

from collections.abc import Iterable

from .measurement import Measurement, column_order, trimmed, unit_of


class Compare:
    """Tables of measurements: one for each label, with a column for each description, and a row for each env and
    sub_label (or statement), by numbers of threads."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results = list(results)
        self._trims = self._warns = False

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Adds `results`."""
        self._results += results

    def trim_significant_figures(self) -> None:
        """From now on shows only the digits that the spread of the times leaves."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Accepted: tables have no colours. rowwise: which cells would be compared."""

    def highlight_warnings(self) -> None:
        """From now on marks times that are spread widely by "(!)"."""
        self._warns = True

    def print(self) -> None:
        """Prints `str(self)`."""
        print(self)

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = dict.fromkeys(str(m.label or "") for m in merged)
        return "\n".join(self._table(label, [m for m in merged if str(m.label or "") == label]) for label in labels)

    def _table(self, label: str, results: list[Measurement]) -> str:
        unit, size = unit_of(min(m.median for m in results))
        columns = column_order(results)
        lines = [["", *columns]]
        for threads in dict.fromkeys(m.num_threads for m in results):
            lines.append([f"{threads} threads:", *[""] * len(columns)])
            rows: dict[str, dict[str, Measurement]] = {}
            for m in results:
                if m.num_threads == threads:
                    name = (f"({m.env})  " if m.env else "") + str(m.sub_label or m.stmt)
                    rows.setdefault(name, {})[str(m.description or "")] = m
            lines += [[f"  {name}", *[self._cell(row.get(c), size) for c in columns]] for name, row in rows.items()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns) + 1)]
        written = [
            "  |  ".join([cells[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]])
            for cells in lines
        ]
        width = max(map(len, written))
        return "\n".join([f"[{label.center(width - 2, '-') if label else '-' * (width - 2)}]", *written, "",
                          f"Times are in {_NAMES[unit]} ({unit}).", ""])  # fmt: skip

    def _cell(self, m: Measurement | None, size: float) -> str:
        if m is None:
            return ""
        value = m.median / size
        if self._trims:
            value = trimmed(value, m.significant_figures)
        return ("(!) " if self._warns and m.has_warnings else "") + f"{value:.1f}"


_NAMES = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
