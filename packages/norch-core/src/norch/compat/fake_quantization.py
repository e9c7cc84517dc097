"""Rounding to the numbers that quantized weights would have, in floats, as training that is aware of it needs."""

from __future__ import annotations

from typing import Any

from ..autograd import Function
from ..dispatch.arguments import check_functions
from ..dtype import float32
from ..errors import DTypeError, ShapeError
from ..ops import as_tensor, clamp, round
from ..tensor import Tensor


class _Rounded(Function):
    """Its gradient is that of `clamp`: as if nothing were rounded ("straight through")."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
        levels = round(input.float() * (1 / scale)) + zero_point
        ctx.save_for_backward((levels >= low) & (levels <= high))
        return ((clamp(levels, low, high) - zero_point) * scale).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return grad * ctx.saved_tensors[0], None, None, None, None


def _rounded(op: str, input: Tensor, scale: Any, zero_point: Any, low: int, high: int, shape: Any) -> Tensor:
    if not input.is_floating_point():
        raise DTypeError(f"{op}(): expected a floating dtype, got {input.dtype}")
    if low > high:
        raise ValueError(f"{op}(): quant_min {low} is larger than quant_max {high}")
    scale, zero_point = [as_tensor(v, device=input.device).to(float32).reshape(shape) for v in (scale, zero_point)]
    found: Tensor = _Rounded.apply(input, scale, zero_point, low, high)
    return found


def fake_quantize_per_tensor_affine(
    input: Tensor, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Tensor:
    """(clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point) * scale, of the shape and dtype of
    `input`; its gradient is 1 where nothing is clamped, else 0.

    scale, zero_point: numbers, or tensors of one element. Raises DTypeError unless floating, ValueError for bounds in
    the wrong order.
    """
    return _rounded("fake_quantize_per_tensor_affine", input, scale, zero_point, quant_min, quant_max, ())


def fake_quantize_per_channel_affine(
    input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """As `fake_quantize_per_tensor_affine`, with a scale and a zero point for each place along the dim `axis`.

    Raises ShapeError unless `scale` and `zero_point` are 1-D and of that size, and what it raises.
    """
    sizes = (input.shape[axis],)
    if tuple(scale.shape) != sizes or tuple(zero_point.shape) != sizes:
        raise ShapeError(
            f"fake_quantize_per_channel_affine(): scale {tuple(scale.shape)} and zero_point {tuple(zero_point.shape)} "
            f"must have one element for each of the {sizes[0]} along dim {axis} of shape {tuple(input.shape)}"
        )
    shape = [1] * input.ndim
    shape[axis] = -1
    op = "fake_quantize_per_channel_affine"
    return _rounded(op, input, scale, zero_point, quant_min, quant_max, shape)


check_functions(globals())
