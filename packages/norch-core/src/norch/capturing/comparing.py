"""Two recordings of a step side by side: what is the same in both is replayed, what differs must have a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import ref

from ..backend.contract import Fed, Place
from ..dispatch.traced import KINDS, arguments_of, plain
from ..source_lines import Line
from .places import CONSTANT, STATE, OfLeaf
from .recorder import Recorder, keyed_kernels

Draws = Sequence[tuple[Any, tuple[int, int], int]]
"""Generators, with the states that they had and how often they were drawn from."""


class Differs(Exception):
    """The two runs are not the same, and why."""


class Sources:
    """Where the numbers come from that change between runs, in the order in which a program gets them.

    draws: generators with how many draws each makes in a step: their seeds, each followed by its offsets, come first.
    steps: by number of a `replayed` method's call, and of an optimiser's step that it makes, where the numbers of that
    step begin; they come next, `fed` in all. arguments: positions of Python numbers among the step's arguments, and
    expressions of these; `fixed` those that must stay as they were.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.draws = [(generator, count) for generator, _, count in recorder.draws]
        self.arguments: list[Any] = []
        self.first_argument = sum(1 + count for _, count in self.draws)
        self.fixed = frozenset[int]()
        self.steps: dict[tuple[int, int], int] = {}
        for i, call in enumerate(recorder.python):
            for k, step in enumerate(call.steps):
                self.steps[i, k] = self.first_argument
                self.first_argument += step.scalars

    def described(self) -> Any:
        return [(id(generator), count) for generator, count in self.draws], self.arguments

    def of_argument(self, source: Any) -> Fed:
        if source not in self.arguments:
            self.arguments.append(source)
        return Fed(self.first_argument + self.arguments.index(source))


def compare(
    a: Recorder,
    b: Recorder,
    earlier: tuple[Draws, Draws] = ((), ()),
    fixed: frozenset[int] | None = None,
    others: bool = False,
) -> tuple[list[tuple[Any, ...]], Sources]:
    """The arguments of b's calls, with Fed for numbers that change, and where those come from.

    earlier: draws made before the steps, whose seeds and offsets, in this order, are arguments too, behind the numbers
    that the steps were called with. fixed: which of these numbers do not change; without it, those that were the same.
    others: whether b may use other tensors that were there before. Raises Differs.
    """
    if a.reseeded or b.reseeded:
        raise Differs("the step seeds a generator")
    for name in ("results", "grads", "moved"):
        if len(getattr(a, name)) != len(getattr(b, name)):
            raise Differs(f"its {name} were {len(getattr(a, name))}, then {len(getattr(b, name))}")
    for method, again in zip(a.python, b.python, strict=False):
        if method.described() != again.described():
            raise Differs(f"{method.name} did something else the second time ({method.line})")
        again.why = again.why or method.why  # one that did nothing, and computes now and then
    if len(a.python) != len(b.python) or a.scalars != b.scalars:
        raise Differs("optimisers and the like make other steps the second time")
    if a.decisions != b.decisions:
        raise Differs("Python decides in another way by a number the second time")
    keyed = keyed_kernels()
    sources = Sources(b)
    if fixed is None:
        both = enumerate(zip(a.given, b.given, strict=True))
        fixed = frozenset([i for i, (x, y) in both if type(x) is float and repr(x) == repr(y)])
    sources.fixed = fixed
    flat_calls = []
    for number, ((one, first, line), (other, second, _)) in enumerate(zip(a.calls, b.calls, strict=False)):
        if one is not other and (one.op, one.operands, dict(one.attrs)) != (
            other.op,
            other.operands,
            dict(other.attrs),
        ):
            raise Differs(f"{line} ran {_described(one)}, then {_described(other)}")
        sourced: dict[int, Fed] = {}
        if one.op in keyed:
            last = len(second) - 2
            if (found := _drawn(a.draws, b.draws, first, second)) is not None:
                sourced = {last: Fed(found[0]), last + 1: Fed(found[1])}
            elif (found := _drawn(*earlier, first, second)) is not None:
                first_drawn = len(b.given)
                sourced = {
                    last: sources.of_argument(first_drawn + found[0]),
                    last + 1: sources.of_argument(first_drawn + found[1]),
                }
        elif number in b.scalars:
            begin = sources.steps[b.scalars[number]]
            tensors = 2 * sum(not operand.is_scalar for operand in one.operands)
            sourced = {at: Fed(begin + at - tensors) for at in range(tensors, len(first))}
        flat: list[Any] = []
        for at, (x, y) in enumerate(zip(first, second, strict=True)):
            if at in sourced:
                flat.append(sourced[at])
            elif type(x) is not type(y):
                raise Differs(f"a number that {one.op} gets was {x!r}, then {y!r} ({line})")
            elif type(x) is Place:
                _compare_places(a, b, x, y, one.op, line, others)
                flat.append(y)
            elif type(x) in KINDS:
                if x.expression != y.expression:
                    raise Differs(f"a number that {one.op} gets is computed in another way the second time ({line})")
                is_fixed = arguments_of(x.expression) <= fixed
                flat.append(plain(y) if is_fixed else sources.of_argument(x.expression))
            elif x == y or x != x != y != y:
                flat.append(y)
            else:
                raise Differs(f"a number that {one.op} gets was {x!r}, then {y!r} ({line})")
        flat_calls.append(tuple(flat))
    if len(a.calls) != len(b.calls):
        raise Differs(f"it made {len(a.calls)} kernel calls, then {len(b.calls)}")
    for x, y in zip(_left(a), _left(b), strict=True):
        if x != y:
            raise Differs("what it leaves behind is elsewhere")
    if [(id(g), n) for g, _, n in a.draws] != [(id(g), n) for g, _, n in b.draws]:
        raise Differs("it draws random numbers from elsewhere, or more of them")
    return flat_calls, sources


