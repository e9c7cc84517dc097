"""The discrete Fourier transform along the last dim: what `norch.fft` and `norch.spectral` are made of.

Real and imaginary parts lie along the dim before the last, of size 1 for real numbers and 2 for complex ones. Without a
kernel of its own a transform of n = n1 * n2 elements is two matrix products, with n1 and with n2 elements (Cooley and
Tukey, 1965), which carry the turns between them; long ones are cut again, and those of large primes are convolutions
(Bluestein, 1970).
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, isqrt, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dispatch.arguments import describe
from ...dtype import float32, float64, get_default_dtype
from ...errors import DTypeError, ShapeError
from ...settings import get_float32_matmul_precision
from ...spec import Spec
from ...tensor_base import TensorBase
from ..copying import row_major_copy
from ..families import composite
from ..from_data import tensor
from ..shape.joining import stack
from ..shape.padding import pad
from .matmul import matmul

if TYPE_CHECKING:
    from ...device import Device
    from ...dtype import DType
    from ...tensor import Tensor

_DIRECT = 128
"""Up to so many elements, or a prime below the square of it, a transform is one product."""
_TOGETHER = 4096
"""What a backend's kernel is to take. Longer transforms are two products too, but where products of float32 may be
coarse transforms of fewer elements."""


def check_real(op: str, input: Any) -> Tensor:
    """A real operand in a dtype that is transformed."""
    if not isinstance(input, TensorBase):
        raise DTypeError(f"{op}(): input must be a Tensor, got {describe(input)}")
    x: Any = input
    if not x.is_floating_point():
        x = x.to(get_default_dtype())
    if x.dtype not in (float32, float64):
        raise DTypeError(f"{op}(): expected float32 or float64, got {x.dtype}; convert it first")
    if not x.ndim:
        raise ShapeError(f"{op}(): expected at least 1 dim, got shape ()")
    return x  # type: ignore[no-any-return]


def _infer(
    input: Spec, window: Spec | None, n: int, sign: int, outputs: int, count: int, scale: float, doubled: bool
) -> Spec:
    """The result lies in memory as input does, the parts of each innermost row side by side."""
    shape, part = (*input.shape[:-2], outputs, count), len(input.shape) - 2
    given = [d for d in range(len(shape)) if d != part and input.shape[d] > 1]
    order = sorted(given, key=lambda d: -input.strides[d] or -inf)
    if order == given:
        return input.like(shape)
    order = [d for d in range(len(shape)) if d != part and d not in given] + order
    order.insert(-1, part)
    strides, step = [0] * len(shape), 1
    for d in reversed(order):
        strides[d] = step
        step *= shape[d]
    return input.like(shape, tuple(strides))


def _input_rule(
    g: Tensor, input_spec: Spec, window: Tensor | None, n: int, sign: int, scale: float, doubled: bool
) -> Tensor:
    inputs, size = input_spec.shape[-2:]
    return dft(g, window, n, -sign, inputs, size, scale, doubled)


def _window_rule(g: Tensor, input: Tensor, n: int, sign: int, count: int, scale: float, doubled: bool) -> Tensor:
    *_, inputs, size = input.spec.shape
    if inputs == 1:
        product = input * dft(g, None, n, -sign, 1, size, scale, doubled)
    else:
        product = g * dft(input, None, n, sign, 1, count, scale, doubled)
    return product.reshape(-1, product.spec.shape[-1]).sum(0)


@composite(_infer, {"input": _input_rule, "window": _window_rule})
def dft(
    input: Tensor, window: Tensor | None, n: int, sign: int, outputs: int, count: int, scale: float, doubled: bool
) -> Tensor:
    """(..., parts, m) to the first `count` of the n sums (..., outputs, n) over j of input[j] exp(sign 2 pi i j k / n).

    m is at most n, and what is beyond counts as 0. Of complex sums `outputs` 1 takes the real parts. scale: a factor.
    window: weights of the real numbers, which are the input's or the result's. doubled: each complex number but those
    of k = 0 and k = n / 2 counts twice, as it stands for its conjugate too.
    """
    *lead, inputs, size = input.spec.shape
    weights = _weights(n, min(size, count), input.spec.dtype, input.spec.device) if doubled else None
    x = input
    if inputs == 1 and window is not None:
        x = x * window
    if inputs == 2 and outputs == 1 and weights is not None:
        x = x * weights
    if size < n:
        x = pad(x, (0, n - size))
    out = _transform(x.reshape(prod(lead), inputs, n), sign, outputs, count, scale)
    out = out.reshape(*lead, outputs, count)
    if inputs == 1 and outputs == 2 and weights is not None:
        out = out * weights
    return out * window if inputs == 2 and outputs == 1 and window is not None else out


def _turned_over(x: Spec) -> Spec:
    """Of x.transpose(-3, -1)."""
    shape, strides = list(x.shape), list(x.strides)
    for values in (shape, strides):
        values[-3], values[-1] = values[-1], values[-3]
    return x.like(tuple(shape), tuple(strides))


def _infer_plane(input: Spec, n: tuple[int, int], sign: int, outputs: int, count: tuple[int, int], *rest: Any) -> Spec:
    *_, last_first = rest
    found = input
    for along in (1, 0) if last_first else (0, 1):
        parts = outputs if along == int(not last_first) else 2
        if along:
            found = _infer(found, None, n[1], sign, parts, count[1], 1.0, False)
        else:
            found = _turned_over(_infer(_turned_over(found), None, n[0], sign, parts, count[0], 1.0, False))
    return found


def _plane_rule(
    g: Tensor,
    input_spec: Spec,
    n: tuple[int, int],
    sign: int,
    scale: float,
    height_scale: float,
    doubled: bool,
    last_first: bool,
) -> Tensor:
    height, inputs, width = input_spec.shape[-3:]
    return dft2(g, n, -sign, inputs, (height, width), scale, height_scale, doubled, not last_first)


@composite(_infer_plane, {"input": _plane_rule})
def dft2(
    input: Tensor,
    n: tuple[int, int],
    sign: int,
    outputs: int,
    count: tuple[int, int],
    scale: float,
    height_scale: float,
    doubled: bool,
    last_first: bool,
) -> Tensor:
    """Transforms of complex numbers along the dim before the parts, and of these or of real ones along the last:
    (..., height, parts, width) to (..., count[0], outputs, count[1]).

    n, count: as of `dft`, along each. scale, doubled: of the last dim; height_scale: of the other. last_first: whether
    the last is done first, as it is where the numbers are real, and is not where they become so.
    """
    found = input
    for along in (1, 0) if last_first else (0, 1):
        parts = outputs if along == int(not last_first) else 2
        if along:
            found = dft(found, None, n[1], sign, parts, count[1], scale, doubled)
        else:
            found = dft(found.transpose(-3, -1), None, n[0], sign, parts, count[0], height_scale, False).transpose(
                -3, -1
            )
    return found


@lru_cache(16)
def _weights(n: int, count: int, dtype: DType, device: Device) -> Tensor:
    weights = np.full(count, 2.0)
    weights[:1] = 1
    if n % 2 == 0 and count > n // 2:
        weights[n // 2] = 1
    return tensor(weights, dtype=dtype, device=device)


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
        return tensor(np.ascontiguousarray(matrix).reshape(shape), dtype=dtype, device=device)

    turn, n2 = 2 * np.pi / n, n // n1
    if n1 == 1:
        angles = np.outer(np.arange(n), np.arange(count)) % n * turn
        return (put(_matrix(angles, sign, inputs, outputs) * scale, inputs * n, outputs * count),)
    first = _matrix(np.outer(np.arange(n1), np.arange(n1)) % n1 * (turn * n2), sign, inputs, 2)  # in, j1, part, k1
    k1, j2, k2 = np.arange(n1)[:, None, None], np.arange(n2)[:, None], np.arange(count)
    second = _matrix((j2 * k1 + n1 * j2 * k2) % n * turn, sign, 2, outputs)  # k1, part, j2, out, k2
    left = first.transpose(3, 2, 0, 1)  # k1, part, in, j1
    return put(left, n1 * 2, inputs * n1), put(second * scale, n1, 2 * n2, outputs * count)


def _transform(x: Tensor, sign: int, outputs: int, count: int, scale: float) -> Tensor:
    """(batch, inputs, n) to the first `count` of (batch, outputs, n)."""
    batch, inputs, n = x.spec.shape
    n1 = 1 if n <= _DIRECT // 2 else max((d for d in range(1, isqrt(n) + 1) if n % d == 0), default=1)
    n2 = n // n1
    is_coarse = n > _TOGETHER and x.spec.dtype is float32 and get_float32_matmul_precision() != "highest"
    if is_coarse or (n1 == 1 and n > _DIRECT * 4) or n2 > _DIRECT * 4:
        return _long(x, n1, sign, outputs, count, scale)
    where = x.spec.dtype, x.spec.device
    if n1 == 1:
        (matrix,) = _tables(n, 1, sign, inputs, outputs, count, scale, *where)
        return (x.reshape(batch, inputs * n) @ matrix).reshape(batch, outputs, count)
    rows = -(-count // n1)
    left, right = _tables(n, n1, sign, inputs, outputs, rows, scale, *where)
    turned = (left @ x.reshape(batch, inputs * n1, n2)).reshape(batch, n1, 2 * n2).transpose(0, 1)
    out = matmul(turned, right).reshape(n1, batch, outputs, rows).permute(1, 2, 3, 0)
    return row_major_copy(out).reshape(batch, outputs, rows * n1)[:, :, :count]


def _long(x: Tensor, n1: int, sign: int, outputs: int, count: int, scale: float) -> Tensor:
    """`_transform` of more elements: transforms of n1, turns, and of the rest; for a large prime a convolution."""
    batch, inputs, n = x.spec.shape
    where = x.spec.dtype, x.spec.device
    if n1 > 1:
        n2 = n // n1
        columns = x.reshape(batch, inputs, n1, n2).permute(0, 3, 1, 2)
        parts = dft(columns, None, n1, sign, 2, n1, 1.0, False)
        parts = _turned(parts, _turns(n, n2, n1, sign, *where)).permute(0, 3, 2, 1)  # batch, k1, part, j2
        rows = -(-count // n1)
        out = dft(parts, None, n2, sign, outputs, rows, scale, False).permute(0, 2, 3, 1)
        return row_major_copy(out).reshape(batch, outputs, rows * n1)[:, :, :count]
    if inputs == 1:
        x = pad(x, (0, 0, 0, 1))
    chirp, kernel, size = _chirp(n, sign, *where)
    product = _turned(dft(_turned(x, chirp), None, size, -1, 2, size, 1.0, False), kernel)
    out = dft(product, None, size, 1, 2, count, scale / size, False)
    return _turned(out, chirp[:, :count])[:, :outputs]


def _turned(z: Tensor, turns: Tensor) -> Tensor:
    """The complex product, parts along the dim before the last."""
    (a, b), (c, d) = z.unbind(-2), turns.unbind(-2)
    return stack([a * c - b * d, a * d + b * c], -2)


@lru_cache(16)
def _turns(n: int, rows: int, columns: int, sign: int, dtype: DType, device: Device) -> Tensor:
    angles = np.outer(np.arange(rows), np.arange(columns)) % n * (sign * 2 * np.pi / n)
    return tensor(np.stack([np.cos(angles), np.sin(angles)], -2), dtype=dtype, device=device)


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
    both = [np.stack([z.real, z.imag]) for z in (wave, np.fft.fft(kernel))]
    return tensor(both[0], dtype=dtype, device=device), tensor(both[1], dtype=dtype, device=device), size
