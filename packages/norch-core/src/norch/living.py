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
        one, other = tee(chain.from_iterable(map(gc.get_objects, (1, 2))))
        return list(compress(one, map(kinds.__contains__, map(type, other))))
    finally:
        if enabled:
            gc.enable()
