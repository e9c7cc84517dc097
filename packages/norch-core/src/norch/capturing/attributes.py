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
    found: list[Attribute] = []
    distinct = {id(t): t for t in tensors}
    known = {id(tensors), id(found), id(distinct), *map(id, ours)}
    for tensor in distinct.values():
        attributes = 0
        for holder in gc.get_referrers(tensor):
            if id(holder) in known or isinstance(holder, FrameType | Attribute):
                continue
            owner = _owner(holder)
            name = None if owner is None else _name_in(owner, tensor)
            if name is None:
                return None
            try:
                found.append(Attribute(ref(owner), name, tensor))
            except TypeError:
                return None
            attributes += 1
        if not attributes:
            return None
    return found


def _name_in(owner: Any, tensor: Any) -> str | None:
    for name, value in vars(owner).items():
        if value is tensor:
            return str(name)
    return None


def _owner(holder: Any) -> Any:
    """The object whose attributes a holder is: itself, or that whose `__dict__` it is."""
    if not isinstance(holder, dict):
        return holder if hasattr(holder, "__dict__") and not isinstance(holder, type) else None
    owners = [thing for thing in gc.get_referrers(holder) if getattr(thing, "__dict__", None) is holder]
    return owners[0] if len(owners) == 1 and not isinstance(owners[0], type) else None


def holders_in(attributes: Sequence[Attribute]) -> list[Any]:
    """What `gc` says holds the tensors of attributes."""
    owners = [a.owner() for a in attributes]
    return [*owners, *[vars(owner) for owner in owners if owner is not None]]
