"""Chains of elementwise calls become one call of the composite "fused"."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend.contract import ELEMENTWISE, IN_PLACE, PRIMITIVES, TWO_OUTPUTS, Operand, Place
from ..backend.fused import Step
from ..dispatch.plan import compile_kernel
from ..dtype import INTEGER
from ..dtype import uint8 as BYTE
from .calls import Call

if TYPE_CHECKING:
    from ..device import Device
    from ..dtype import DType

COMPOSITES = frozenset(
    {
        "axpy", "clamp", "elu", "elu_grad", "gelu", "gelu_grad", "hardtanh", "hardtanh_grad", "leaky_relu",
        "leaky_relu_grad", "relu", "relu_grad", "sigmoid_grad", "silu", "silu_grad", "softplus", "softplus_grad",
        "tanh_grad",
    }
)  # fmt: skip
"""Elementwise composites, asked for as steps where the backend had a kernel of their own."""

MAX_STEPS, MAX_OPERANDS, MAX_OPEN = 32, 24, 16
"""Of a group; and of groups that may still grow."""


class Elements(NamedTuple):
    """The elements of a place that a call reads or writes. Where two of one kernel are equal, an element of a result
    lies where that of an operand does."""

    place: int
    offset: int
    dtype: DType
    strides: tuple[int, ...]  # 0 for dims of size 1
    start: int  # of the bytes that they lie in
    stop: int

    def overlaps(self, other: Elements) -> bool:
        return self.place == other.place and self.start < other.stop and other.start < self.stop


class Access(NamedTuple):
    """What a call reads and writes."""

    reads: tuple[Elements, ...]
    writes: tuple[Elements, ...]


class Group:
    """Elementwise calls that may run as one, in the place of the last; no call that comes between minds."""

    def __init__(self, shape: tuple[int, ...], device: Device) -> None:
        self.shape, self.device = shape, device
        self.members: list[int] = []
        self.reads: set[Elements] = set()
        self.writes: set[Elements] = set()

    def minds(self, access: Access) -> bool:
        """Whether a call that is no member may not run before the group."""
        written = any(w.overlaps(e) for w in self.writes for e in (*access.reads, *access.writes))
        return written or any(r.overlaps(w) for r in self.reads for w in access.writes)

    def feeds(self, access: Access) -> bool:
        """Whether a call reads a result of the group and, of what that touches, exactly the same elements or none."""
        touched = self.reads | self.writes
        return any(r in self.writes for r in access.reads) and not (
            any(r != w and r.overlaps(w) for r in access.reads for w in self.writes)
            or any(w != e and w.overlaps(e) for w in access.writes for e in touched)
        )

    def add(self, index: int, access: Access) -> None:
        self.members.append(index)
        self.reads |= set(access.reads)
        self.writes |= set(access.writes)

    def merge(self, other: Group) -> None:
        self.members = sorted(self.members + other.members)
        self.reads |= other.reads
        self.writes |= other.writes


def fuse(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls, in which those that can be are fused.

    temporaries: the places of buffers whose contents nobody needs after the step. A group of calls is fused where at
    least one result need not be written, and the backend compiles it.
    """
    accesses = [_access(call) for call in calls]
    fused: dict[int, Call | None] = {}
    for group in _groups(calls, accesses):
        if len(group.members) < 2:
            continue
        call = _fused(group, calls, accesses, temporaries)
        if call is not None:
            fused.update(dict.fromkeys(group.members))
            fused[group.members[-1]] = call
    found = [fused.get(i, call) for i, call in enumerate(calls)]
    return [call for call in found if call is not None]


def _groups(calls: Sequence[Call], accesses: Sequence[Access]) -> list[Group]:
    closed: list[Group] = []
    opened: list[Group] = []
    for i, (call, access) in enumerate(zip(calls, accesses, strict=True)):
        joined: Group | None = None
        if _is_candidate(call):
            shape = call.operands[0].shape
            for group in [g for g in opened if (g.shape, g.device) == (shape, call.device) and g.feeds(access)]:
                if joined is None and _size(calls, [*group.members, i]):
                    joined = group
                elif joined is not None and _size(calls, [*joined.members, *group.members, i]):
                    joined.merge(group)
                    opened.remove(group)
        minding = [g for g in opened if g is not joined and g.minds(access)]
        closed += minding
        opened = [g for g in opened if g not in minding]
        if joined is None and _is_candidate(call):
            joined = Group(call.operands[0].shape, call.device)
            opened.append(joined)
        if joined is not None:
            joined.add(i, access)
        if len(opened) > MAX_OPEN:
            closed.append(opened.pop(0))
    return closed + opened


def _size(calls: Sequence[Call], members: list[int]) -> bool:
    """Whether a group is not too large; no operand is counted as shared."""
    return len(members) <= MAX_STEPS and sum(len(calls[i].operands) for i in members) <= MAX_STEPS + MAX_OPERANDS


