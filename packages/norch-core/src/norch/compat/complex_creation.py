"""Functions that are asked for complex numbers, and ops of a tensor and a complex number of Python: their pairs."""

from __future__ import annotations

import operator
from functools import partial, reduce
from typing import Any

from .. import ops
from ..dtype import (
    ComplexDType,
    DType,
    complex32,
    complex64,
    complex128,
    float16,
    float64,
    get_default_dtype,
    promote_types,
    scalar_dtype,
)
from ..errors import DTypeError, ShapeError
from ..tensor import Tensor
from .complex_numbers import INSTEAD, ComplexPair, joined, parts_of


def like(name: str, input: Any, *args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Any:
    """`zeros_like` and its kind, of a pair or for a complex `dtype`."""
    dtype, device = dtype or input.dtype, device or input.device
    if isinstance(dtype, ComplexDType):
        return created(name.removesuffix("_like"), (input.shape, *args), {"dtype": dtype, "device": device, **kwargs})
    return getattr(ops, name)(input.real, *args, dtype=dtype, device=device, **kwargs)


_OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "pow": operator.pow,
}


def with_number(name: str, a: Any, b: Any) -> Any:
    """What the op `name` of a tensor and a complex number of Python gives. Raises DTypeError for ops without one."""
    if name not in _OPERATORS:
        raise DTypeError(f"{name}(): does not take complex numbers; {INSTEAD}")

    tensor = a if isinstance(a, Tensor) else b
    tensor = tensor if tensor.is_floating_point() else tensor.to(get_default_dtype())
    given = [tensor if isinstance(v, Tensor) else ComplexPair(tensor.new_tensor([v.real, v.imag])) for v in (a, b)]
    return _OPERATORS[name](*given)


def created(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ComplexPair:
    """The pair that a function makes for a complex `dtype`. Raises DTypeError for functions that make no tensor."""
    dtype, parts = kwargs.get("dtype"), {k: v for k, v in kwargs.items() if k != "dtype"}
    if name in ("promote_types", "can_cast"):
        return _PAIR_OF_DTYPES[name](*args, **kwargs)  # type: ignore[no-any-return]
    if name.startswith("new_"):
        return created(name[4:], args[1:], {"device": args[0].device, **kwargs})
    if name.endswith("_like"):
        return like(name, *args, **kwargs)  # type: ignore[no-any-return]
    if isinstance(dtype, ComplexDType) and name == "frombuffer":
        count = parts.pop("count", -1)
        return viewed(ops.frombuffer(*args, dtype=dtype.parts, count=2 * count if count > 0 else -1, **parts), dtype)
    if not isinstance(dtype, ComplexDType) or name not in (*_OF_PAIRS, "ones", "full", "eye", "arange", "linspace"):
        raise DTypeError(f"{name}(): no tensor is complex; view_as_complex() of (..., 2) is")
    function = partial(getattr(ops, name), dtype=dtype.parts)
    if name in _OF_PAIRS:
        size = parts.pop("size", None) or (args[0] if len(args) == 1 and not isinstance(args[0], int) else args)
        pair = function(*size, 2, **parts)
        return ComplexPair(pair * 0.5**0.5 if name == "randn" else pair)
    if name == "full":
        size, value = (*args, *[parts.pop(key) for key in ("size", "fill_value") if key in parts])
        return joined(*[function(size, part, **parts) for part in parts_of(value)])
    re = function(*args, **parts)
    return joined(re, re.new_zeros(re.shape))


def viewed(input: Tensor, dtype: ComplexDType) -> ComplexPair:
    """`Tensor.view` of a complex dtype: the elements of the last dim by twos. Raises ShapeError for an odd number."""
    parts = input if input.dtype is dtype.parts else input.view(dtype.parts)
    if not parts.ndim or parts.shape[-1] % 2:
        raise ShapeError(f"view(): a last dim of an even size is viewed as {dtype}, got shape {tuple(parts.shape)}")
    return ComplexPair(parts.unflatten(-1, (-1, 2)))


def _promoted(type1: Any, type2: Any) -> Any:
    parts = [t.parts if isinstance(t, ComplexDType) else t for t in (type1, type2)]
    if parts == [type1, type2]:
        return promote_types(type1, type2)
    floating = [t for t in parts if t.is_floating_point]
    return _complex_of(reduce(promote_types, floating))


def result_type(*operands: Any) -> Any:
    """`result_type` of tensors and numbers of which one is complex."""
    levels: list[Any] = [None, None, None]  # tensors with dims, without, and numbers, which do not widen those before
    for value in operands:
        at = 2 if isinstance(value, bool | int | float | complex) else 0 if value.ndim else 1
        if at < 2:
            dtype = value.dtype
        else:
            dtype = _complex_of(get_default_dtype()) if isinstance(value, complex) else scalar_dtype(type(value))
        levels[at] = dtype if levels[at] is None else _promoted(levels[at], dtype)
    result: Any = None
    for dtype in levels:
        if result is None or dtype is None or isinstance(result, ComplexDType):
            result = dtype if result is None else result
        elif isinstance(dtype, ComplexDType) and result.is_floating_point:
            result = _complex_of(result)
        elif isinstance(dtype, ComplexDType) or dtype.category > result.category:
            result = dtype
    return result


def _complex_of(dtype: DType) -> ComplexDType:
    return {float16: complex32, float64: complex128}.get(dtype, complex64)


_PAIR_OF_DTYPES: dict[str, Any] = {
    "promote_types": _promoted, "can_cast": lambda from_, to: isinstance(to, ComplexDType),
}  # fmt: skip


def filled(size: Any, value: complex, dtype: Any, **options: Any) -> ComplexPair:
    """`full` of a complex number of Python. Raises DTypeError for a `dtype` that is real."""
    if dtype is None:
        dtype = complex128 if get_default_dtype() is float64 else complex64
    if not isinstance(dtype, ComplexDType):
        raise DTypeError(f"full(): {value} is no number of {dtype}")
    return created("full", (size, value), {"dtype": dtype, **options})


_OF_PAIRS = ("zeros", "empty", "rand", "randn")
