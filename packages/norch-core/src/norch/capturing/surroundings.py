"""What there is when a step begins and ends: tensors, generators, optimisers, random numbers of the host."""

from __future__ import annotations

import random
import sys
from array import array
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ..living import Newborn, kinds_of, living_now
from ..ops.generator import Generator, generators
from ..switches import Replayed, living_replayed
from ..tensor_base import TensorBase


class Seen(NamedTuple):
    """A tensor that was there before the step, and what it was then."""

    tensor: Any  # weakly
    buffer: int
    offset: int
    spec: Any
    grad: Any  # its gradient weakly, None where there was none


def find_objects() -> tuple[list[Any], list[Generator], list[Replayed]]:
    """All tensors, generators, optimisers and the like. Tensors are found by type, which runs none of their code."""
    tensors = _tensors(living_now(kinds_of(TensorBase)))
    drawing = [g for known in tuple(generators) if (g := known()) is not None and hasattr(g, "_draws")]
    counting = living_replayed()
    return tensors, sorted(drawing, key=id), counting  # a set has no fixed order


def _tensors(things: list[Any]) -> list[Any]:
    return [t for t in things if isinstance(t, TensorBase) and hasattr(t, "_grad")]  # else it is being made


def tensors_now(before: list[Seen], newborn: Newborn | None) -> list[Any]:
    """All tensors: those of `before` that are still there, and what has been born since."""
    new = None if newborn is None else newborn.living(kinds_of(TensorBase))
    if new is None:
        return find_objects()[0]
    return [t for seen in before if (t := seen.tensor()) is not None] + _tensors(new)


def describe_all(tensors: list[Any]) -> list[Seen]:
    return [Seen(ref(t), id(t.buffer), t.offset, t.spec, None if t._grad is None else ref(t._grad)) for t in tensors]


def host_random() -> Any:
    if "numpy.random" not in sys.modules:  # which nothing has drawn from, and which is slow to import
        return random.getstate()
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
