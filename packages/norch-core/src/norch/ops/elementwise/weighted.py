"""Weighted sums: lerp, addcmul and addcdiv."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ...dispatch.plan import SCALARS, Inferred
from ...dtype import DType
from ...spec import Spec
from ...tensor_base import TensorBase
from ..families import FLOAT, composite, infer_elementwise, op_of
from ..registry import public
from ..upcast import upcast_dtype
from .arithmetic import abs as absolute
from .arithmetic import lt, mul, scaled, where
from .composites import promoted_dtype

if TYPE_CHECKING:
    from ...tensor import Tensor

    Operand: TypeAlias = "Tensor | float"
    Number: TypeAlias = float


def _widened(dtype: DType, *tensors: Tensor) -> list[Tensor]:
    """The tensors in `dtype`, or in float32 where that is a 16-bit float."""
    wide = upcast_dtype(dtype) if dtype.is_floating_point else dtype
    return [x.to(wide) for x in tensors]


def _infer_lerp(input: Spec, end: Spec, weight: type, rest: type, is_small: bool) -> Inferred:
    return infer_elementwise("lerp", (input, end, weight, rest))._replace(attrs={"is_small": is_small})


@composite(
    _infer_lerp,
    {"input": lambda g, rest: g * rest, "end": lambda g, weight: g * weight},
    name="lerp",
    elementwise=True,
)
def _lerp(input: Tensor, end: Tensor, weight: Number, rest: Number, is_small: bool) -> Tensor:
    dtype = promoted_dtype("lerp", input, end, weight)
    a, b = _widened(dtype, input, end)
    step = b - a
    return (a + step * weight if is_small else b - step * rest).to(dtype)


@composite(
    lambda *values: infer_elementwise("lerp", values),
    {
        "input": lambda g, weight: g * (1 - weight),
        "end": lambda g, weight: g * weight,
        "weight": lambda g, input, end: g * (end - input),
    },
    name="lerp_by_tensor",
    elementwise=True,
)
def _lerp_by_tensor(input: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    dtype = promoted_dtype("lerp", input, end, weight)
    a, b, w = _widened(dtype, input, end, weight)
    step = b - a
    return where(lt(absolute(w), 0.5), a + step * w, b - step * (1 - w)).to(dtype)


@public(inplace=True)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """Linear interpolation, input + weight * (end - input), and `end` at 1; the three broadcast and promote."""
    if hasattr(weight, "spec"):
        return _lerp_by_tensor(input, end, weight)
    return _lerp(input, end, weight, 1 - weight, bool(abs(weight) < 0.5))


def _times(g: Tensor, other: Tensor, value: Any) -> Tensor:
    product: Tensor = g * other
    return product if value == 1 else product * value


@composite(
    lambda *values: infer_elementwise("addcmul", values),
    {
        "input": lambda g: g,
        "tensor1": lambda g, tensor2, value: _times(g, tensor2, value),
        "tensor2": lambda g, tensor1, value: _times(g, tensor1, value),
    },
    name="addcmul",
    elementwise=True,
)
def _addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number) -> Tensor:
    dtype = promoted_dtype("addcmul", input, tensor1, tensor2, value)
    x, a, b = _widened(dtype, input, tensor1, tensor2)
    return (x + a * value * b).to(dtype)


@composite(
    lambda *values: infer_elementwise("addcdiv", values, FLOAT),
    {
        "input": lambda g: g,
        "tensor1": lambda g, tensor2, value: (g if value == 1 else g * value) / tensor2,
        "tensor2": lambda g, tensor1, tensor2, value: _times(-g, tensor1, value) / tensor2 / tensor2,
    },
    name="addcdiv",
    elementwise=True,
)
def _addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, value: Number) -> Tensor:
    dtype = promoted_dtype("addcdiv", input, tensor1, tensor2, value, 1.0)
    x, a, b = _widened(dtype, input, tensor1, tensor2)
    return (x + a * value / b).to(dtype)


LERP, ADDCMUL, ADDCDIV = map(op_of, (_lerp, _addcmul, _addcdiv))


def _are_tensors(*operands: Any) -> bool:
    return all(isinstance(x, TensorBase) for x in operands)


@public(inplace=True)
def addcmul(input: Tensor, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Tensor:
    """input + value * tensor1 * tensor2; the three broadcast and promote."""
    if type(value) in SCALARS and _are_tensors(input, tensor1, tensor2):
        return _addcmul(input, tensor1, tensor2, value)  # type: ignore[arg-type]
    first, second = (tensor1, tensor2) if hasattr(tensor1, "spec") else (tensor2, tensor1)
    return input + mul(scaled(first, value, input, second), scaled(second, 1, input, first))


@public(inplace=True)
def addcdiv(input: Tensor, tensor1: Operand, tensor2: Operand, *, value: float = 1) -> Tensor:
    """input + value * tensor1 / tensor2; the three broadcast and promote."""
    if type(value) in SCALARS and _are_tensors(input, tensor1, tensor2):
        return _addcdiv(input, tensor1, tensor2, value)  # type: ignore[arg-type]
    quotient = scaled(tensor1, value, input, tensor2) / scaled(tensor2, 1, input, tensor1)
    return input + quotient  # type: ignore[no-any-return]
