"""linear: the matrix product of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import DTypeError, ShapeError
from ..spec import Spec
from .families import composite, floating

if TYPE_CHECKING:
    from ..tensor import Tensor


def _infer_linear(input: Spec, weight: Spec, bias: Spec | None) -> Spec:
    floating("linear", input, weight, bias)
    given = [s for s in (input, weight, bias) if s is not None]
    if any(s.dtype is not input.dtype for s in given):
        raise DTypeError(f"linear(): operands of dtypes {', '.join(str(s.dtype) for s in given)}; convert them to one")
    if weight.ndim != 2 or not input.ndim or input.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"linear(): input {tuple(input.shape)} does not fit weight {tuple(weight.shape)}: expected (..., in) "
            "and (out, in)"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ShapeError(
            f"linear(): bias {tuple(bias.shape)} does not fit weight {tuple(weight.shape)}: expected (out)"
        )
    return input.like((*input.shape[:-1], weight.shape[0]))


def _rows(x: Tensor) -> Tensor:
    """All dims but the last made into one."""
    shape = x.spec.shape
    count = 1
    for n in shape[:-1]:
        count *= n
    return x if len(shape) == 2 else x.reshape(count, shape[-1])


def _to_input(g: Tensor, weight: Tensor) -> Tensor:
    return (_rows(g) @ weight).reshape((*g.spec.shape[:-1], weight.spec.shape[1]))


def _to_weight(g: Tensor, input: Tensor) -> Tensor:
    return _rows(g).mT @ _rows(input)


@composite(
    _infer_linear,
    {
        "input": _to_input,
        "weight": _to_weight,
        "bias": lambda g: g,
    },
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias: (..., in), (out, in), (out) -> (..., out).

    Raises ShapeError for shapes that do not fit, DTypeError unless all have one floating dtype.
    """
    product = _rows(input) @ weight.mT
    if bias is not None:
        product = product + bias
    return product.reshape((*input.spec.shape[:-1], weight.spec.shape[0]))
