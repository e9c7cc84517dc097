"""Discrete Fourier transforms, along one dim or several. Complex numbers are pairs of real ones: see `ComplexPair`.

A transform of n = n1 * n2 elements is two matrix products, with n1 and with n2 elements (Cooley and Tukey, 1965), which
carry the turns between them; long ones are cut again, and those of large primes are convolutions (Bluestein, 1970).
Gradients are those of the products.

Arguments that mean the same in every function:

    s: the sizes along `dim`, to which input is cut or padded with zeros; by default its own.
    norm: "backward" (only what goes back is divided by n), "forward" (only what goes forth) or "ortho" (both, by its
        root). Raises ValueError for another.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt, prod, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from .compat.complex_numbers import ComplexPair
from .dispatch.arguments import check_functions, describe
from .dtype import as_dtype, float32, float64, get_default_dtype
from .errors import DTypeError, ShapeError
from .ops import arange, matmul, pad, roll
from .ops import tensor as make_tensor
from .ops.copying import row_major_copy
from .spec import as_int, wrap_dim
from .tensor import Tensor

if TYPE_CHECKING:
    from .device import Device
    from .dtype import DType

_DIRECT = 128
"""Up to so many elements, or a prime below the square of it, a transform is one product."""


# --- Along the last dim ---------------------------------------------------------------------------------------------


def _matrix(angles: Any, sign: int, inputs: int, outputs: int) -> Any:
    """The real matrix (part, j, part, k) of products with exp(sign i angle[j, k]); `inputs` or `outputs` 1: real."""
    c, s = np.cos(angles), sign * np.sin(angles)
    whole = np.array([[c, s], [-s, c]])[:inputs, :outputs]  # part in, part out, ..., j, k
    return np.moveaxis(whole, (0, 1), (-4, -2))


@lru_cache(64)
def _tables(
    n: int, n1: int, sign: int, inputs: int, outputs: int, count: int, scale: float, dtype: DType, device: Device
) -> tuple[Tensor, ...]:
    """The matrices of a transform's one or two products. Of the last, `count` results are wanted."""

    def put(matrix: Any, *shape: int) -> Tensor:
        return make_tensor(np.ascontiguousarray(matrix).reshape(shape), dtype=dtype, device=device)

    turn, n2 = 2 * np.pi / n, n // n1
    if n1 == 1:
        angles = np.outer(np.arange(n), np.arange(count)) % n * turn
        return (put(_matrix(angles, sign, inputs, outputs) * scale, inputs * n, outputs * count),)
    first = _matrix(np.outer(np.arange(n1), np.arange(n1)) % n1 * (turn * n2), sign, inputs, 2)  # in, j1, part, k1
    k1, j2, k2 = np.arange(n1)[:, None, None], np.arange(n2)[:, None], np.arange(count)
    second = _matrix((j2 * k1 + n1 * j2 * k2) % n * turn, sign, 2, outputs)  # k1, part, j2, out, k2
    left = first.transpose(3, 2, 0, 1)  # k1, part, in, j1
    return put(left, n1 * 2, inputs * n1), put(second * scale, n1, 2 * n2, outputs * count)


