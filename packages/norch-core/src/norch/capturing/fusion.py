"""Chains of elementwise calls become one call of the composite "fused", with reductions of rows one of "fused_rows"."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend.contract import ELEMENTWISE, Operand
from ..backend.fused import FUSED_COMPOSITES, MAX_OPERANDS, MAX_STEPS, ROW_REDUCTIONS, Step
from ..dispatch.kernels import compile_kernel
from ..dtype import FLOATING, INTEGER
from .calls import Call
from .epilogues import Region
from .epilogues import access as access_of

if TYPE_CHECKING:
    from ..device import Device
    from ..dtype import DType


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
        self.reads: dict[int, set[Elements]] = {}  # by place
        self.writes: dict[int, set[Elements]] = {}

    def takes(self, shape: tuple[int, ...], of_rows: bool) -> bool:
        """Whether calls of a shape may be members; with `of_rows` also those of one number for each row."""
        return shape == self.shape or (of_rows and shape == _row_shape(self.shape))

    def minds(self, access: Access) -> bool:
        """Whether a call that is no member may not run before the group."""
        if any(_overlaps(e, self.writes) for e in access.reads):
            return True
        return any(_overlaps(e, self.writes) or _overlaps(e, self.reads) for e in access.writes)

    def feeds(self, access: Access) -> bool:
        """Whether a call reads a result of the group and, of what that touches, exactly the same elements or none."""
        if not any(r in self.writes.get(r.place, ()) for r in access.reads):
            return False
        return not any(_overlaps(e, self.writes, but_itself=True) for e in (*access.reads, *access.writes)) and not any(
            _overlaps(e, self.reads, but_itself=True) for e in access.writes
        )

    def places(self) -> set[int]:
        return {*self.reads, *self.writes}

    def add(self, index: int, access: Access) -> None:
        self.members.append(index)
        for r in access.reads:
            self.reads.setdefault(r.place, set()).add(r)
        for w in access.writes:
            self.writes.setdefault(w.place, set()).add(w)

    def merge(self, other: Group) -> None:
        self.members = sorted(self.members + other.members)
        for own, its in ((self.reads, other.reads), (self.writes, other.writes)):
            for place, elements in its.items():
                own.setdefault(place, set()).update(elements)


def _overlaps(elements: Elements, others: Mapping[int, set[Elements]], but_itself: bool = False) -> bool:
    return any(elements.overlaps(e) and not (but_itself and e == elements) for e in others.get(elements.place, ()))


def fuse(calls: Sequence[Call], temporaries: Mapping[int, int]) -> list[Call]:
    """The same calls, in which those that can be are fused.

    temporaries: the places of buffers whose contents nobody needs after the step. A group of calls is fused where at
    least one result need not be written, and the backend compiles it.
    """
    if any(map(_reduces_rows, calls)):
        calls = _fused(calls, temporaries, True)
    return _fused(calls, temporaries, False)


def _fused(calls: Sequence[Call], temporaries: Mapping[int, int], of_rows: bool) -> list[Call]:
    """of_rows: only groups with reductions of rows, else only those without."""
    accesses = [_access(call) for call in calls]
    touched: dict[int, list[tuple[int, Elements]]] = {}  # by place: which call, and what
    for i, access in enumerate(accesses):
        for e in (*access.reads, *access.writes):
            touched.setdefault(e.place, []).append((i, e))
    fused: dict[int, Call | None] = {}

    def is_needed(result: Elements, last: int) -> bool:
        """Whether a result is needed after call `last`."""
        place = result.place
        return place not in temporaries or any(i > last and result.overlaps(e) for i, e in touched[place])

    def try_to_fuse(members: list[int]) -> None:
        if len(members) < 2 or (of_rows and not any(_reduces_rows(calls[i]) for i in members)):
            return
        program, last = Program(of_rows), members[-1]
        for i in members:
            program.add(calls[i], accesses[i])
        results = [w for w in program.written if is_needed(w, last)]
        if not results or len(results) == len(members):
            return
        call = _compiled(program, results, calls[last])
        if call is None:  # perhaps for one step: what is before it or after may do
            half = len(members) // 2
            try_to_fuse(members[:half])
            try_to_fuse(members[half:])
            return
        fused.update(dict.fromkeys(members))
        fused[last] = call

    for group in _groups(calls, accesses, of_rows):
        for members in _parts(group.members, calls, accesses, temporaries):
            try_to_fuse(members)
    found = [fused.get(i, call) for i, call in enumerate(calls)]
    return [call for call in found if call is not None]


def _parts(
    members: list[int], calls: Sequence[Call], accesses: Sequence[Access], temporaries: Mapping[int, int]
) -> list[list[int]]:
    """The members of a group, cut where one would write what is kept after a call that may raise, and did so before."""
    parts = [members[:1]]
    for i in members[1:]:
        between = calls[parts[-1][-1] + 1 : i]
        keeps = any(w.place not in temporaries for k in parts[-1] for w in accesses[k].writes)
        if keeps and any(may_raise(call) for call in between):
            parts.append([i])
        else:
            parts[-1].append(i)
    return parts


def may_raise(call: Call) -> bool:
    """For the values that it gets: kernels of integers do, for an index that is out of bounds, or a 0."""
    return any(o.dtype.category == INTEGER and not o.is_scalar for o in call.operands)


def _groups(calls: Sequence[Call], accesses: Sequence[Access], of_rows: bool) -> list[Group]:
    groups: list[Group] = []
    opened: dict[int, dict[Group, None]] = {}  # by place that they touch; in the order of their making
    for i, (call, access) in enumerate(zip(calls, accesses, strict=True)):
        places = dict.fromkeys([e.place for e in (*access.reads, *access.writes)])
        near = list(dict.fromkeys([group for place in places for group in opened.get(place, ())]))
        joined: Group | None = None
        reduces = of_rows and _reduces_rows(call)
        if reduces or _is_candidate(call):
            shape = call.operands[1 if reduces else 0].shape
            for group in [g for g in near if g.device is call.device and g.feeds(access)]:
                if not (group if joined is None else joined).takes(shape if joined is None else group.shape, of_rows):
                    continue
                if joined is None and _size(calls, [*group.members, i]):
                    joined = group
                elif joined is not None and _size(calls, [*joined.members, *group.members, i]):
                    joined.merge(group)
                    _close(group, opened)
                    groups.remove(group)
                    _open(joined, group.places(), opened)
            if joined is None:
                joined = Group(shape, call.device)
                groups.append(joined)
        for group in near:
            if group is not joined and group.minds(access):
                _close(group, opened)
        if joined is not None:
            joined.add(i, access)
            _open(joined, places, opened)
    return groups


def _open(group: Group, places: Iterable[int], opened: dict[int, dict[Group, None]]) -> None:
    for place in places:
        opened.setdefault(place, {})[group] = None


def _close(group: Group, opened: dict[int, dict[Group, None]]) -> None:
    for place in group.places():
        opened[place].pop(group, None)


def _size(calls: Sequence[Call], members: list[int]) -> bool:
    """Whether a group is not too large; no operand is counted as shared."""
    return len(members) <= MAX_STEPS and sum(len(calls[i].operands) for i in members) <= MAX_STEPS + MAX_OPERANDS


def _is_candidate(call: Call) -> bool:
    if call.op not in ELEMENTWISE and call.op not in FUSED_COMPOSITES:
        return False
    out = call.operands[0]
    if out.is_scalar or 0 in out.shape or any(o.dtype.is_stored for o in call.operands):
        return False
    if call.op in ("floor_divide", "remainder") and out.dtype.category == INTEGER:
        return False  # they raise before they write
    if any(o.shape != out.shape for o in call.operands if not o.is_scalar):
        return False
    return all(isinstance(v, int | float) or (isinstance(v, str) and v.isidentifier()) for v in _attrs(call).values())


def _row_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 1)


def _reduces_rows(call: Call) -> bool:
    """Whether it reduces the last dim, of rows without gaps, so that the order is that of a row alone."""
    if call.op not in ROW_REDUCTIONS:
        return False
    out, x = call.operands
    if x.dtype.category != FLOATING or x.dtype.is_stored or out.dtype is not x.dtype or not x.shape or 0 in x.shape:
        return False
    if call.attrs["dims"] != (len(x.shape) - 1,) or x.shape[-1] == 1 or out.shape != _row_shape(x.shape):
        return False
    expected = 1
    for n, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if n != 1 and stride != expected:
            return False
        expected *= n
    return True


def _attrs(call: Call) -> dict[str, Any]:
    return {name: value for name, value in call.attrs.items() if name != "given"}


def _access(call: Call) -> Access:
    found = access_of(call)
    return Access(tuple(map(_elements, found.reads)), tuple(map(_elements, found.writes)))


def _elements(region: Region) -> Elements:
    place, offset, operand = region
    if operand.dtype is None:  # bytes that are copied
        return Elements(place, 0, operand.dtype, (), 0, sys.maxsize)
    size = operand.dtype.itemsize
    strides = tuple([stride if n != 1 else 0 for n, stride in zip(operand.shape, operand.strides, strict=True)])
    count = 1 + sum((n - 1) * stride for n, stride in zip(operand.shape, strides, strict=True))
    stop = offset + (0 if 0 in operand.shape else count)
    return Elements(place, offset, operand.dtype, strides, offset * size, stop * size)


def _compiled(program: Program, results: Sequence[Elements], last: Call) -> Call | None:
    """The program as a call; None where the backend has no kernel."""
    operands, arguments, attrs = program.bound(results)
    if len(operands) > MAX_OPERANDS or not program.is_plain:
        return None
    op = "fused_rows" if program.of_rows else "fused"
    kernel = compile_kernel(op, last.device, operands, attrs, False)
    return None if kernel is None else Call(op, operands, attrs, kernel, arguments, last.device, last.line)


class Program:
    """Steps, whose operands are numbered when the outputs are known."""

    def __init__(self, of_rows: bool = False) -> None:
        self.of_rows = of_rows
        self.is_plain = True  # whether each step shows by what it reads whether it makes rows or one number of each
        self.numbers_of_rows: set[int] = set()  # the steps that do the latter
        self.steps: list[tuple[Call, tuple[tuple[str, int], ...]]] = []
        self.inputs: list[tuple[Operand, tuple[Any, ...]]] = []  # an operand, its arguments
        self.numbers: dict[tuple[Elements, bool], int] = {}  # of the inputs that are tensors; whether one for each row
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
                key = read, self.of_rows and operand.shape[-1] == 1
                if key not in self.numbers:
                    self.numbers[key] = self._input(operand, call.arguments[at : at + 2])
                reads.append(("o", self.numbers[key]))
            at += 2
        if self.of_rows:
            self._note_row(call, reads)
        self.written[access.writes[0]] = (len(self.steps), call.operands[0], call.arguments[:2])
        self.steps.append((call, tuple(reads)))

    def _note_row(self, call: Call, reads: list[tuple[str, int]]) -> None:
        if call.operands[0].shape[-1] == 1:
            self.numbers_of_rows.add(len(self.steps))
            return
        found = [read for read, operand in zip(reads, call.operands[1:], strict=True) if not operand.is_scalar]
        self.is_plain &= any(kind == "o" or number not in self.numbers_of_rows for kind, number in found)

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
            attributes = {} if call.op in ROW_REDUCTIONS else _attrs(call)
            steps.append(str(Step(call.op, call.operands[0].dtype.name, tuple(names), attributes)))
        attrs = {"steps": ";".join(steps), "results": tuple([step for step, _, _ in outputs])}
        return operands, tuple(arguments), attrs