def _compare_places(a: Recorder, b: Recorder, x: Place, y: Place, op: str, line: Line | None, others: bool) -> None:
    one, other = a.places[x], b.places[y]
    if x != y or not one.is_same(other, others):
        if one.kind == other.kind == STATE and one.owner is not None and other.owner is not None:
            raise Differs(f"{op} gets the memory of another tensor than before ({line})")
        if one.kind == other.kind == STATE:
            raise Differs(f"{op} gets memory that no tensor held before the step ({line})")
        raise Differs(f"{op} gets other memory the second time ({line})")
    if one.kind == CONSTANT and one.data != other.data:
        raise Differs(f"{op} gets a tensor made of Python data that change ({line})")


def _drawn(a: Draws, b: Draws, first: tuple[Any, ...], second: tuple[Any, ...]) -> tuple[int, int] | None:
    """Where the seed and offset of a keyed kernel are among those of draws: each seed, followed by its offsets."""
    base = 0
    for (generator, state, count), (other, earlier, _) in zip(b, a, strict=False):
        seed, offset = second[-2:]
        if generator is other and seed == state[0] and 0 <= (at := offset - state[1]) < count:
            if first[-2] == earlier[0] and first[-1] - earlier[1] == at:
                return base, base + 1 + at
        base += 1 + count
    return None


def _left(recorder: Recorder) -> list[Any]:
    """What a step leaves behind, as it can be compared."""
    found: list[Any] = [*map(_seen, recorder.results), *map(_seen, recorder.result_grads), recorder.leaves]
    for name in ("grads", "moved"):
        found += sorted((id(tensor()), _seen(where)) for tensor, where in getattr(recorder, name))
    return found


def _seen(where: Any) -> Any:
    if type(where) is tuple:
        return ("memory", int(where[0]), where[1], id(where[2]))
    if isinstance(where, ref):
        return ("tensor", id(where()), 0, 0)
    if isinstance(where, OfLeaf):
        return ("gradient", id(where.leaf()), 0, 0)
    return (type(where).__name__, where, 0, 0)


def _described(compiled: Any) -> str:
    return f"{compiled.op} of {', '.join(o.dtype.name + str(list(o.shape)) for o in compiled.operands[1:])}"
