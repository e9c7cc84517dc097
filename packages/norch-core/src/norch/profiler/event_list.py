"""Lists of events, and what they add up to by name or by line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..observing import RECORD
from .event import FunctionEvent, Times, ancestors


class Average:
    """What calls with one key cost in all. Times are in microseconds."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = self.allocated = self.self_allocated = self.saved = self.flops = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.input_shapes: Any = ""
        self.stack: list[str] = []
        self.text = ""
        self.is_user_annotation = False

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cpu_memory_usage(self) -> int:
        """PyTorch's name for `allocated`."""
        return self.allocated

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.self_allocated

    device_memory_usage = cpu_memory_usage
    self_device_memory_usage = self_cpu_memory_usage
    cuda_time = device_time

    @property
    def cuda_time_total(self) -> float:
        return self.device_time_total

    @property
    def self_cuda_time_total(self) -> float:
        return self.self_device_time_total

    def add(self, event: FunctionEvent, outermost: bool) -> None:
        """Counts a call. outermost: it is within no other of this key."""
        self.count += 1
        self.self_cpu_time_total += event.self_cpu_time_total
        self.self_device_time_total += event.self_device_time_total
        self.self_allocated += event.allocated
        self.saved += event.saved
        self.flops += event.flops
        self.is_user_annotation = event.is_user_annotation
        if outermost:
            self.cpu_time_total += event.cpu_time_total
            self.device_time_total += event.device_time_total

    def __repr__(self) -> str:
        return f"<{self.key}: {self.count} calls, {self.cpu_time_total:.1f} us>"


class EventList(list[Any]):
    """Events in the order in which they began, or averages of them.

    events: its elements. times: what all events of their profile share.
    """

    def __init__(self, events: Iterable[Any], times: Times) -> None:
        super().__init__(events)
        self.times = times

    @property
    def self_cpu_time_total(self) -> float:
        """In microseconds: what was spent in any of them."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_line: bool = False
    ) -> EventList:
        """The events added up by name.

        group_by_input_shapes: by the shapes of arguments too. group_by_stack_n: by as many of the innermost lines of
        the stack too. group_by_line: by the line of the program alone; the backward pass counts for what it
        differentiates.
        """
        key = _by_line if group_by_line else _by(group_by_input_shapes, group_by_stack_n)
        found: dict[Any, Average] = {}
        keys: dict[int, Any] = {}
        for event in self:
            at = keys[id(event)] = key(event)
            average = found.get(at)
            if average is None:
                average = found[at] = Average(at[0])
                if group_by_line:
                    average.text = "" if event.line is None else event.line.text()
                average.stack = event.stack[:group_by_stack_n]
                if group_by_input_shapes:
                    average.input_shapes = str(event.input_shapes)
            outer = event.parent
            while outer is not None and keys.get(id(outer)) != at:
                outer = outer.parent
            average.add(event, outer is None)
        for event in self:
            if event.allocated:  # which counts for all that it is within, each key once
                for at in {keys.get(id(around)) for around in (event, *ancestors(event))} - {None}:
                    found[at].allocated += event.allocated
        return EventList(found.values(), self.times)

    def total_average(self) -> Average:
        """All of them as one."""
        total = Average("Total")
        for event in self:
            total.add(event, event.parent is None)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
    ) -> str:
        """The averages as a table. sort_by: "self_cpu_time_total", "cpu_time_total", "cpu_time", the same of "device"
        or "cuda", "cpu_memory_usage" (allocated), "saved", "count", "flops"; None leaves them in order. row_limit: how
        many rows; -1 for all. max_src_column_width, max_name_column_width, max_shapes_column_width: where lines, names
        and shapes are cut. header: a line above. top_level_events_only: without events that are within others.
        Raises AttributeError for another name."""
        from .table import table

        shown = (
            EventList([e for e in self if getattr(e, "parent", None) is None], self.times)
            if top_level_events_only
            else self
        )
        return table(
            shown, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header
        )

    def export_chrome_trace(self, path: str | Path) -> None:
        """Writes a trace to `path` that Perfetto and chrome://tracing open; compressed where that ends with ".gz"."""
        from .trace import write_trace

        write_trace(self, Path(path))

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Writes lines "outer;inner;op microseconds" to `path`, which flame-graph tools read. metric: that of the host,
        or "self_device_time_total" ("self_cuda_time_total"). Raises ValueError for another."""
        from .trace import write_stacks

        write_stacks(self, Path(path), metric)

    def export_html(self, path: str | Path) -> None:
        """Writes a page to `path` with a flame view, which any browser opens without a network."""
        from .flame import write_page

        write_page(self, Path(path))

    def __str__(self) -> str:
        return self.table()


def _by(shapes: bool, lines: int) -> Callable[[FunctionEvent], Any]:
    def key(event: FunctionEvent) -> Any:
        return (
            "ProfilerStep*" if event.name.startswith("ProfilerStep#") else event.name,
            event.kind == RECORD,
            str(event.input_shapes) if shapes else "",
            tuple(event.stack[:lines]) if lines else (),
        )

    return key


def _by_line(event: FunctionEvent) -> Any:
    return (str(event.line) if event.line is not None else "?",)
