"""Composites that are the gradients of other ops, so that a backend may have one kernel for each.

They have no rules of their own: where the backward pass is recorded, they are differentiated through their parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dispatch.plan import Inferred
from ..spec import Spec
from .families import composite, infer_elementwise

if TYPE_CHECKING:
    from ..tensor import Tensor


def elementwise_gradient(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A composite on the gradient of an elementwise op's result and the tensors that its rule needs.

    The tensors broadcast and promote. Whatever else the function takes are attributes, named as the op's.
    """
    tensors = sum(note == "Tensor" for name, note in function.__annotations__.items() if name != "return")
    return _gradient(function, tensors, row_major=False)


def gradient_along_dim(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The same for an op along a dim, whose gradient is row-major as its result is."""
    return _gradient(function, 2, row_major=True)


def _gradient(function: Callable[..., Tensor], tensors: int, row_major: bool) -> Callable[..., Tensor]:
    name = function.__name__
    attributes = function.__code__.co_varnames[tensors : function.__code__.co_argcount]

    def infer(*values: Any) -> Inferred:
        found = infer_elementwise(name, values[:tensors])
        out: Spec = found.outputs[0]
        return found._replace(
            outputs=(out.like(),) if row_major else found.outputs,
            attrs=dict(zip(attributes, values[tensors:], strict=True)),
        )

    return composite(infer, elementwise=not row_major)(function)