def _transform(x: Tensor, sign: int, inputs: int, outputs: int, count: int, scale: float) -> Tensor:
    """(batch, n, inputs) to the first `count` of (batch, n, outputs): parts in the last dim, 1 of what is real.

    In memory each part of a result is in one piece: products make it so, and pairs are slow to move one by one.
    """
    batch, n, _ = x.spec.shape
    n1 = 1 if n <= _DIRECT // 2 else max((d for d in range(1, isqrt(n) + 1) if n % d == 0), default=1)
    n2 = n // n1
    if (n1 == 1 and n > _DIRECT * 4) or n2 > _DIRECT * 4:
        return _long(x, n1, sign, inputs, outputs, count, scale)
    where = x.spec.dtype, x.spec.device
    planes = x.reshape(batch, n, inputs).transpose(1, 2)
    if n1 == 1:
        (matrix,) = _tables(n, 1, sign, inputs, outputs, count, scale, *where)
        return (planes.reshape(batch, inputs * n) @ matrix).reshape(batch, outputs, count).transpose(1, 2)
    rows = -(-count // n1)
    left, right = _tables(n, n1, sign, inputs, outputs, rows, scale, *where)
    turned = (left @ planes.reshape(batch, inputs * n1, n2)).reshape(batch, n1, 2 * n2).transpose(0, 1)
    out = matmul(turned, right).reshape(n1, batch, outputs, rows).permute(1, 2, 3, 0)
    return row_major_copy(out).reshape(batch, outputs, rows * n1)[:, :, :count].transpose(1, 2)


def _long(x: Tensor, n1: int, sign: int, inputs: int, outputs: int, count: int, scale: float) -> Tensor:
    """`_transform` of more elements: transforms of n1, turns, and of the rest; for a large prime a convolution."""
    batch, n, _ = x.spec.shape
    device, dtype = x.spec.device, x.spec.dtype

    def turned(z: Tensor, turns: Tensor) -> Tensor:
        product: ComplexPair = ComplexPair(z) * ComplexPair(turns)
        return product.pair

    if inputs == 1:
        x = pad(x, (0, 1))
    if n1 > 1:
        n2 = n // n1
        columns = x.reshape(batch, n1, n2, 2).transpose(1, 2).reshape(batch * n2, n1, 2)
        parts = _transform(columns, sign, 2, 2, n1, 1.0).reshape(batch, n2, n1, 2)
        parts = turned(parts, _turns(n, n2, n1, sign, dtype, device)).transpose(1, 2).reshape(batch * n1, n2, 2)
        rows = -(-count // n1)
        out = _transform(parts, sign, 2, 2, rows, scale).reshape(batch, n1, rows, 2).transpose(1, 2)
        return out.reshape(batch, rows * n1, 2)[:, :count, :outputs]
    chirp, kernel, size = _chirp(n, sign, dtype, device)
    spread = pad(turned(x, chirp), (0, 0, 0, size - n))
    product = turned(_transform(spread, -1, 2, 2, size, 1.0), kernel)
    out = _transform(product, 1, 2, 2, size, scale / size)[:, :count]
    return turned(out, chirp[:count])[..., :outputs]


@lru_cache(16)
def _turns(n: int, rows: int, columns: int, sign: int, dtype: DType, device: Device) -> Tensor:
    angles = np.outer(np.arange(rows), np.arange(columns)) % n * (sign * 2 * np.pi / n)
    return make_tensor(np.stack([np.cos(angles), np.sin(angles)], -1), dtype=dtype, device=device)


@lru_cache(16)
def _chirp(n: int, sign: int, dtype: DType, device: Device) -> tuple[Tensor, Tensor, int]:
    """exp(sign i pi j**2 / n), and the transform of its conjugate, padded to twice the length or more."""
    size = 1 << (2 * n - 1).bit_length()
    at = np.arange(n)
    angles = at * at % (2 * n) * (sign * np.pi / n)
    wave = np.exp(1j * angles)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = wave.conj()
    kernel[size - n + 1 :] = wave.conj()[:0:-1]
    both = [np.stack([z.real, z.imag], -1) for z in (wave, np.fft.fft(kernel))]
    return make_tensor(both[0], dtype=dtype, device=device), make_tensor(both[1], dtype=dtype, device=device), size


# --- Along any ------------------------------------------------------------------------------------------------------

_NORMS = ("backward", "ortho", "forward")


def _along(
    op: str, x: Tensor, n: int | None, dim: Any, norm: str | None, sign: int, kinds: tuple[int, int], count: int | None
) -> Tensor:
    """The transform along `dim` of (..., parts). n: to which size it is cut or padded; count: how many results."""
    at = wrap_dim(dim, x.spec.ndim - 1, op)
    moved = x.movedim(at, -2)
    given = moved.spec.shape[-2] if n is None else as_int(n, op, "n")
    if given < 1:
        raise ShapeError(f"{op}(): n must be at least 1, got {given}")
    if norm not in (None, *_NORMS):
        raise ValueError(f"{op}(): norm must be one of {', '.join(_NORMS)}, got {norm!r}")
    have = moved.spec.shape[-2]
    if have != given:
        moved = pad(moved, (0, 0, 0, given - have)) if given > have else moved.narrow(-2, 0, given)
    scaled = norm == "forward" if sign < 0 else norm in (None, "backward")
    scale = 1 / sqrt(given) if norm == "ortho" else 1 / given if scaled else 1.0
    lead = tuple(moved.spec.shape[:-2])
    flat = moved.reshape(prod(lead), given, kinds[0])
    out = _transform(flat, sign, *kinds, given if count is None else count, scale)
    return out.reshape(*lead, *out.spec.shape[1:]).movedim(-2, at)


def _real(op: str, input: Any) -> Tensor:
    """A real operand in a dtype that is transformed."""
    if not isinstance(input, Tensor):
        raise DTypeError(f"{op}(): input must be a Tensor, got {describe(input)}")
    x: Tensor = input if input.is_floating_point() else input.to(get_default_dtype())
    if x.dtype not in (float32, float64):
        raise DTypeError(f"{op}(): expected float32 or float64, got {x.dtype}; convert it first")
    if not x.ndim:
        raise ShapeError(f"{op}(): expected at least 1 dim, got shape ()")
    return x


def _complex(op: str, input: Any, sign: int, n: int | None, dim: Any, norm: str | None) -> ComplexPair:
    if isinstance(input, ComplexPair):
        return ComplexPair(_along(op, input.pair, n, dim, norm, sign, (2, 2), None))
    return ComplexPair(_along(op, _real(op, input).unsqueeze(-1), n, dim, norm, sign, (1, 2), None))


def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """The sum over j of input[j] exp(-2 pi i j k / n), for each k of n along `dim`.

    n: the size, to which input is cut or padded with zeros. norm: "backward" (not scaled), "forward" (divided by n),
    "ortho" (by its root). input: a tensor, or a ComplexPair. Raises DTypeError unless float32 or float64, ShapeError
    for an n below 1.
    """
    return _complex("fft", input, -1, n, dim, norm)


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """Undoes `fft` of the same norm: divided by n for "backward"."""
    return _complex("ifft", input, 1, n, dim, norm)


def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> ComplexPair:
    """The first n // 2 + 1 results of `fft` of real numbers, of which the others are the conjugates."""
    x = _real("rfft", input)
    size = x.shape[wrap_dim(dim, x.ndim, "rfft")] if n is None else as_int(n, "rfft", "n")
    return ComplexPair(_along("rfft", x.unsqueeze(-1), n, dim, norm, -1, (1, 2), size // 2 + 1))


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Undoes `rfft`: n real numbers, 2 (m - 1) by default, from m. Imaginary parts of the first, and for an even n of
    the last, are not looked at.

    Raises ShapeError for an n below 1, DTypeError unless `input` is a ComplexPair or floating.
    """
    pair = input.pair if isinstance(input, ComplexPair) else pad(_real("irfft", input).unsqueeze(-1), (0, 1))
    at = wrap_dim(dim, pair.ndim - 1, "irfft")
    size = 2 * (pair.shape[at] - 1) if n is None else as_int(n, "irfft", "n")
    if size < 1:
        raise ShapeError(f"irfft(): n must be at least 1, got {size}")
    half = size // 2 + 1
    if pair.shape[at] > half:
        pair = pair.narrow(at, 0, half)
    # Each number but the first, and the last of an even n, stands for its conjugate too.
    weights = np.full(pair.shape[at], 2.0)
    weights[0] = 1
    if size % 2 == 0 and len(weights) == half:
        weights[-1] = 1
    factors = make_tensor(weights, dtype=pair.dtype, device=pair.device).reshape(-1, *(1,) * (pair.ndim - at - 1))
    return _along("irfft", pair * factors, size, at, norm, 1, (2, 1), None).squeeze(-1)


# --- Along several dims ---------------------------------------------------------------------------------------------


def _dims(op: str, input: Any, s: Any, dim: Any) -> tuple[list[int], list[int | None]]:
    ndim = input.ndim
    if dim is None:
        dims = list(range(ndim)) if s is None else list(range(ndim - len(s), ndim))
    else:
        dims = [wrap_dim(d, ndim, op) for d in (dim if isinstance(dim, tuple | list) else (dim,))]
    sizes: list[int | None] = [None] * len(dims) if s is None else [None if n == -1 else n for n in s]
    if len(sizes) != len(dims) or len(set(dims)) != len(dims) or min(dims, default=0) < 0:
        raise ShapeError(f"{op}(): s {s} and dim {dim} do not fit shape {tuple(input.shape)}")
    return dims, sizes


def _several(op: str, input: Any, s: Any, dim: Any, norm: str | None, one: Any, first: Any = None) -> ComplexPair:
    """`one` along all dims but the last, which `first` is done along before."""
    dims, sizes = _dims(op, input, s, dim)
    if not dims:
        return input if isinstance(input, ComplexPair) else ComplexPair(pad(_real(op, input).unsqueeze(-1), (0, 1)))
    out: ComplexPair = (first or one)(input, sizes[-1], dims[-1], norm)
    for at, size in zip(reversed(dims[:-1]), reversed(sizes[:-1]), strict=True):
        out = one(out, size, at, norm)
    return out


def fftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """`fft` along each of `dim`, all by default, of the sizes `s`."""
    return _several("fftn", input, s, dim, norm, fft)


def ifftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """`ifft` along each of `dim`."""
    return _several("ifftn", input, s, dim, norm, ifft)


def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> ComplexPair:
    """`rfft` along the last of `dim`, then `fft` along the others."""
    return _several("rfftn", input, s, dim, norm, fft, rfft)


def irfftn(input: Any, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """Undoes `rfftn`: `ifft` along all of `dim` but the last, then `irfft`. Raises as `fftn` does."""
    dims, sizes = _dims("irfftn", input, s, dim)
    out = input
    for at, size in zip(dims[:-1], sizes[:-1], strict=True):
        out = ifft(out, size, at, norm)
    return irfft(out, sizes[-1], dims[-1], norm)


def fft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`fftn` along two dims, the last by default."""
    return fftn(input, s, dim, norm)


def ifft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`ifftn` along two dims, the last by default."""
    return ifftn(input, s, dim, norm)


def rfft2(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> ComplexPair:
    """`rfftn` along two dims, the last by default."""
    return rfftn(input, s, dim, norm)


def irfft2(input: Any, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
    """`irfftn` along two dims, the last by default."""
    return irfftn(input, s, dim, norm)


# --- Frequencies ----------------------------------------------------------------------------------------------------


def _frequencies(op: str, first: int, count: int, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    return arange(first, first + count, dtype=chosen, device=device) * (1 / (n * d))


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of `fft`'s results for samples `d` apart: 0, 1, ..., -1, over n d."""
    found = roll(_frequencies("fftfreq", -(n // 2), n, n, d, dtype, device), -(n // 2))
    return found.requires_grad_() if requires_grad else found


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """The frequencies of `rfft`'s n // 2 + 1 results, for samples that are `d` apart: a vector."""
    found = _frequencies("rfftfreq", 0, n // 2 + 1, n, d, dtype, device)
    return found.requires_grad_() if requires_grad else found


def _shifted(op: str, input: Any, dim: Any, back: bool) -> Any:
    dims, _ = _dims(op, input, None, dim)
    halves = [(input.shape[d] + back) // 2 for d in dims]
    return input.roll(halves, dims) if dims else input


def fftshift(input: Any, dim: Any = None) -> Any:
    """The frequency 0 moved to the middle of each of `dim`."""
    return _shifted("fftshift", input, dim, False)


def ifftshift(input: Any, dim: Any = None) -> Any:
    """Undoes `fftshift`."""
    return _shifted("ifftshift", input, dim, True)


check_functions(globals())
