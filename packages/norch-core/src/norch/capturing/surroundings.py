"""What there is when a step begins and ends: tensors, generators, optimisers, random numbers of the host."""

from __future__ import annotations

import gc
import random
import sys
from array import array
from itertools import chain, compress, tee
from threading import active_count
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..ops.generator import Generator, generators
from ..switches import Replayed
from ..tensor_base import TensorBase


class Seen(NamedTuple):
    """A tensor that was there before the step, and what it was then."""

    tensor: Any  # weakly
    buffer: int
    offset: int
    spec: Any
    grad: Any  # its gradient weakly, None where there was none


def find_objects() -> tuple[list[Any], list[Generator], list[Replayed]]:
    """All tensors, generators, optimisers and the like. They are found by type, which runs none of their code."""
    kinds: set[type] = {TensorBase, Replayed}
    stack = list(kinds)
    while stack:
        found: set[type] = set(stack.pop().__subclasses__()) - kinds
        kinds |= found
        stack += found
    kinds = {kind for kind in kinds if getattr(kind, "apply_function", None) is None}  # those that stand for others
    if gc.get_freeze_count():
        gc.unfreeze()  # a script has had the collector pass over what there was, which is then not found either
    things = _objects(kinds)
    tensors = [t for t in things if isinstance(t, TensorBase) and hasattr(t, "_grad")]  # else it is being made
    drawing = [g for known in tuple(generators) if (g := known()) is not None and hasattr(g, "_draws")]
    counting = [r for r in things if isinstance(r, Replayed) and hasattr(r, "__dict__")]
    return tensors, sorted(drawing, key=id), counting  # a set has no fixed order


def _objects(kinds: set[type]) -> list[Any]:
    """All objects of these types.

    Were another thread to run while the list of all objects is there, a tuple that it is building would have a second
    owner, for which Python raises SystemError there. So where there are others, it is one call of C code. That asks
    for what is not young, since it would find itself among that, and hold itself.
    """
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


def describe_all(tensors: list[Any]) -> list[Seen]:
    return [Seen(ref(t), id(t.buffer), t.offset, t.spec, None if t._grad is None else ref(t._grad)) for t in tensors]


def host_random() -> Any:
    state: Any = np.random.get_state(legacy=False)
    return random.getstate(), state["state"]["key"].tobytes(), state["state"]["pos"], state["has_gauss"]


def array_owner(data: memoryview) -> Any:
    """The array (weakly) whose memory it is; None for memory of another kind."""
    found: Any = data.obj
    while isinstance(found, np.ndarray) and isinstance(found.base, np.ndarray):
        found = found.base
    if isinstance(found, array) or (isinstance(found, np.ndarray) and found.base is None):
        return ref(found)
    return None


def is_shared(owner: Any) -> bool:
    """Whether anything but a buffer holds the array."""
    found = None if owner is False or owner is None else owner()
    return owner is None or (found is not None and sys.getrefcount(found) > _ALONE)


_ALONE = 3
"""What `getrefcount` says there of an array that one buffer, or one view of it, holds."""
