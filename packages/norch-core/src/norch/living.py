"""The objects of given types that there are in the process, found by the garbage collector's lists."""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain, compress, tee
from threading import active_count
from typing import Any, NamedTuple
from weakref import ref


def kinds_of(*bases: type) -> set[type]:
    """`bases` and the classes derived from them, but for those that stand for others, such as vmap's tensors."""
    kinds: set[type] = set(bases)
    stack = list(bases)
    while stack:
        found: set[type] = set(stack.pop().__subclasses__()) - kinds
        kinds |= found
        stack += found
    return {kind for kind in kinds if getattr(kind, "apply_function", None) is None}


def living(kinds: set[type]) -> list[Any]:
    """All objects of exactly these types. They are found by type, which runs none of their code.

    They are asked for as what refers to their types, so that there is never a list of all objects. Making one and
    looking at it takes twice as long, and a tuple that another thread is still building would have a second owner, for
    which Python would raise SystemError there.
    """
    _thaw()
    return _of(kinds, partial(gc.get_referrers, *kinds))


def _thaw() -> None:
    """Has the collector's lists hold what `import norch` or the script has taken out of them."""
    if gc.get_freeze_count():
        gc.unfreeze()


def _of(kinds: set[type], objects: Callable[[], Iterable[Any]]) -> list[Any]:
    """Those of exactly these types. Where other threads run it is one call of C code."""
    if active_count() == 1:
        return [thing for thing in objects() if type(thing) in kinds]
    one, other = tee(chain.from_iterable(map(operator.call, (objects,))))
    return list(compress(one, map(kinds.__contains__, map(type, other))))


class _Remembered(NamedTuple):
    """What a search has found, weakly. probe: an object that was young then."""

    kinds: set[type]
    things: list[ref[Any]]
    probe: list[Any]


_remembered: _Remembered | None = None


def living_now(kinds: set[type]) -> list[Any]:
    """`living`, for who asks again and again: where the collector has made nothing old since, only what is young is
    looked through, beside what was found before."""
    global _remembered
    last, things = _remembered, None
    _thaw()
    if active_count() > 1 or sys.version_info >= (3, 14):  # which has no generation 1
        _remembered = None
        return living(kinds)
    if last is not None and last.kinds == kinds:
        young = gc.get_objects(0)
        young += gc.get_objects(1)  # in this order: the list is young itself, and must not hold itself
        if any(thing is last.probe for thing in young):
            found = {id(thing): thing for weak in last.things if (thing := weak()) is not None}
            things = [*(found | {id(thing): thing for thing in young if type(thing) in kinds}).values()]
    if things is None:
        things = living(kinds)
    _remembered = _Remembered(kinds, [ref(thing) for thing in things], [])
    return things


class Newborn:
    """What is made right after a `living_now`, until `over()`. Meanwhile the collector does not run, so all of it is in
    the youngest generation, and none of the rest has to be looked through."""

    def __init__(self) -> None:
        global _remembered
        self._enabled = gc.isenabled()
        gc.disable()
        gc.collect(1)
        if _remembered is not None:  # the search right before has seen all that is old now
            _remembered = _remembered._replace(probe=[])
        self._collections = _collections()

    def living(self, kinds: set[type]) -> list[Any] | None:
        """Those of exactly these types; None where the program has had the collector run."""
        if _collections() != self._collections:
            return None
        if active_count() == 1:
            return _of(kinds, partial(gc.get_objects, 0))
        gc.collect(0)  # what was found young would hold itself
        return _of(kinds, partial(gc.get_objects, 1))

    def over(self) -> None:
        if self._enabled:
            gc.enable()


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())
