"""Complex numbers as pairs of real ones: what lies between `norch.fft`, `view_as_complex` or `polar` and what is real
again. No tensor has a complex dtype: a `ComplexPair` is no Tensor, though it is called as one where its methods reach.
"""

from __future__ import annotations

import builtins
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import ops
from ..dispatch.arguments import check_functions, describe
from ..dtype import (
    ComplexDType,
    bfloat16,
    complex32,
    complex64,
    complex128,
    float16,
    float32,
    float64,
)
from ..errors import DTypeError, ShapeError
from ..ops import abs as magnitude_of
from ..ops import atan2, broadcast_tensors, cat, cos, einsum, exp, sin, sqrt, stack, where
from ..ops.elementwise.complex_products import complex_mul
from ..tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

INSTEAD = (
    "no tensor of norch is complex: z.real, z.imag and view_as_real(z), whose last dim holds both, are tensors with "
    "all ops, and view_as_complex() makes a ComplexPair of one again"
)

_DTYPES = {float16: complex32, bfloat16: complex32, float32: complex64, float64: complex128}


class ComplexPair:
    """Complex numbers of shape (...), kept as a floating tensor `pair` of shape (..., 2): real and imaginary parts.

    It adds, subtracts, multiplies and divides, with pairs, tensors and Python's numbers; indexing, `abs`, `angle`,
    `conj`, `exp`, `sum`, `mean`, and methods that only move elements do what those of a complex tensor do, and
    gradients flow. The functions of the same names take it, `cat`, `stack`, `einsum` and `matmul` too. Anything else
    raises, saying what there is instead.
    """

    __slots__ = ("pair",)
    pair: Tensor

    def __init__(self, pair: Tensor) -> None:
        self.pair = pair

    # --- What it is -------------------------------------------------------------------------------------------------

    @property
    def real(self) -> Tensor:
        """The real parts, a view."""
        return self.pair.select(-1, 0)

    @property
    def imag(self) -> Tensor:
        """The imaginary parts, a view."""
        return self.pair.select(-1, 1)

    shape = property(lambda self: type(self.pair.shape)(self.pair.shape[:-1]), doc="Without the dim of the parts.")
    ndim = property(lambda self: self.pair.ndim - 1, doc="How many dims there are, without that of the parts.")
    device = property(lambda self: self.pair.device, doc="Where the parts are.")
    dtype = property(lambda self: _DTYPES[self.pair.dtype], doc="complex64 of float32 parts.")
    requires_grad = property(lambda self: self.pair.requires_grad, doc="Whether the graph records what it is in.")

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        return int(self.ndim)

    def numel(self) -> int:
        return self.pair.numel() // 2

    def is_complex(self) -> bool:
        return True

    def is_floating_point(self) -> bool:
        return False

    def __len__(self) -> int:
        return len(self.real)

    def __repr__(self) -> str:
        return f"ComplexPair(real={self.real!r}, imag={self.imag!r})"

    def tolist(self) -> Any:
        def join(re: Any, im: Any) -> Any:
            return (
                [join(a, b) for a, b in zip(re, im, strict=True)] if isinstance(re, list) else builtins.complex(re, im)
            )

        return join(self.real.tolist(), self.imag.tolist())

    def item(self) -> Any:
        return builtins.complex(self.real.item(), self.imag.item())

    def numpy(self) -> Any:
        return self.real.numpy() + 1j * self.imag.numpy()

    # --- Arithmetic -------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if isinstance(other, ComplexPair):
            return ComplexPair(self.pair + other.pair)
        re, im = parts_of(other)
        return NotImplemented if re is None else joined(self.real + re, self.imag + im)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if not isinstance(other, ComplexPair | builtins.complex):
            factor = other.unsqueeze(-1) if isinstance(other, Tensor) else other
            return ComplexPair(self.pair * factor)
        pair = other.pair if isinstance(other, ComplexPair) else self.pair.new_tensor([other.real, other.imag])
        return ComplexPair(complex_mul(self.pair, pair, False))

    def __truediv__(self, other: Any) -> Any:
        if not isinstance(other, ComplexPair | builtins.complex):
            return ComplexPair(self.pair / (other.unsqueeze(-1) if isinstance(other, Tensor) else other))
        c, d = parts_of(other)
        return self * joined(self.real * 0 + c, self.real * 0 - d) / (c * c + d * d)

    def __rtruediv__(self, other: Any) -> Any:
        return self.conj() * other / (self.real * self.real + self.imag * self.imag)

    def _put(self, result: Any) -> ComplexPair:
        self.pair.copy_(result.pair)
        return self

    def add_(self, other: Any, *, alpha: Any = 1) -> ComplexPair:
        """`self + alpha * other`, written into the pair."""
        return self._put(self + other * alpha)

    def sub_(self, other: Any, *, alpha: Any = 1) -> ComplexPair:
        """`self - alpha * other`, written into the pair."""
        return self._put(self - other * alpha)

    def mul_(self, other: Any) -> ComplexPair:
        """`self * other`, written into the pair."""
        return self._put(self * other)

    def div_(self, other: Any) -> ComplexPair:
        """`self / other`, written into the pair."""
        return self._put(self / other)

    def __neg__(self) -> ComplexPair:
        return ComplexPair(-self.pair)

    def __matmul__(self, other: Any) -> Any:
        (a, b), (c, d) = parts_of(self), parts_of(other)
        return joined(a @ c - b @ d, a @ d + b @ c)

    def __pow__(self, exponent: Any) -> Any:
        if not isinstance(exponent, int) or exponent < 1:
            raise DTypeError(f"pow(): a ComplexPair takes positive ints only, got {describe(exponent)}; {INSTEAD}")
        return self if exponent == 1 else self ** (exponent - 1) * self

    __radd__, __rmul__ = __add__, __mul__
    add, sub, mul, div, neg, matmul, pow = __add__, __sub__, __mul__, __truediv__, __neg__, __matmul__, __pow__

    def abs(self) -> Tensor:
        """sqrt(real**2 + imag**2), without overflow; its gradient at 0 is 0."""
        a, b = magnitude_of(self.real), magnitude_of(self.imag)
        large = a.maximum(b).detach()
        scale = where((large > 0) & large.isfinite(), large, 1.0)
        a, b = a / scale, b / scale
        square = a * a + b * b
        return where(square > 0, sqrt(where(square > 0, square, 1.0)), square) * scale

    def angle(self) -> Tensor:
        return atan2(self.imag, self.real)

    def exp(self) -> ComplexPair:
        return polar(exp(self.real), self.imag)

    def conj(self) -> ComplexPair:
        return joined(self.real, -self.imag)

    def sum(self, dim: Any = None, keepdim: bool = False) -> ComplexPair:
        return joined(self.real.sum(dim, keepdim), self.imag.sum(dim, keepdim))

    def mean(self, dim: Any = None, keepdim: bool = False) -> ComplexPair:
        return joined(self.real.mean(dim, keepdim), self.imag.mean(dim, keepdim))

    # --- Elements ---------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> ComplexPair:
        return ComplexPair(self.pair[_index(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        re, im = parts_of(value)
        self.pair[_index(index)] = stack([re, im], -1) if isinstance(re, Tensor) else self.pair.new_tensor([re, im])

    def view(self, *shape: Any) -> ComplexPair:
        return self.reshape(*shape)

    def reshape(self, *shape: Any) -> ComplexPair:
        size = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return ComplexPair(self.pair.reshape(*size, 2))

    def to(self, *args: Any, **kwargs: Any) -> ComplexPair:
        """As `Tensor.to`: complex64 or float32 give parts of float32."""

        def of_parts(value: Any) -> Any:
            return value.parts if isinstance(value, ComplexDType) else value

        return ComplexPair(self.pair.to(*map(of_parts, args), **{name: of_parts(v) for name, v in kwargs.items()}))

    def __getattr__(self, name: str) -> Any:
        if name in _OF_PAIR:
            return lambda *args, **kwargs: ComplexPair(getattr(self.pair, name)(*args, **kwargs))
        if name in _OF_PARTS:
            return lambda *args, **kwargs: joined(*[getattr(p, name)(*args, **kwargs) for p in parts_of(self)])
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"a ComplexPair has no {name!r}; {INSTEAD}")

    @staticmethod
    def _norch_function(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function of norch gives that was called with a pair."""
        if name in _FUNCTIONS:
            return _FUNCTIONS[name](*args, **kwargs)
        if isinstance(args[0], ComplexPair) and (hasattr(ComplexPair, name) or name in _OF_PAIR | _OF_PARTS):
            return getattr(args[0], name)(*args[1:], **kwargs)
        title = {"div": "truediv"}.get(name, name)
        reflected = getattr(ComplexPair, f"__r{title}__", None) if len(args) == 2 else None
        if reflected is not None:
            return reflected(args[1], args[0])
        raise DTypeError(f"{name}(): does not take a ComplexPair; {INSTEAD}")


_OF_PAIR = frozenset({"clone", "contiguous", "cpu", "cuda", "detach", "requires_grad_"})
_OF_PARTS = frozenset({
    "expand", "flatten", "flip", "index_select", "movedim", "narrow", "permute", "repeat", "roll", "select", "squeeze",
    "swapaxes", "t", "transpose", "tril", "triu", "unflatten", "unsqueeze",
})  # fmt: skip


def parts_of(value: Any) -> tuple[Any, Any]:
    """Real and imaginary parts; (None, None) for what has none."""
    if isinstance(value, ComplexPair | builtins.complex):
        return value.real, value.imag
    return (value, 0.0) if isinstance(value, Tensor | int | float) else (None, None)


def _tensors(value: Any) -> tuple[Tensor, Tensor]:
    re, im = parts_of(value)
    return re, im if isinstance(im, Tensor) else re.new_zeros(()).expand(re.shape)


def joined(re: Tensor, im: Tensor) -> ComplexPair:
    if re.spec.shape != im.spec.shape:
        re, im = broadcast_tensors(re, im)
    return ComplexPair(stack([re, im], 0).movedim(0, -1))  # each part in one piece, since pairs are slow to make


def _index(index: Any) -> Any:
    """An index of the numbers as one of the pairs."""
    given = index if isinstance(index, tuple) else (index,)
    return (*given, slice(None)) if any(i is Ellipsis for i in given) else given


def _cat(tensors: Any, dim: int = 0) -> ComplexPair:
    re, im = zip(*[_tensors(z) for z in tensors], strict=True)
    return joined(cat(re, dim), cat(im, dim))


def _stack(tensors: Any, dim: int = 0) -> ComplexPair:
    re, im = zip(*[_tensors(z) for z in tensors], strict=True)
    return joined(stack(re, dim), stack(im, dim))


def _einsum(equation: str, *operands: Any) -> ComplexPair:
    """By sums of the products of all parts, which is what a product of complex numbers is."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    if len(given) > 2:
        raise DTypeError("einsum(): takes at most two operands where one is a ComplexPair; call it pair by pair")
    (a, b), *rest = [_tensors(z) for z in given]
    if not rest:
        return joined(einsum(equation, a), einsum(equation, b))
    if not isinstance(given[1], ComplexPair):
        return joined(einsum(equation, a, rest[0][0]), einsum(equation, b, rest[0][0]))
    c, d = rest[0]
    if not isinstance(given[0], ComplexPair):
        return joined(einsum(equation, a, c), einsum(equation, a, d))
    return joined(einsum(equation, a, c) - einsum(equation, b, d), einsum(equation, a, d) + einsum(equation, b, c))


def _where(condition: Tensor, input: Any, other: Any) -> ComplexPair:
    (a, b), (c, d) = parts_of(input), parts_of(other)
    return joined(where(condition, a, c), where(condition, b, d))


def _pad(input: ComplexPair, pad: Any, mode: str = "constant", value: Any = None) -> ComplexPair:
    re, im = parts_of(0.0 if value is None else value)
    return joined(ops.pad(input.real, pad, mode, re), ops.pad(input.imag, pad, mode, im))


def _like(name: str, *args: Any, **kwargs: Any) -> Any:
    return import_module("norch.compat.complex_creation").like(name, *args, **kwargs)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cat": _cat, "concat": _cat, "stack": _stack, "einsum": _einsum, "where": _where, "pad": _pad,
}  # fmt: skip
for _name in ("empty_like", "full_like", "ones_like", "rand_like", "randn_like", "zeros_like"):
    _FUNCTIONS[_name] = partial(_like, _name)


def view_as_complex(input: Tensor) -> ComplexPair:
    """The numbers whose parts are the last dim, of size 2: no copy. Raises ShapeError for another size, DTypeError
    unless floating.
    """
    if not input.ndim or input.shape[-1] != 2:
        raise ShapeError(f"view_as_complex(): expected a last dim of size 2, got shape {tuple(input.shape)}")
    if not input.is_floating_point():
        raise DTypeError(f"view_as_complex(): expected a floating dtype, got {input.dtype}")
    return ComplexPair(input)


def view_as_real(input: Any) -> Tensor:
    """The parts of complex numbers as a last dim of size 2: no copy."""
    return _pair("view_as_real", input).pair


def _pair(op: str, input: Any) -> ComplexPair:
    if not isinstance(input, ComplexPair):
        raise DTypeError(f"{op}(): expected a ComplexPair, got {describe(input)}")
    return input


def complex(real: Tensor, imag: Tensor) -> ComplexPair:
    """real + i imag, elementwise, of tensors of one floating dtype. Raises DTypeError for others."""
    if real.dtype is not imag.dtype or not real.is_floating_point():
        raise DTypeError(f"complex(): expected tensors of one floating dtype, got {real.dtype} and {imag.dtype}")
    return joined(real, imag)


def polar(abs: Tensor, angle: Tensor) -> ComplexPair:
    """abs (cos(angle) + i sin(angle))."""
    return joined(abs * cos(angle), abs * sin(angle))


def real(input: Any) -> Tensor:
    """The real parts; of a tensor itself."""
    return input.real if isinstance(input, ComplexPair) else input


def imag(input: Any) -> Tensor:
    """The imaginary parts, elementwise. Raises DTypeError for what has none."""
    return _pair("imag", input).imag


def conj(input: Any) -> Any:
    """The complex conjugates; of a tensor itself."""
    return input.conj() if isinstance(input, ComplexPair) else input


def angle(input: Any) -> Tensor:
    """The angle in the complex plane: for real numbers 0, or pi where negative."""
    if isinstance(input, ComplexPair):
        return input.angle()
    return where(input != input, input, where(input < 0, 3.141592653589793, input * 0))


def is_complex(input: Any) -> bool:
    """Whether `input` is a ComplexPair: no tensor is complex."""
    return isinstance(input, ComplexPair)


check_functions(globals())
