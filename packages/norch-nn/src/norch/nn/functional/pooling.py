"""Pooling that norch itself has not: to a size, by a power, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import norch


def _with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """`pool` with `return_indices`, which PyTorch has as a function of its own."""

    def call(input: norch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return pool(input, *args, **{**kwargs, "return_indices": True})

    call.__name__ = call.__qualname__ = f"{pool.__name__}_with_indices"
    call.__doc__ = f"`{pool.__name__}` with `return_indices`."
    return call


max_pool1d_with_indices, max_pool2d_with_indices = _with_indices(norch.max_pool1d), _with_indices(norch.max_pool2d)
max_pool3d_with_indices = _with_indices(norch.max_pool3d)


# --- To a size ------------------------------------------------------------------------------------------------------


def _output_size(op: str, input: norch.Tensor, output_size: Any, dims: int) -> tuple[int, ...]:
    if input.ndim not in (dims + 1, dims + 2):
        raise norch.ShapeError(f"{op}(): expected {dims + 1} or {dims + 2} dims, got shape {tuple(input.shape)}")
    sizes = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * dims
    if len(sizes) != dims:
        raise norch.ShapeError(f"{op}(): output_size must be an int or {dims}, got {output_size!r}")
    found = tuple(n if m is None else int(m) for n, m in zip(input.shape[-dims:], sizes))
    if min(found) < 0 or 0 in input.shape[1:]:
        raise norch.ShapeError(f"{op}(): cannot pool shape {tuple(input.shape)} to {found}")
    return found


def _adaptive_max(input: norch.Tensor, output_size: Any, return_indices: bool, dims: int) -> Any:
    op = f"adaptive_max_pool{dims}d"
    wanted = _output_size(op, input, output_size, dims)
    sizes = tuple(input.shape[-dims:])
    if all(m and n % m == 0 for n, m in zip(sizes, wanted)):
        kernel = tuple(n // m for n, m in zip(sizes, wanted))
        pool = norch.max_pool2d if dims == 2 else norch.max_pool1d
        return pool(input, kernel, kernel, return_indices=return_indices)
    images = input if dims == 2 else input.unsqueeze(-2)
    at = norch.adaptive_max_indices(images, (wanted[0] if dims == 2 else 1, wanted[-1]))
    values = input.flatten(-dims).gather(-1, at.flatten(-2)).reshape((*input.shape[:-dims], *wanted))
    return (values, at.reshape(values.shape)) if return_indices else values


def adaptive_max_pool1d(input: norch.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest of x parts of the last dim: (..., w) -> (..., x). See adaptive_max_pool2d."""
    return _adaptive_max(input, output_size, return_indices, 1)


