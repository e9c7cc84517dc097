"""An event: what was called, when, where from, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..observing import CAPTURED, PASS, RECORD
from ..spec import Spec
from .flops import FORMULAS, flops_of

if TYPE_CHECKING:
    from ..device import Device
    from ..source_lines import Line
    from .device_times import DeviceSpan

COLLECTION = "collection"
"""The kind of what Python's garbage collector does."""
PYTHON = frozenset({RECORD, PASS, CAPTURED, COLLECTION})
"""Kinds whose own time is that of Python between ops."""


class Interval(NamedTuple):
    """From when to when, in microseconds since the profile began."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """How long that is."""
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
        """The name."""
        return self.name

    @property
    def time_range(self) -> Interval:
        """From when to when, since the profile began."""
        begin = self.times.start
        return Interval((self.start - begin) / 1e3, (self.end - begin) / 1e3)

    @property
    def cpu_time_total(self) -> float:
        """The time of the host, with what was called within."""
        return (self.end - self.start) / 1e3

    @property
    def self_cpu_time_total(self) -> float:
        """The time of the host, without what was called within."""
        return max(self.end - self.start - self.children_ns, 0) / 1e3

    cpu_time = cpu_time_total

    @property
    def self_device_time_total(self) -> float:
        """The time on the device between the beginning and the end of its own kernels; 0 for what is made of parts."""
        return self.span.ns / 1e3 if self.span is not None and self.span.ns > 0 else 0.0

    @property
    def device_time_total(self) -> float:
        """The time on the device, with what was called within."""
        return self.self_device_time_total + self.children_device_ns / 1e3

    device_time = cuda_time = cuda_time_total = device_time_total
    self_cuda_time_total = self_device_time_total

    @property
    def cpu_parent(self) -> FunctionEvent | None:
        """The call that it is within; None for an outermost one."""
        return self.parent

    @property
    def cpu_children(self) -> list[FunctionEvent]:
        """The calls right within it, in order."""
        children = self.times.children
        if not children:
            for event in self.times.events:
                children.setdefault(None if event.parent is None else event.parent.id, []).append(event)
        return children.get(self.id, [])

    @property
    def input_shapes(self) -> list[list[int]]:
        """The shape of each argument, [] for what is no tensor; [] altogether without `record_shapes`."""
        return [list(s.shape) if isinstance(s, Spec) else [] for s in self.specs or ()]

    @property
    def input_dtypes(self) -> list[str]:
        """The dtype of each argument, "" for what is no tensor; [] altogether without `record_shapes`."""
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
        """Whether `record_function` made it."""
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
    children: dict[int | None, list[FunctionEvent]]
    """By the number of an event, those within it: filled when it is first asked for."""
    overhead: float
    """Nanoseconds that the profiler itself adds to a call."""
    captured: dict[str, str]
    """By name of a captured step that was replayed, what its report says."""
    device_type: str | None
    with_memory: bool
    thread: int


def ancestors(event: FunctionEvent) -> Iterator[FunctionEvent]:
    """What an event is within, the innermost first."""
    outer = event.parent
    while outer is not None:
        yield outer
        outer = outer.parent


def is_python(event: FunctionEvent) -> bool:
    """Whether the event's own time is that of Python between ops."""
    return event.kind in PYTHON
