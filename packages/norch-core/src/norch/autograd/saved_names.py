"""What a node has saved, by PyTorch's names: `y.grad_fn._saved_self`, `_saved_other`, `_saved_result`, `_saved_dim`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..tensor_base import TensorBase
from .graph import Output
from .saved_attributes import SAVED, SIZES

if TYPE_CHECKING:
    from .graph import Node

_OPERANDS = ("a", "b", "x", "y")
"""What norch's ops call operands that PyTorch calls `self` and `other`."""

_SECOND = {"pow": "exponent", "matmul": "mat2", "linear": "mat2"}
"""PyTorch's name of the second operand, by the op; of the others it is `other`."""


def listed(node: Node, attributes: Iterable[str]) -> list[str]:
    """What `dir` of a node lists: its attributes, of those that give what it has saved the ones that do."""
    return [*[name for name in attributes if not name.startswith(SAVED)], *names(node)]


def names(node: Node) -> list[str]:
    """The attributes of `saved` that the node has."""
    node = _recorded(node)
    if node.plan is None:
        return []
    op = node.plan.op
    found = ["result", "self", "self_sym_sizes", _SECOND.get(op.name, "other"), *op.params]
    return sorted({SAVED + name for name in found if _lookup(node, name, False) is not None})


def saved(node: Node, name: str) -> Any:
    """What has been saved under a name that begins with SAVED: a tensor, a number or a shape.

    Raises AttributeError where there is no such thing, AutogradError once a backward pass has freed it, and for a
    tensor that has been changed in place since.
    """
    node = _recorded(node)
    found = None if node.plan is None else _lookup(node, name.removeprefix(SAVED), True)
    if found is None:
        raise AttributeError(f"{node.name()} has saved nothing that is named {name!r}")
    return found


def _recorded(node: Node) -> Node:
    """The node of an op, of whose results `node` may be one."""
    parent = node.edges[0] if isinstance(node, Output) else None
    return node if parent is None else parent


def _place(op: Any, name: str) -> int | None:
    """Where among the op's arguments one of PyTorch's names is."""
    params = op.params
    if name == "self" and params:
        return 0
    if len(params) > 1 and name == _SECOND.get(op.name, "other" if params[1] in _OPERANDS else ""):
        return 1
    return int(params.index(name)) if name in params and name not in _OPERANDS else None


def _lookup(node: Node, name: str, unpack: bool) -> Any:
    """What is saved, or None. unpack: whether a tensor is wanted, and not only whether there is one."""
    op = node.plan.op
    for suffix in SIZES:
        if name.endswith(suffix):
            at = _place(op, name.removesuffix(suffix))
            spec: Any = None if at is None or at >= len(node.plan.operands) else node.plan.operands[at]
            return tuple(spec.shape) if hasattr(spec, "shape") else None
    if name in ("result", "output"):
        if op.kind == "view" or not any(rule is not None and rule.saved_outputs for rule in op.rules or ()):
            return None
        return node.saved_result() if unpack else True
    at = _place(op, name)
    if at is None:
        return None
    if node.saved_inputs is None:
        if not unpack or not op.saves_tensors:
            return None
        raise node.freed()
    value = node.saved_inputs[at]
    if not unpack:
        return value
    if hasattr(value, "unpack"):  # by hooks
        return value.unpack()
    if isinstance(value, TensorBase):
        node.check_unchanged(value, f"{op.params[at]!r}")  # type: ignore[arg-type]
    return value
