"""What notes events while a profile runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from threading import get_ident
from time import perf_counter_ns
from types import FrameType
from typing import Any

from ..autograd.graph import Leaf, Output
from ..device import Device
from ..observing import (
    CAPTURED,
    DECOMPOSED,
    FUNCTION,
    IN_PLACE,
    INTO,
    NODE,
    OP,
    PASS,
    RECORD,
    REPLAY,
    STEP,
    TRANSFER,
    Observed,
    Observer,
    leave,
)
from ..source_lines import Line, here, own_files
from ..spec import Spec
from ..tensor_base import TensorBase
from .device_times import DeviceClock
from .event import COLLECTION, FunctionEvent

_OF_DEVICE = frozenset({OP, INTO, IN_PLACE, STEP, TRANSFER, REPLAY})
"""Kinds that give a device work."""
_OF_PROGRAM = frozenset({RECORD, PASS, FUNCTION, CAPTURED})
"""Kinds within which lines of the program are looked for: what is called in an op has the op's line."""

_COLLECTION = Observed(COLLECTION, "garbage collection")


class Recorder(Observer):
    """Notes every event. `events` are in the order of their beginnings."""

    def __init__(self, shapes: bool, memory: bool, stacks: bool, clock: DeviceClock | None) -> None:
        self.shapes, self.memory, self.stacks, self.clock = shapes, memory, stacks, clock
        self.events: list[FunctionEvent] = []
        self._open: dict[int, list[FunctionEvent]] = {}
        """By thread, the events that it is in."""
        self._lines: dict[int, FunctionEvent] = {}
        """By sequence number, the event of the op that was recorded."""
        self.captured: dict[str, Any] = {}
        """By name, captured steps that were replayed."""
        self._collections: list[FunctionEvent | None] = []

    def entered(self, what: Observed, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        kind, name, op = what
        stack = self._open.get(get_ident())
        if stack is None:
            stack = self._open[get_ident()] = []
        parent = stack[-1] if stack else None
        if kind == DECOMPOSED:
            return None
        if op is not None and parent is not None and parent.op is op:
            return parent, args  # the same call, on its way through autocast, vmap or a form of the op
        event: FunctionEvent = object.__new__(FunctionEvent)
        event.kind, event.op, event.parent = kind, op, parent
        event.thread, event.args = get_ident(), None
        event.sequence_nr, event.allocated, event.saved = -1, 0, 0
        event.children_ns, event.children_device_ns = 0, 0.0
        event.specs = event.steps = event.span = event.device = event.out = None
        event.failed = False
        event.is_backward = kind == NODE or (parent is not None and parent.is_backward)
        if kind == NODE:
            node = args[0]
            name = node.name()
            event.sequence_nr = node.sequence_number
            forward = self._lines.get(node.sequence_number)
            if forward is not None:
                event.line, event.steps = forward.line, forward.steps
            else:
                event.line = getattr(node, "line", None) or (None if parent is None else parent.line)
        elif kind == COLLECTION:
            event.line = None
        elif parent is not None and parent.kind not in _OF_PROGRAM:
            event.line, event.steps = parent.line, parent.steps
        else:
            event.line = here(3)
            if self.stacks:
                event.steps = _lines()
        if kind == INTO:
            name += "_"
        elif kind == STEP:
            name = args[0].name
        elif kind == IN_PLACE:
            name, event.op = args[3], args[0]
            if name.startswith("__i"):  # an operator such as +=
                name = f"{event.op.name}_"
        elif kind == FUNCTION:
            name = args[0].__name__
        elif kind == CAPTURED:
            name = getattr(args[0].function, "__name__", type(args[0].function).__name__)
        elif kind == REPLAY and parent is not None and parent.kind == CAPTURED:
            self.captured[parent.name] = parent.args[0]
        event.name = name
        if (self.shapes or self.memory or kind in (CAPTURED, IN_PLACE)) and kind != NODE:
            event.args = args
            if self.shapes:
                event.specs = tuple([_spec(a) for a in (*args, *kwargs.values())])
        if self.clock is not None and kind in _OF_DEVICE:
            device = args[0].device if kind == REPLAY else _device(args)
            if device is not None and device.type != "cpu":
                event.device = device
                event.span = self.clock.begin(device)
        self.events.append(event)
        stack.append(event)
        event.end = 0
        event.start = perf_counter_ns()
        return event

    def left(self, event: Any, result: Any, error: BaseException | None) -> None:
        if event is None:
            return
        args: Any
        if type(event) is tuple:
            outer, args = event
            if error is None:
                self._note_results(outer, args, result)
            return
        now = perf_counter_ns()
        event.end = now
        event.failed = error is not None
        leave(self._open[event.thread], event)
        parent = event.parent
        if parent is not None:
            parent.children_ns += now - event.start
        span, args = event.span, event.args or ()
        if span is not None and self.clock is not None:
            if not self.clock.end(span, not event.children_device_ns):
                event.span = None
            if parent is not None:
                parent.children_device_ns = -1.0  # it is made of parts, whose times are known later
        event.args = None
        if error is not None:
            return
        if event.kind in (OP, IN_PLACE, TRANSFER):
            if isinstance(result, TensorBase) or type(result) is tuple:
                self._note_results(event, args, result)
            elif event.kind == IN_PLACE and result:
                self._note_results(event, args, args[1])

    def _note_results(self, event: FunctionEvent, args: Any, result: Any) -> None:
        tensors = result if type(result) is tuple else (result,)
        if event.out is not None or not tensors or any(_spec(tensor) is None for tensor in tensors):
            return  # known already, or of vmap, whose own calls are within
        node, event.out = tensors[0].node, tensors[0].spec
        if node is not None:
            if type(node) is Output:
                node = node.edges[0]
            plan = getattr(node, "plan", None)
            if plan is not None and plan.op is event.op and node.sequence_number not in self._lines:
                self._lines[node.sequence_number] = event
                event.sequence_nr = node.sequence_number
                if self.memory:
                    event.saved = _saved_bytes(node)
        is_view = event.op is not None and event.op.kind == "view"
        if self.memory and not is_view and not event.children_ns:
            given = {id(a.buffer) for a in args if _spec(a) is not None}
            for tensor in tensors:
                if tensor.base is None and id(tensor.buffer) not in given:
                    event.allocated += tensor.spec.nbytes

    def collecting(self, phase: str, info: Mapping[str, int]) -> None:
        """Of Python's garbage collector, which stops a thread anywhere: it is no time of the op that it came in."""
        if phase == "start":
            token = self.entered(_COLLECTION, (), {}) if info["generation"] else None
            self._collections.append(token)
        elif self._collections:
            self.left(self._collections.pop(), None, None)

    def finish(self, now: int) -> None:
        """Ends what is still open."""
        for stack in self._open.values():
            for event in stack:
                event.end, event.args = now, None
            stack.clear()
        if self.clock is not None:
            self.clock.measure()
            for event in self.events:
                event.children_device_ns = 0.0
            for event in self.events:
                outer, ns = event.parent, event.span.ns if event.span is not None else 0.0
                while outer is not None and ns:
                    outer.children_device_ns += ns
                    outer = outer.parent


def _lines() -> tuple[Line, ...]:
    """The lines of the program that this thread is in, innermost first."""
    found = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if not own_files[code.co_filename]:
            found.append(Line(code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def _spec(value: Any) -> Any:
    if isinstance(value, TensorBase) and type(value.spec) is Spec:
        return value.spec
    return None


def _device(args: Any) -> Device | None:
    """That of the first tensor that is not the host's; else the host's."""
    found = None
    for value in args:
        kind = type(value)
        spec = value if kind is Spec else value.spec if isinstance(value, TensorBase) else None
        device: Device | None
        if type(spec) is Spec:
            device = spec.device
        elif kind is Device:
            device = value
        elif kind is tuple or kind is list:
            device = _device(value)
        else:
            continue
        if device is not None:
            if device.type != "cpu":
                return device
            found = device
    return found


def _saved_bytes(node: Any) -> int:
    """Bytes of the memory that a node keeps alive, but for that of leaves, which live anyway."""
    buffers = {}
    for value in node.saved_inputs or ():
        if isinstance(value, TensorBase) and type(value.node) is not Leaf:
            buffers[id(value.buffer)] = value.buffer.nbytes
    for saved in node.saved_outputs or ():
        if saved is not None and saved[0] is not None:
            buffers[id(saved[0])] = saved[0].nbytes
    return sum(buffers.values())
