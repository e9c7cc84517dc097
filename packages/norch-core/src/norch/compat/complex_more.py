"""More functions of complex numbers by name: inverse functions, sums of products, questions and other names."""

from __future__ import annotations

import math
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from .. import ops
from ..tensor import Tensor
from .complex_numbers import ComplexPair, joined, parts_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable


def _plus(z: ComplexPair, number: float) -> ComplexPair:
    """`z + number` that keeps the sign of an imaginary zero, by which the side of a branch cut is told."""
    return joined(z.real + number, z.imag)


def _turned(z: ComplexPair) -> ComplexPair:
    """i z, with the signs of zeros."""
    return joined(-z.imag, z.real)


def _turned_back(z: ComplexPair) -> ComplexPair:
    return joined(z.imag, -z.real)


def _asinh(z: ComplexPair) -> ComplexPair:
    """By the root on its own sign's side, so that nothing cancels."""
    away = z.real.signbit().to(z.real.dtype) * -2 + 1
    z = z * away
    root: ComplexPair = _plus(z * z, 1).sqrt()
    return (z + root).log() * away  # type: ignore[no-any-return]


def _atanh(z: ComplexPair) -> ComplexPair:
    return (_plus(z, 1).log() - _plus(-z, 1).log()) * 0.5  # type: ignore[no-any-return]


def _acos(z: ComplexPair) -> ComplexPair:
    return math.pi / 2 - _asin(z)  # type: ignore[no-any-return]


def _asin(z: ComplexPair) -> ComplexPair:
    return _turned_back(_asinh(_turned(z)))


def _acosh(z: ComplexPair) -> ComplexPair:
    return (z + _plus(z, 1).sqrt() * _plus(z, -1).sqrt()).log()  # type: ignore[no-any-return]


def _expm1(z: ComplexPair) -> ComplexPair:
    half = (z.imag / 2).sin()
    re = z.real.expm1() * z.imag.cos() - 2 * half * half
    return joined(re, z.real.exp() * z.imag.sin())


def _fill(z: ComplexPair, by: Callable[[Tensor, Any], Tensor], value: Any) -> ComplexPair:
    re, im = parts_of(value)
    return joined(by(z.real, re), by(z.imag, im))


def _power(z: ComplexPair, n: int) -> Any:
    if n < 0:
        return _power(z.inverse(), -n)
    if n == 0:
        unit = z.real * 0
        unit = unit + unit.new_ones(z.shape[-1]).diag()
        return joined(unit, unit * 0)
    half = z if n < 2 else _power(z, n // 2)
    square = half if n < 2 else half @ half
    return square @ z if n > 1 and n % 2 else square


def _both(name: str, *args: Any, **kwargs: Any) -> Any:
    """What a function gives that puts elements elsewhere: of real and of imaginary parts."""
    re, im = [
        getattr(ops, name)(*[_of(value, part) for value in args], **{k: _of(v, part) for k, v in kwargs.items()})
        for part in (0, 1)
    ]
    return joined(re, im) if isinstance(re, Tensor) else type(re)(map(joined, re, im))


def _of(value: Any, part: int) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_of(each, part) for each in value)
    return tensors_of(value)[part] if isinstance(value, ComplexPair | Tensor) else value


def _cumsum(z: ComplexPair, dim: int, *, dtype: Any = None) -> Any:
    if dtype is not None:
        return z.to(dtype).cumsum(dim)
    return joined(z.real.cumsum(dim), z.imag.cumsum(dim))


def _cumprod(z: ComplexPair, dim: int, *, dtype: Any = None) -> Any:
    if dtype is not None:
        return z.to(dtype).cumprod(dim)
    if not z.ndim:
        return z.clone()
    many = list(accumulate(z.unbind(dim), ComplexPair.__mul__))
    return ops.stack(many, dim) if many else z


def _logical(name: str, input: Any, other: Any) -> Tensor:
    return getattr(ops, name)(input != 0, other != 0)  # type: ignore[no-any-return]


def _l1_loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> Tensor:
    size: Tensor = ops.abs(input - target)
    return ops.l1_loss(size, ops.zeros_like(size), *args, **kwargs)


