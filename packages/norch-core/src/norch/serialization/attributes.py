"""What tensors have beside their values: a class of one's own, and attributes that a program set on them."""

from __future__ import annotations

from typing import Any

from ..overriding import unasked
from ..tensor import Tensor
from ..tensor.interop import attributes as attributes

_ROOT = __name__.partition(".")[0]


def saved_attributes(tensor: Tensor) -> dict[str, Any]:
    """What was set on a tensor, but for what says of which ranks it is a piece, which is of no file."""
    own = attributes(tensor).items()
    return {name: value for name, value in own if not type(value).__module__.startswith(f"{_ROOT}.distributed")}


def is_of_others(tensor: Tensor) -> bool:
    """Whether its class is neither Tensor nor another of norch's."""
    kind = type(tensor)
    return kind is not Tensor and str(vars(kind).get("__module__")).partition(".")[0] not in (_ROOT, "torch")


@unasked
def as_kind(tensor: Tensor, kind: Any) -> Tensor:
    """The tensor as one of this class, which requires a gradient where it did. Raises ValueError for no such class."""
    if not isinstance(kind, type) or not issubclass(kind, Tensor):
        raise ValueError("a tensor is of another class")
    if type(tensor) is kind:
        return tensor
    made: Tensor = tensor.detach().as_subclass(kind)
    return made.requires_grad_() if tensor.requires_grad else made


def set_attributes(tensor: Tensor, state: Any) -> None:
    """Sets what a file says was set on a tensor: a dict, or one and another of what lay in slots. A class with a
    `__setstate__` is asked; of other attributes those are left out that its class has. Raises ValueError for others.
    """
    kind = type(tensor)
    if hasattr(kind, "__setstate__"):
        kind.__setstate__(tensor, state)
        return
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    for part in parts:
        if part is not None and not (isinstance(part, dict) and all(type(name) is str for name in part)):
            raise ValueError("the attributes of a tensor have no names")
    found = {name: value for part in parts for name, value in (part or {}).items()}
    tensor.__dict__.update({name: value for name, value in found.items() if not hasattr(kind, name)})
