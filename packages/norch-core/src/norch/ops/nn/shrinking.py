"""Activations that are 0 around 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..elementwise.arithmetic import abs as absolute
from ..elementwise.arithmetic import le, maximum, minimum, where
from ..families import composite
from ..gradients import elementwise_gradient
from ..registry import public
from ..upcast import upcast
from .activation import infer_floating

if TYPE_CHECKING:
    from ...tensor import Tensor


@elementwise_gradient
def hardshrink_grad(grad: Tensor, input: Tensor, lambd: float) -> Tensor:
    return where(le(absolute(input), lambd), 0.0, grad)


@composite(infer_floating("hardshrink"), hardshrink_grad, name="hardshrink", elementwise=True)
def _hardshrink(input: Tensor, lambd: float) -> Tensor:
    return where(le(absolute(input), lambd), 0.0, input)


@public()
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 where |input| <= lambd, else `input`; NaN stays. Shape and dtype kept; raises DTypeError unless floating."""
    return _hardshrink(input, lambd)


@elementwise_gradient
def softshrink_grad(grad: Tensor, input: Tensor, lambd: float) -> Tensor:
    return where(le(absolute(upcast(input)), lambd), 0.0, grad)


@public(method=False)
@composite(infer_floating("softshrink"), softshrink_grad, elementwise=True)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """`input` moved towards 0 by `lambd`, and 0 where it is nearer; NaN stays. Shape and dtype kept; raises DTypeError
    unless floating.
    """
    x = upcast(input)  # 16 bits would round lambd
    return (x - minimum(maximum(x, -lambd), lambd)).to(input.dtype)
