"""Gated linear units: one half of a tensor, let through by the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...autograd.graph import is_recording
from ...errors import ShapeError
from ...spec import Spec, elementwise_layout, wrap_dim
from ..elementwise.arithmetic import sigmoid, sigmoid_grad
from ..families import accepts_axis, composite, floating, infer_elementwise
from ..registry import public
from ..shape.joining import cat
from ..shape.views import slice_dim

if TYPE_CHECKING:
    from ...tensor import Tensor


def _halves(input: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    half = input.spec.shape[dim] // 2
    return slice_dim(input, dim, 0, half), slice_dim(input, dim, half, half)


def _glu_rule(g: Tensor, input: Tensor, dim: int) -> Tensor:
    first, gate = _halves(input, dim)
    value = sigmoid(gate)
    # Of the gate not by way of g * first, which may overflow where the gradient does not.
    return cat([g * value, sigmoid_grad(first, value) * g], dim)


def _infer_glu(input: Spec, dim: int) -> Spec:
    shape = (*input.shape[:dim], input.shape[dim] // 2, *input.shape[dim + 1 :])
    return input.like(shape, elementwise_layout(shape, (input.like(shape, input.strides),)))


@composite(lambda first, gate: infer_elementwise("glu", (first, gate)), name="gated", elementwise=True)
def _gated(first: Tensor, gate: Tensor) -> Tensor:
    return first * sigmoid(gate)


def _of_halves(input: Tensor, dim: int) -> Tensor:
    return _gated(*_halves(input, dim))


_gated_halves = composite(_infer_glu, _glu_rule, name="gated_halves")(_of_halves)


@public(method=False)
@accepts_axis
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second (Dauphin et al., 2016): (…, 2n, …) -> (…, n, …).

    Raises ShapeError for an odd size or a 0-d input, IndexError for a dim out of range, DTypeError unless floating.
    """
    floating("glu", input.spec)
    at = wrap_dim(dim, input.spec.ndim, "glu")
    if not input.spec.ndim or input.spec.shape[at] % 2:
        raise ShapeError(f"glu(): dim {dim} of shape {tuple(input.spec.shape)} has no two halves")
    return (_gated_halves if input.requires_grad and is_recording() else _of_halves)(input, at)