def _is_candidate(call: Call) -> bool:
    if call.op not in ELEMENTWISE and call.op not in COMPOSITES:
        return False
    out = call.operands[0]
    if out.is_scalar or 0 in out.shape or any(o.dtype.is_stored for o in call.operands):
        return False
    if call.op in ("floor_divide", "remainder") and out.dtype.category == INTEGER:
        return False  # they raise before they write
    if any(o.shape != out.shape for o in call.operands if not o.is_scalar):
        return False
    return all(isinstance(v, int | float) or (isinstance(v, str) and v.isidentifier()) for v in _attrs(call).values())


def _attrs(call: Call) -> dict[str, Any]:
    return {name: value for name, value in call.attrs.items() if name != "given"}


def _access(call: Call) -> Access:
    places: list[Elements] = []
    at = 0
    for operand in call.operands:
        if operand.is_scalar:
            at += 1
            continue
        places.append(_elements(operand, call.arguments[at], call.arguments[at + 1]))
        at += 2
    everything = tuple(places)
    if not call.operands:  # bytes are copied
        everything = tuple([Elements(a, 0, BYTE, (), 0, sys.maxsize) for a in call.arguments if type(a) is Place])
    if call.op == "fused":
        outputs = len(call.attrs["results"])
    elif call.op in IN_PLACE or not (call.op in PRIMITIVES or call.op in COMPOSITES):
        return Access(everything, everything)  # how many outputs a composite has is not known here
    else:
        outputs = 2 if call.op in TWO_OUTPUTS else 1
    return Access(everything[outputs:], everything[:outputs])


def _elements(operand: Operand, place: int, offset: int) -> Elements:
    size = operand.dtype.itemsize
    strides = tuple([stride if n != 1 else 0 for n, stride in zip(operand.shape, operand.strides, strict=True)])
    count = 1 + sum((n - 1) * stride for n, stride in zip(operand.shape, strides, strict=True))
    stop = offset + (0 if 0 in operand.shape else count)
    return Elements(place, offset, operand.dtype, strides, offset * size, stop * size)


def _fused(
    group: Group, calls: Sequence[Call], accesses: Sequence[Access], temporaries: Mapping[int, int]
) -> Call | None:
    """The call that does what the group's do; None where that saves nothing or the backend has no kernel."""
    program = Program()
    for i in group.members:
        program.add(calls[i], accesses[i])
    after = [a for i, a in enumerate(accesses) if i > group.members[-1]]
    results = [w for w in program.written if w.place not in temporaries or _is_touched(w, after)]
    if not results or len(results) == len(group.members):
        return None
    operands, arguments, attrs = program.bound(results)
    if len(operands) > MAX_OPERANDS:
        return None
    kernel = compile_kernel("fused", group.device, operands, attrs, False)
    if kernel is None:
        return None
    return Call("fused", operands, attrs, kernel, arguments, group.device, calls[group.members[-1]].line)


def _is_touched(elements: Elements, accesses: Collection[Access]) -> bool:
    return any(elements.overlaps(e) for a in accesses for e in (*a.reads, *a.writes))


class Program:
    """Steps, whose operands are numbered when the outputs are known."""

    def __init__(self) -> None:
        self.steps: list[tuple[Call, tuple[tuple[str, int], ...]]] = []
        self.inputs: list[tuple[Operand, tuple[Any, ...]]] = []  # an operand, its arguments
        self.numbers: dict[Elements, int] = {}  # of the inputs that are tensors
        self.written: dict[Elements, tuple[int, Operand, tuple[Any, ...]]] = {}  # the step, the operand, its arguments

    def add(self, call: Call, access: Access) -> None:
        reads: list[tuple[str, int]] = []
        at = 2
        elements = iter(access.reads)
        for operand in call.operands[1:]:
            if operand.is_scalar:
                reads.append(("o", self._input(operand, call.arguments[at : at + 1])))
                at += 1
                continue
            read = next(elements)
            if read in self.written:
                reads.append(("s", self.written[read][0]))
            else:
                if read not in self.numbers:
                    self.numbers[read] = self._input(operand, call.arguments[at : at + 2])
                reads.append(("o", self.numbers[read]))
            at += 2
        self.written[access.writes[0]] = (len(self.steps), call.operands[0], call.arguments[:2])
        self.steps.append((call, tuple(reads)))

    def _input(self, operand: Operand, arguments: tuple[Any, ...]) -> int:
        self.inputs.append((operand, arguments))
        return len(self.inputs) - 1

    def bound(self, results: Sequence[Elements]) -> tuple[tuple[Operand, ...], tuple[Any, ...], dict[str, Any]]:
        """Operands, arguments and attributes of the program with these results."""
        outputs = [self.written[w] for w in results]
        operands = tuple([operand for _, operand, _ in outputs] + [operand for operand, _ in self.inputs])
        arguments = [a for _, _, given in outputs for a in given] + [a for _, given in self.inputs for a in given]
        steps = []
        for call, reads in self.steps:
            names = [f"{kind}{number + len(outputs) if kind == 'o' else number}" for kind, number in reads]
            steps.append(str(Step(call.op, call.operands[0].dtype.name, tuple(names), _attrs(call))))
        attrs = {"steps": ";".join(steps), "results": tuple([step for step, _, _ in outputs])}
        return operands, tuple(arguments), attrs