def _normalize(input: ComplexPair, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> ComplexPair:
    return input / input.norm(p, dim, keepdim=True).clamp_min(eps)  # type: ignore[no-any-return]


def _with_mean(
    name: str, input: ComplexPair, dim: Any = None, unbiased: bool = True, keepdim: bool = False, **kwargs: Any
) -> tuple[Tensor, ComplexPair]:
    kwargs = kwargs or {"unbiased": unbiased}
    return getattr(input, name)(dim, keepdim=keepdim, **kwargs), input.mean(dim, keepdim)


def _corrcoef(input: ComplexPair) -> ComplexPair:
    found = input.cov()
    if not found.ndim:
        return found / found  # type: ignore[no-any-return]
    spread = found.real.diagonal().sqrt()
    return found / spread / spread.unsqueeze(-1)  # type: ignore[no-any-return]


def _cross(input: Any, other: Any, dim: int | None = None) -> Any:
    if dim is None:
        shape = ops.broadcast_shapes(input.shape, other.shape)
        dim = shape.index(3) - len(shape) if 3 in shape else -1
    return input.roll(-1, dim) * other.roll(-2, dim) - input.roll(-2, dim) * other.roll(-1, dim)


def _linear(input: Any, weight: Any, bias: Any = None) -> Any:
    found = input @ weight.transpose(-2, -1)
    return found if bias is None else found + bias


def _convolution(name: str, input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
    (a, b), (c, d) = tensors_of(input), tensors_of(weight)

    def of(x: Tensor, w: Tensor) -> Tensor:
        return getattr(ops, name)(x, w, None, *args, **kwargs)  # type: ignore[no-any-return]

    found = joined(of(a, c) - of(b, d), of(a, d) + of(b, c))
    return found if bias is None else found + bias.reshape(-1, *[1] * (weight.ndim - 2))


def _dropout(input: ComplexPair, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    found = input * ops.dropout(input.real.new_ones(input.shape), p, training)
    return input._put(found) if inplace else found


def _nan_to_num(input: ComplexPair, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> ComplexPair:
    return ComplexPair(ops.nan_to_num(input.pair, nan, posinf, neginf))


MORE: dict[str, Callable[..., Any]] = {
    "asin": _asin, "acos": _acos, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
    "atan": lambda z: _turned_back(_atanh(_turned(z))), "log1p": lambda z: _plus(z, 1).log(), "expm1": _expm1,
    "exp2": lambda z: (z * math.log(2)).exp(), "matrix_power": _power,
    "addcmul": lambda z, a, b, *, value=1: z + a * b * value,
    "addcdiv": lambda z, a, b, *, value=1: z + a / b * value,
    "lerp": lambda z, end, weight: z + (end - z) * weight,
    "index_fill": lambda z, dim, index, value: _fill(z, lambda part, v: part.index_fill(dim, index, v), value),
    "linear": _linear, "cumsum": _cumsum, "cumprod": _cumprod, "dropout": _dropout, "nan_to_num": _nan_to_num,
    "l1_loss": _l1_loss, "normalize": _normalize, "corrcoef": _corrcoef,
    "cross": _cross,
    "silu": lambda z: z * z.sigmoid(),
    "isreal": lambda z: z.imag == 0, "argwhere": lambda z: (z != 0).argwhere(),
    "logical_not": lambda z: z == 0, "reshape_as": lambda z, other: z.reshape(other.shape),
    "ndimension": lambda z: z.ndim, "type_as": lambda z, other: z.to(other.dtype),
    "stride": lambda z, dim=None: _strides(z) if dim is None else _strides(z)[dim],
    "storage_offset": lambda z: z.pair.storage_offset() // 2, "data_ptr": lambda z: z.pair.data_ptr(),
    "get_device": lambda z: z.pair.get_device(), "is_pinned": lambda z: z.pair.is_pinned(),
    "is_neg": lambda z: False, "is_signed": lambda z: True, "is_inference": lambda z: z.pair.is_inference(),
    "register_hook": lambda z, hook: z.pair.register_hook(_of_pairs(hook)),
    "register_post_accumulate_grad_hook":
        lambda z, hook: z.pair.register_post_accumulate_grad_hook(lambda pair: hook(ComplexPair(pair))),
}  # fmt: skip

for _name in ("block_diag", "cartesian_prod", "combinations", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d"):
    MORE[_name] = partial(_both, _name)
for _name in ("logical_and", "logical_or", "logical_xor"):
    MORE[_name] = partial(_logical, _name)
for _name in ("var", "std"):
    MORE[f"{_name}_mean"] = partial(_with_mean, _name)
for _name in ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"):
    MORE[_name] = partial(_convolution, _name)

OTHER_NAMES = {
    "absolute": "abs", "multiply": "mul", "divide": "div", "true_divide": "div", "subtract": "sub", "negative": "neg",
    "not_equal": "ne", "moveaxis": "movedim", "swapdims": "transpose", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "ger": "outer",
    "split_with_sizes": "split", "unsafe_split": "split", "unsafe_chunk": "chunk",
}  # fmt: skip
"""Of methods that PyTorch has under a second name, by it."""

PARTS_OF_PAIR = frozenset({"is_cpu", "is_sparse", "is_quantized", "layout", "output_nr"})
"""Attributes that are those of the pair."""

PARTS_IN_PLACE = frozenset({
    "cumsum_", "index_add_", "index_copy_", "index_put_", "masked_scatter_", "put_", "scatter_add_",
    "tril_", "triu_",
})  # fmt: skip
"""Methods that write into each of both parts."""


def _strides(z: ComplexPair) -> tuple[int, ...]:
    """In numbers: of a pair whose parts lie apart, each part's own."""
    *strides, apart = z.pair.stride()
    return tuple([stride // 2 for stride in strides] if apart == 1 else strides)


def _of_pairs(hook: Callable[[Any], Any]) -> Callable[[Tensor], Any]:
    def call(pair: Tensor) -> Any:
        found = hook(ComplexPair(pair))
        return found.pair if isinstance(found, ComplexPair) else found

    return call
