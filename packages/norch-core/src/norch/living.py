"""The objects of given types that there are in the process, found by the garbage collector's lists."""

from __future__ import annotations

import gc
from itertools import chain, compress, tee
from threading import active_count
from typing import Any


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

    Were another thread to run while the list of all objects is there, a tuple that it is building would have a second
    owner, for which Python raises SystemError there. So where there are others, it is one call of C code. That asks
    for what is not young, since it would find itself among that, and hold itself.
    """
    if gc.get_freeze_count():
        gc.unfreeze()  # a script has had the collector pass over what there was, which is then not found either
    if active_count() == 1:
        return [thing for thing in gc.get_objects() if type(thing) in kinds]
    enabled = gc.isenabled()
    gc.disable()
    try:
        gc.collect(0)
        return _in_one_call(kinds, 1, 2)
    finally:
        if enabled:
            gc.enable()


def _in_one_call(kinds: set[type], *generations: int) -> list[Any]:
    one, other = tee(chain.from_iterable(map(gc.get_objects, generations)))
    return list(compress(one, map(kinds.__contains__, map(type, other))))


class Newborn:
    """What is made from here on until `over()`. Meanwhile the collector does not run, so all of it is in the youngest
    generation, and none of the rest has to be looked through."""

    def __init__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()
        gc.collect(1)
        self._collections = _collections()

    def living(self, kinds: set[type]) -> list[Any] | None:
        """Those of exactly these types; None where the program has had the collector run."""
        if _collections() != self._collections:
            return None
        if active_count() == 1:
            return [thing for thing in gc.get_objects(0) if type(thing) in kinds]
        gc.collect(0)  # see norch.living.living
        return _in_one_call(kinds, 1)

    def over(self) -> None:
        if self._enabled:
            gc.enable()


def _collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())
