"""Averages as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .event import FunctionEvent, is_python

if TYPE_CHECKING:
    from .event_list import EventList

_SORTS = {
    "cpu_time": "cpu_time", "cpu_time_total": "cpu_time_total", "self_cpu_time_total": "self_cpu_time_total",
    "cpu_memory_usage": "allocated", "self_cpu_memory_usage": "self_allocated", "allocated": "allocated",
    "self_allocated": "self_allocated", "saved": "saved", "count": "count", "flops": "flops",
}  # fmt: skip
for _kind in ("device", "cuda", "xpu"):
    _SORTS |= {
        f"{_kind}_time": "device_time", f"{_kind}_time_total": "device_time_total",
        f"self_{_kind}_time_total": "self_device_time_total", f"{_kind}_memory_usage": "allocated",
        f"self_{_kind}_memory_usage": "self_allocated",
    }  # fmt: skip


class Column(NamedTuple):
    title: str
    cells: list[str]
    left: bool = False


def time_text(us: float) -> str:
    """As PyTorch writes it: in us, ms or s."""
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def bytes_text(n: float) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{int(n)} B"


def flops_text(n: float) -> str:
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("KFLOP", 1e3)):
        if n >= size:
            return f"{n / size:.2f} {unit}"
    return f"{int(n)}" if n else "--"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 3]}..."


def table(
    events: EventList,
    sort_by: str | None,
    row_limit: int,
    source_width: int,
    name_width: int,
    shapes_width: int,
    header: str | None,
) -> str:
    rows: list[Any] = list(events)
    if sort_by is not None:
        if sort_by not in _SORTS:
            raise AttributeError(f"table(): cannot sort by {sort_by!r}; use one of {', '.join(_SORTS)}")
        attribute = _SORTS[sort_by]
        rows.sort(key=lambda row: getattr(row, attribute), reverse=True)
    host = sum(row.self_cpu_time_total for row in rows)
    device = sum(row.self_device_time_total for row in rows)
    shown = rows if row_limit < 0 else rows[:row_limit]
    columns = [Column("Name", [_short(row.key, name_width) for row in shown], True)]

    def add(title: str, cell: Any) -> None:
        columns.append(Column(title, [cell(row) for row in shown]))

    def percent(value: float, of: float) -> str:
        return f"{100 * value / of:.2f}%" if of else "--"

    times = events.times
    add("Self CPU %", lambda row: percent(row.self_cpu_time_total, host))
    add("Self CPU", lambda row: time_text(row.self_cpu_time_total))
    add("CPU total %", lambda row: percent(row.cpu_time_total, host))
    add("CPU total", lambda row: time_text(row.cpu_time_total))
    add("CPU time avg", lambda row: time_text(row.cpu_time))
    if times.device_type is not None:
        kind = times.device_type.upper()
        add(f"Self {kind}", lambda row: time_text(row.self_device_time_total))
        add(f"Self {kind} %", lambda row: percent(row.self_device_time_total, device))
        add(f"{kind} total", lambda row: time_text(row.device_time_total))
        add(f"{kind} time avg", lambda row: time_text(row.device_time))
    if times.with_memory:
        if not any(isinstance(row, FunctionEvent) for row in shown):
            add("Allocated", lambda row: bytes_text(row.allocated))
            add("Self Allocated", lambda row: bytes_text(row.self_allocated))
        add("Saved", lambda row: bytes_text(row.saved))
    add("# of Calls", lambda row: str(row.count))
    if any(getattr(row, "input_shapes", "") for row in shown):
        add("Input Shapes", lambda row: _short(str(row.input_shapes), shapes_width))
    if any(row.stack for row in shown) and not any(isinstance(row, FunctionEvent) for row in shown):
        add("Source Location", lambda row: _short("; ".join(row.stack), source_width))
    if any(getattr(row, "text", "") for row in shown):
        columns.append(Column("Source", [_short(row.text, source_width) for row in shown], True))
    if any(row.flops for row in shown):
        add("Total FLOPs", lambda row: flops_text(row.flops))
    lines = [header] if header else []
    lines += _laid_out(columns)
    lines.append(f"Self CPU time total: {time_text(host)}")
    if times.device_type is not None:
        lines.append(f"Self {times.device_type.upper()} time total: {time_text(device)}")
    return "\n".join([*lines, *_notes(events), ""])


def _laid_out(columns: list[Column]) -> list[str]:
    widths = [max(len(c.title), *map(len, c.cells), 0) if c.cells else len(c.title) for c in columns]
    rule = "  ".join("-" * width for width in widths)

    def line(cells: list[str]) -> str:
        parts = [f"{t:<{w}}" if c.left else f"{t:>{w}}" for t, w, c in zip(cells, widths, columns, strict=True)]
        return "  ".join(parts).rstrip()

    body = [line([c.cells[i] for c in columns]) for i in range(len(columns[0].cells))]
    return [rule, line([c.title for c in columns]), rule, *body, rule]


def _notes(events: EventList) -> list[str]:
    """How the times add up, and what captured steps hide."""
    times = events.times
    wall = (times.end - times.start) / 1e3
    inside = sum(e.self_cpu_time_total for e in times.events if e.thread == times.thread and not is_python(e))
    own = len(times.events) * times.overhead / 1e3
    notes = [
        f"Wall time: {time_text(wall)}, {100 * inside / max(wall, 1e-9):.1f} % in ops; the rest is Python between "
        f"them, the profiler's too ({times.overhead / 1e3:.1f} us a call: about {time_text(own)})"
    ]
    for name, report in times.captured.items():
        notes += [f"{name} is a captured step: a replay is one row, and what it runs says {name}.report():"]
        notes += [f"    {line}" for line in report.splitlines()]
    return notes
