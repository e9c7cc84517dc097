"""Who holds a tensor: what a step has put away for later, which no replay would put there."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from sys import getrefcount
from types import CellType
from typing import TYPE_CHECKING, Any

from ..autograd.graph import Node
from ..tensor_base import TensorBase

if TYPE_CHECKING:
    from .graphs import StepGraph
    from .returned import Apart


def holders_of(tensors: Sequence[Any]) -> dict[int, Any]:
    """What holds `tensors`, by id."""
    kinds = (dict, list, tuple, set, CellType)
    asked = tuple(tensors)
    found = gc.get_referrers(*asked) if tensors else []
    # From Python 3.13 on the tuple of arguments is among them.
    return {id(h): h for h in found if h is not asked and (isinstance(h, kinds) or hasattr(h, "__dict__"))}


def counts_of(tensors: Sequence[Any]) -> list[int]:
    """How many references there are to each of them."""
    return [getrefcount(tensors[i]) for i in range(len(tensors))]


_LISTED = counts_of([object()])[0]
"""What `counts_of` says of what its list alone holds."""


def kept_elsewhere(
    tensors: Sequence[Any],
    graph: StepGraph | None,
    result: int,
    lists: Sequence[Any],
    before: tuple[dict[int, Any], list[int]] | None = None,
) -> list[Any]:
    """Those that something holds besides the step's graph and `lists`. No replay would leave them there.

    result: the id of what the step returned, which is a variable of the caller's and no list.
    before: of tensors that the step did not make, what has held them before it (`holders_of`) and `counts_of`.
    """
    ours = [tensors, *lists]
    if graph is not None:
        ours += [graph.tensors, *graph.holders]
    holders, counts = before or ({}, [_LISTED - 1] * len(tensors))
    # Every object there is has to be asked only where there are more references than what is known to hold them.
    new = {id(thing): thing for thing in ours if id(thing) not in holders}
    held = Counter(map(id, gc.get_referents(*new.values())))
    held[result] += 1
    if all(now <= n + held[id(t)] for t, now, n in zip(tensors, counts_of(tensors), counts, strict=True)):
        return []
    known: set[int] = {*map(id, ours), *holders}
    suspects = [h for i, h in holders_of(tensors).items() if i not in known and not isinstance(h, TensorBase | Node)]
    within = {id(thing) for suspect in suspects for thing in gc.get_referents(suspect)}
    # Asking an object for its attributes may give it a dict of them, which then holds them in its place.
    within |= {id(v) for suspect in suspects if hasattr(suspect, "__dict__") for v in vars(suspect).values()}
    return [t for t in tensors if id(t) in within]


def holds_kept(containers: list[Any], result: int, arguments: Apart) -> bool:
    """Whether anything but the others of them holds one of the lists, dicts and objects that a step returns: a replay
    makes new ones, which nothing else would hold. result: the id of what it returned."""
    given = {*map(id, arguments.containers)}
    asked = [c for c in containers if not isinstance(c, tuple) and id(c) not in given]
    held = Counter(map(id, gc.get_referents(*{id(c): c for c in containers}.values())))
    held.update(map(id, containers))
    held[result] += 1
    if all(now <= _LISTED - 1 + held[id(c)] for c, now in zip(asked, counts_of(asked), strict=True)):
        return False
    known = {id(containers), id(asked), *map(id, containers)}
    return any(id(holder) not in known for holder in holders_of(asked).values())
