"""Who holds a tensor: what a step has put away for later, which no replay would put there."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from types import CellType
from typing import TYPE_CHECKING, Any

from ..autograd.graph import Node
from ..tensor_base import TensorBase

if TYPE_CHECKING:
    from .graphs import StepGraph


def holders_of(tensors: Sequence[Any]) -> dict[int, Any]:
    """What holds `tensors`, by id."""
    kinds = (dict, list, tuple, set, CellType)
    found = gc.get_referrers(*tensors) if tensors else []
    return {id(h): h for h in found if isinstance(h, kinds) or hasattr(h, "__dict__")}


def containers(tree: Any) -> list[Any]:
    """The dicts, lists and tuples of a tree."""
    found: list[Any] = []
    stack = [tree]
    while stack:
        thing = stack.pop()
        if isinstance(thing, dict | list | tuple):
            found.append(thing)
            stack += thing.values() if isinstance(thing, dict) else thing
    return found


def kept_elsewhere(
    tensors: Sequence[Any],
    graph: StepGraph | None,
    out: Any,
    lists: Sequence[Any],
    before: dict[int, Any] | None = None,
) -> list[Any]:
    """Those that something holds besides the step's graph, what it returns, `lists` and what has held them `before`.

    No replay would leave them there.
    """
    known: set[int] = {id(tensors), *map(id, lists), *(before or ())}
    if graph is not None:
        known |= {id(graph.tensors), *map(id, graph.holders)}
    known |= {id(thing) for thing in containers(out)}
    suspects = [h for i, h in holders_of(tensors).items() if i not in known and not isinstance(h, TensorBase | Node)]
    held = {id(thing) for suspect in suspects for thing in gc.get_referents(suspect)}
    # Asking an object for its attributes may give it a dict of them, which then holds them in its place.
    held |= {id(v) for suspect in suspects if hasattr(suspect, "__dict__") for v in vars(suspect).values()}
    return [t for t in tensors if id(t) in held]
