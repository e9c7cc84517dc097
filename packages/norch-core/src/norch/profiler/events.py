"""Events: what was called, when, where from, and what it cost. Lists of them, and their averages by name or line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..observing import CAPTURED, PASS, RECORD
from ..spec import Spec
from .flops import FORMULAS, flops_of

if TYPE_CHECKING:
    from ..device import Device
    from ..source_lines import Line
    from .device_times import DeviceSpan

NAMES_OF_PARTS = frozenset({RECORD, PASS, CAPTURED})
"""Kinds whose own time is that of Python between ops."""


class Interval(NamedTuple):
    """From when to when, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


class FunctionEvent:
    """One call.

    name, kind: see `norch.observing`. start, end: of the host, in ns. parent: the call that it is within. line: the
    line of the program that led to it, in a backward pass that of the op which is differentiated. sequence_nr: the
    number of the node that the op recorded, or that the backward pass visits: the same for both; -1 for none.
    is_backward: whether it is a node of a backward pass, or within one. specs: of its tensors (None for what is none),
    where they were asked for. device: where it ran. allocated, saved: bytes of its results, and of what the graph keeps
    for it. failed: whether it raised.
    """

    __slots__ = (
        "allocated", "args", "children_device_ns", "children_ns", "device", "end", "failed", "id",
        "is_backward", "kind", "line", "name", "op", "out", "parent", "saved", "sequence_nr", "span", "specs", "start",
        "steps", "thread", "times",
    )  # fmt: skip

    name: str
    kind: str
    op: Any
    thread: int
    start: int
    end: int
    parent: FunctionEvent | None
    line: Line | None
    steps: tuple[Line, ...] | None  # the whole stack, innermost first
    sequence_nr: int
    is_backward: bool
    specs: tuple[Any, ...] | None
    out: Spec | None
    args: Any
    device: Device | None
    span: DeviceSpan | None
    allocated: int
    saved: int
    failed: bool
    children_ns: int
    children_device_ns: float
    times: Times
    id: int

    # --- PyTorch's names, in microseconds -----------------------------------------------------------------------------

    count = 1
    is_async = False
    is_remote = False
    is_legacy = False

    @property
    def key(self) -> str:
        return self.name

    @property
    def time_range(self) -> Interval:
        begin = self.times.start
        return Interval((self.start - begin) / 1e3, (self.end - begin) / 1e3)

    @property
    def cpu_time_total(self) -> float:
        return (self.end - self.start) / 1e3

    @property
    def self_cpu_time_total(self) -> float:
        return max(self.end - self.start - self.children_ns, 0) / 1e3

    cpu_time = cpu_time_total

    @property
    def self_device_time_total(self) -> float:
        """The time on the device between the beginning and the end of its own kernels; 0 for what is made of parts."""
        return self.span.ns / 1e3 if self.span is not None and self.span.ns > 0 else 0.0

    @property
    def device_time_total(self) -> float:
        return self.self_device_time_total + self.children_device_ns / 1e3

    device_time = cuda_time = cuda_time_total = device_time_total
    self_cuda_time_total = self_device_time_total

    @property
    def cpu_parent(self) -> FunctionEvent | None:
        return self.parent

    @property
    def cpu_children(self) -> list[FunctionEvent]:
        return [event for event in self.times.events if event.parent is self]

    @property
    def input_shapes(self) -> list[list[int]]:
        """The shape of each argument, [] for what is no tensor; [] altogether without `record_shapes`."""
        return [list(s.shape) if isinstance(s, Spec) else [] for s in self.specs or ()]

    @property
    def input_dtypes(self) -> list[str]:
        return [s.dtype.name if isinstance(s, Spec) else "" for s in self.specs or ()]

    @property
    def flops(self) -> int:
        """Floating-point operations of a matrix product or convolution, from its shapes; 0 where they are not known."""
        if self.op is None or self.specs is None or self.op.name not in FORMULAS:
            return 0
        if any(outer.op is not None and outer.op.name in FORMULAS for outer in ancestors(self)):
            return 0  # they are counted there
        return flops_of(self.op.name, self.specs, self.out)

    @property
    def stack(self) -> list[str]:
        """Lines of the program, innermost first: with `with_stack` all of them, else the one that led to the call."""
        lines = self.steps if self.steps is not None else () if self.line is None else (self.line,)
        return [f"{line.filename}({line.lineno}): {line.function}" for line in lines]

    @property
    def is_user_annotation(self) -> bool:
        return self.kind == RECORD

    def __repr__(self) -> str:
        at = "" if self.line is None else f" at {self.line}"
        return f"<{self.name}{at}: {self.cpu_time_total:.1f} us>"


class Times(NamedTuple):
    """What the events of one profile share: when it began and ended (ns), and all of them."""

    start: int
    end: int
    epoch: int
    events: list[FunctionEvent]
    overhead: float
    """Nanoseconds that the profiler itself adds to a call."""
    captured: dict[str, str]
    """By name of a captured step that was replayed, what its report says."""
    device_type: str | None
    with_memory: bool
    thread: int


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
    """Events in the order in which they began, or averages of them."""

    def __init__(self, events: Iterable[Any], times: Times) -> None:
        super().__init__(events)
        self.times = times

    @property
    def self_cpu_time_total(self) -> float:
        """In microseconds: what was spent in any of them."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_line: bool = False
    ) -> EventList:
        """The events added up by name; and by the shapes of arguments, or by the innermost `group_by_stack_n` lines of
        the stack; or by the line of the program alone, that of the backward pass with what it differentiates."""
        key = _by_line if group_by_line else _by(group_by_input_shape, group_by_stack_n)
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
                if group_by_input_shape:
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
        many rows; -1 for all. Raises AttributeError for another name."""
        from .table import table

        return table(
            self, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header
        )

    def export_chrome_trace(self, path: str | Path) -> None:
        """Writes a trace that Perfetto and chrome://tracing open; compressed where the path ends with ".gz"."""
        from .trace import write_trace

        write_trace(self, Path(path))

    def export_stacks(self, path: str | Path, metric: str = "self_cpu_time_total") -> None:
        """Writes lines "outer;inner;op microseconds", which flame-graph tools read. metric: that, or
        "self_device_time_total" ("self_cuda_time_total")."""
        from .trace import write_stacks

        write_stacks(self, Path(path), metric)

    def export_html(self, path: str | Path) -> None:
        """Writes a page with a flame view, which any browser opens without a network."""
        from .flame import write_page

        write_page(self, Path(path))

    def __str__(self) -> str:
        return self.table()


def _by(shapes: bool, lines: int) -> Callable[[FunctionEvent], Any]:
    def key(event: FunctionEvent) -> Any:
        return (
            event.name,
            event.kind == RECORD,
            str(event.input_shapes) if shapes else "",
            tuple(event.stack[:lines]) if lines else (),
        )

    return key


def _by_line(event: FunctionEvent) -> Any:
    return (str(event.line) if event.line is not None else "?",)


def ancestors(event: FunctionEvent) -> Iterator[FunctionEvent]:
    """What an event is within, the innermost first."""
    outer = event.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def is_python(event: FunctionEvent) -> bool:
    """Whether the event's own time is that of Python between ops."""
    return event.kind in NAMES_OF_PARTS
