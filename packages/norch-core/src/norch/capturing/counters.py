"""Integers in attributes of what a step is given that the step changes, such as how many tokens a cache holds: each
replay is told of them as of numbers among the arguments, and leaves them as the step would.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dispatch.traced import ARGUMENT, Trace, TracedInt, evaluate, plain, traced

if TYPE_CHECKING:
    from .returned import Known, Value


class Counter(NamedTuple):
    """path: which of the known objects it is in, then attributes, keys and positions. name: as it is shown."""

    path: tuple[Any, ...]
    name: str

    def owner(self, known: Known) -> Any:
        """The object whose attribute it is, or None."""
        which, *steps, _ = self.path
        thing = known.at(which)
        for step in steps:
            try:
                thing = thing[step] if isinstance(thing, dict | list | tuple) else vars(thing)[step]
            except (TypeError, KeyError, IndexError):
                return None
        return thing if hasattr(thing, "__dict__") else None

    def value(self, known: Known) -> int | None:
        """None where there is no such integer."""
        found = vars(owner).get(self.path[-1]) if (owner := self.owner(known)) is not None else None
        return found if type(found) is int else None

    def put(self, known: Known, value: Any) -> None:
        """Sets the attribute, without what the object's class does then."""
        owner = self.owner(known)
        if owner is not None:
            vars(owner)[self.path[-1]] = value


def counters_among(before: Sequence[Value], now: Sequence[Value]) -> tuple[Counter, ...]:
    """What of the values of known objects is another than before, if that is nothing but integers in attributes."""
    if [(v.where, v.name) for v in before] != [(v.where, v.name) for v in now]:
        return ()
    changed = [(old, new) for old, new in zip(before, now, strict=True) if old != new]
    if any(not new.path or old.kind is not int or new.kind is not int for old, new in changed):
        return ()
    return tuple([Counter(new.path, new.name) for _, new in changed])


class Counted:
    """The counters of one run of a step. ends: what they are after it, as expressions."""

    def __init__(self, counters: Sequence[Counter], known: Known, trace: Trace, numbers: Sequence[Any]) -> None:
        self.counters, self.known, self.trace, self.numbers = counters, known, trace, numbers
        self.ends: list[Any] = []

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within this context the attributes hold integers that are traced."""
        first = len(self.numbers) - len(self.counters)
        for i, counter in enumerate(self.counters, first):
            counter.put(self.known, traced(self.numbers[i], (ARGUMENT, i), self.trace))
        try:
            yield
        finally:
            self.ends = [self._end(counter) for counter in self.counters]

    def others(self, values: Sequence[Value]) -> list[Value]:
        """The values that are none of the counters."""
        places = {(id(counter.owner(self.known)), counter.name) for counter in self.counters}
        return [value for value in values if (value.where, value.name) not in places]

    def problem(self, why: str | None) -> str | None:
        """What of them no replay can do, where anything changes them at all: `why`, or a value that is no integer."""
        for counter, end in zip(self.counters, self.ends, strict=True):
            if type(end) not in (int, tuple):
                return f"`{counter.name}`, which is no integer after it"
            if why is not None:
                return f"`{counter.name}`, and {why}"
        return None

    def _end(self, counter: Counter) -> Any:
        owner = counter.owner(self.known)
        end = None if owner is None else vars(owner).get(counter.path[-1])
        if type(end) is not TracedInt:
            return end
        counter.put(self.known, plain(end))
        return end.expression


def count_on(counters: Sequence[Counter], known: Known, ends: Sequence[Any], numbers: Sequence[Any]) -> None:
    """Leaves the counters as a step does that is replayed with these numbers."""
    for counter, end in zip(counters, ends, strict=True):
        counter.put(known, evaluate(end, numbers))
