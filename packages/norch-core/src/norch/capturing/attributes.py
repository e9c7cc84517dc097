"""Results that a step leaves in attributes, such as `self.last_loss = loss`: each run puts its own there."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

if TYPE_CHECKING:
    from ..tensor import Tensor


class Attribute(NamedTuple):
    """An attribute of an object (weakly) that holds a tensor which the step has made."""

    owner: Any
    name: str
    tensor: Tensor

    def put(self, tensor: Tensor) -> None:
        """Gives the attribute another tensor, without what the object's class does when it is set."""
        owner = self.owner()
        if owner is not None:
            vars(owner)[self.name] = tensor


def attributes_of(tensors: Sequence[Tensor], ours: Sequence[Any]) -> list[Attribute] | None:
    """The attributes that hold `tensors`; None where anything else does too, but for `ours`, frames and graphs."""
    distinct = {id(t): t for t in tensors}
    asked = tuple(distinct.values())
    known = {id(tensors), id(distinct), id(asked), *map(id, ours)}
    # Each asks all objects that there are.
    holders = [h for h in gc.get_referrers(*asked) if id(h) not in known and not isinstance(h, FrameType | Attribute)]
    owners = _owners(holders)
    if owners is None:
        return None
    found: list[Attribute] = []
    for owner in {id(owner): owner for owner in owners}.values():
        try:
            found += [Attribute(ref(owner), str(k), v) for k, v in vars(owner).items() if id(v) in distinct]
        except TypeError:
            return None
    return found if {id(a.tensor) for a in found} == set(distinct) else None


def _owners(holders: Sequence[Any]) -> list[Any] | None:
    """The objects whose attributes the holders are: themselves, or those whose `__dict__` they are; None where one is
    anything else."""
    dicts = {id(h): h for h in holders if isinstance(h, dict)}
    objects = [h for h in holders if not isinstance(h, dict)]
    found: dict[int, list[Any]] = {key: [] for key in dicts}
    for thing in gc.get_referrers(*dicts.values()) if dicts else ():
        own = found.get(id(getattr(thing, "__dict__", None)))
        if own is not None:
            own.append(thing)
    if any(len(things) != 1 for things in found.values()):
        return None
    objects += [things[0] for things in found.values()]
    if any(isinstance(thing, type) or not hasattr(thing, "__dict__") for thing in objects):
        return None
    return objects


def holders_in(attributes: Sequence[Attribute]) -> list[Any]:
    """What `gc` says holds the tensors of attributes."""
    owners = [a.owner() for a in attributes]
    return [*owners, *[vars(owner) for owner in owners if owner is not None]]
