"""Two recordings of a step side by side: what is the same in both is replayed, what differs must have a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.contract import Fed, Place
from ..dispatch.op import all_ops
from .recorder import CONSTANT, Recorder


class Differs(Exception):
    """The two runs are not the same, and why."""


class Sources:
    """Where the numbers come from that change between runs, in the order in which a program gets them.

    draws: generators with how many draws each makes in a step: their seeds, each followed by its offsets, come first.
    steps: by number of a `replayed` method's call, and of an optimiser's step that it makes, where the numbers of that
    step begin; they come next, `fed` in all. arguments: positions of Python numbers among the step's arguments.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.draws = [(generator, count) for generator, _, count in recorder.draws]
        self.arguments: list[int] = []
        self.first_argument = sum(1 + count for _, count in self.draws)
        self.steps: dict[tuple[int, int], int] = {}
        for i, call in enumerate(recorder.python):
            for k, step in enumerate(call.steps):
                self.steps[i, k] = self.first_argument
                self.first_argument += step.scalars

    def of_argument(self, position: int) -> Fed:
        if position not in self.arguments:
            self.arguments.append(position)
        return Fed(self.first_argument + self.arguments.index(position))


def keyed_kernels() -> frozenset[str]:
    """Kernels whose last two scalars are the seed and the offset of a draw."""
    return frozenset(op.kernel for op in all_ops() if op.params[-2:] == ("seed", "offset"))


def compare(
    a: Recorder, b: Recorder, numbers_a: Sequence[Any], numbers_b: Sequence[Any]
) -> tuple[list[tuple[Any, ...]], Sources]:
    """The arguments of b's calls, with Fed for numbers that change, and where those come from.

    numbers_a, numbers_b: the Python numbers among the steps' arguments, None for others. Raises Differs.
    """
    if a.reseeded or b.reseeded:
        raise Differs("the step seeds a generator")
    for name in ("results", "grads", "moved"):
        if len(getattr(a, name)) != len(getattr(b, name)):
            raise Differs(f"its {name} were {len(getattr(a, name))}, then {len(getattr(b, name))}")
    for method, again in zip(a.python, b.python, strict=False):
        if method.described() != again.described():
            raise Differs(f"{method.name} did something else the second time ({method.line})")
    if len(a.python) != len(b.python) or a.scalars != b.scalars:
        raise Differs("optimisers and the like make other steps the second time")
    keyed = keyed_kernels()
    sources = Sources(b)
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
            sourced = _drawn(a, b, first, second)
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
                _compare_places(a, b, x, y, one.op, line)
                flat.append(y)
            elif x == y or x != x != y != y:
                flat.append(y)
            else:
                found = [i for i, (p, q) in enumerate(zip(numbers_a, numbers_b, strict=True)) if (p, q) == (x, y)]
                if not found:
                    raise Differs(f"a number that {one.op} gets was {x!r}, then {y!r} ({line})")
                flat.append(sources.of_argument(found[0]))
        flat_calls.append(tuple(flat))
    if len(a.calls) != len(b.calls):
        raise Differs(f"it made {len(a.calls)} kernel calls, then {len(b.calls)}")
    for x, y in zip(_left(a), _left(b), strict=True):
        if x != y:
            raise Differs("what it leaves behind is elsewhere")
    if [(id(g), n) for g, _, n in a.draws] != [(id(g), n) for g, _, n in b.draws]:
        raise Differs("it draws random numbers from elsewhere, or more of them")
    return flat_calls, sources


def _compare_places(a: Recorder, b: Recorder, x: Place, y: Place, op: str, line: str) -> None:
    one, other = a.places[x], b.places[y]
    if x != y or one.role() != other.role():
        if one.kind == other.kind == "state":
            raise Differs(f"{op} gets memory that no tensor held before the step ({line})")
        raise Differs(f"{op} gets other memory the second time ({line})")
    if one.kind == CONSTANT and one.data != other.data:
        raise Differs(f"{op} gets a tensor made of Python data that change ({line})")


def _drawn(a: Recorder, b: Recorder, first: tuple[Any, ...], second: tuple[Any, ...]) -> dict[int, Fed]:
    """The seed and offset of a keyed kernel, by argument, where the step drew them."""
    base = 0
    for (generator, state, count), (other, earlier, _) in zip(b.draws, a.draws, strict=False):
        seed, offset = second[-2:]
        if generator is other and seed == state[0] and 0 <= (at := offset - state[1]) < count:
            if first[-2] == earlier[0] and first[-1] - earlier[1] == at:
                return {len(second) - 2: Fed(base), len(second) - 1: Fed(base + 1 + at)}
        base += 1 + count
    return {}


def _left(recorder: Recorder) -> list[Any]:
    """What a step leaves behind, as it can be compared."""
    found: list[Any] = [_seen(where) for where in recorder.results]
    for name in ("grads", "moved"):
        found += sorted((id(tensor()), _seen(where)) for tensor, where in getattr(recorder, name))
    return found


def _seen(where: Any) -> Any:
    if where is None:
        return (-1, 0, 0)
    if isinstance(where, tuple):
        return (int(where[0]), where[1], id(where[2]))
    return (-2, id(where()), 0)


def _compiled_for(compiled: Any) -> Any:
    return compiled.op, compiled.operands, dict(compiled.attrs)


def _described(compiled: Any) -> str:
    return f"{compiled.op} of {', '.join(o.dtype.name + str(list(o.shape)) for o in compiled.operands[1:])}"