def adaptive_max_pool2d(input: norch.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest of y * x parts: (..., h, w) -> (..., y, x), parts as those of adaptive_avg_pool2d.

    output_size: an int, or two, of which None keeps a size. return_indices: also the indices into h * w. Raises
    ShapeError unless input has 3 or 4 dims.
    """
    return _adaptive_max(input, output_size, return_indices, 2)


def adaptive_max_pool3d(input: norch.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest of z * y * x parts: (..., d, h, w) -> (..., z, y, x). See adaptive_max_pool2d."""
    z, y, x = _output_size("adaptive_max_pool3d", input, output_size, 3)
    lead, (d, h, w) = tuple(input.shape[:-3]), input.shape[-3:]
    # The largest of each plane's parts, then of these the largest of each part of d.
    planes, at = _adaptive_max(input.reshape((-1, d, h, w)), (y, x), True, 2)
    values, deep = _adaptive_max(planes.reshape((-1, d, y * x)), (z, y * x), True, 2)
    values = values.reshape((*lead, z, y, x))
    if not return_indices:
        return values
    within = at.reshape((-1, d * y * x)).gather(1, deep.reshape((-1, z * y * x)))
    return values, (deep.reshape((-1, z * y * x)) // (y * x) * (h * w) + within).reshape((*lead, z, y, x))


adaptive_max_pool1d_with_indices = _with_indices(adaptive_max_pool1d)
adaptive_max_pool2d_with_indices = _with_indices(adaptive_max_pool2d)
adaptive_max_pool3d_with_indices = _with_indices(adaptive_max_pool3d)


# --- By a power -----------------------------------------------------------------------------------------------------


def _lp(input: norch.Tensor, norm_type: float, kernel: Any, stride: Any, ceil_mode: bool, dims: int) -> norch.Tensor:
    count = kernel**dims if isinstance(kernel, int) else math.prod(kernel)
    pool = (norch.avg_pool1d, norch.avg_pool2d, norch.avg_pool3d)[dims - 1]
    if math.isinf(norm_type):
        largest = (norch.max_pool1d, norch.max_pool2d, norch.max_pool3d)[dims - 1]
        sign = math.copysign(1.0, norm_type)
        return largest(input.abs() * sign, kernel, stride, 0, 1, ceil_mode) * sign
    mean = pool(input**norm_type, kernel, stride, 0, ceil_mode)
    # The relu gives sums of 0 the gradient 0.
    return (mean.sign() * mean.abs().relu() * count) ** (1.0 / norm_type)


def lp_pool1d(
    input: norch.Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> norch.Tensor:
    """The sum of the `norm_type`-th powers of each window, to the power 1 / norm_type: (..., w) -> (..., x).

    NaN where the sum is negative and its root is not real. An infinite norm_type: the largest or smallest size.
    """
    return _lp(input, norm_type, kernel_size, stride, ceil_mode, 1)


def lp_pool2d(
    input: norch.Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> norch.Tensor:
    """The sum of the `norm_type`-th powers of each window, to the power 1 / norm_type: (..., h, w) -> (..., y, x).

    See lp_pool1d.
    """
    return _lp(input, norm_type, kernel_size, stride, ceil_mode, 2)


def lp_pool3d(
    input: norch.Tensor, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
) -> norch.Tensor:
    """The sum of the `norm_type`-th powers of each window, to the power 1 / norm_type, over the last three dims.

    See lp_pool1d.
    """
    return _lp(input, norm_type, kernel_size, stride, ceil_mode, 3)


# --- Back -----------------------------------------------------------------------------------------------------------


def as_tuple(value: Any, dims: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,) * dims


def _unpool(
    input: norch.Tensor, indices: norch.Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any, dims: int
) -> norch.Tensor:
    op = f"max_unpool{dims}d"
    if input.ndim not in (dims + 1, dims + 2) or input.shape != indices.shape:
        raise norch.ShapeError(
            f"{op}(): expected input of {dims + 1} or {dims + 2} dims and indices of its shape, got "
            f"{tuple(input.shape)} and {tuple(indices.shape)}"
        )
    kernel = as_tuple(kernel, dims)
    stride = as_tuple(stride, dims) if stride is not None and stride != [] else kernel
    usual = tuple(
        (n - 1) * s - 2 * p + k for n, s, p, k in zip(input.shape[-dims:], stride, as_tuple(padding, dims), kernel)
    )
    size = usual if output_size is None else tuple(output_size)[-dims:]
    if any(not u - s < n < u + s for u, s, n in zip(usual, stride, size)):
        raise ValueError(f"{op}(): output_size {size} is not within stride {stride} of {usual}")
    lead, count = tuple(input.shape[:-dims]), 1
    for n in size:
        count *= n
    zeros = input.new_zeros((*lead, count))
    return zeros.scatter(-1, indices.flatten(-dims), input.flatten(-dims)).reshape((*lead, *size))


def max_unpool1d(
    input: norch.Tensor,
    indices: norch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> norch.Tensor:
    """The values of max_pool1d back at their `indices`, zeros elsewhere: (..., x) -> (..., w).

    output_size: w, where several give the same x.
    """
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 1)


def max_unpool2d(
    input: norch.Tensor,
    indices: norch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> norch.Tensor:
    """The values of max_pool2d back at their `indices`, zeros elsewhere: (..., y, x) -> (..., h, w).

    Raises ShapeError where the shapes differ, ValueError for an `output_size` that no such pooling has.
    """
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 2)


def max_unpool3d(
    input: norch.Tensor,
    indices: norch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    output_size: Any = None,
) -> norch.Tensor:
    """The values of max_pool3d back at their `indices`, zeros elsewhere: (..., z, y, x) -> (..., d, h, w).

    Raises as max_unpool2d does.
    """
    return _unpool(input, indices, kernel_size, stride, padding, output_size, 3)
