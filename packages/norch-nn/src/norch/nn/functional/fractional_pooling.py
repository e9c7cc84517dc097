"""Fractional max pooling: windows at places that are drawn."""

from __future__ import annotations

import math
from typing import Any

import norch

from .pooling import _with_indices, as_tuple


def _starts(samples: norch.Tensor, n: int, count: int, kernel: int) -> norch.Tensor:
    """Where `count` windows of a dim of size n begin: (..., count), for samples (...). The last ends with the dim."""
    if count == 1:
        return norch.full((*samples.shape, 1), n - kernel, dtype=norch.int64, device=samples.device)
    u = samples.unsqueeze(-1)
    # In the samples' dtype too, as in PyTorch.
    step = norch.tensor((n - kernel) / (count - 1), dtype=samples.dtype, device=samples.device)
    at = norch.arange(count, dtype=samples.dtype, device=samples.device)
    found = ((at + u) * step).long() - (u * step).long()
    return norch.where(at == count - 1, n - kernel, found)


def _fractional(
    input: norch.Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: norch.Tensor | None, dims: int
) -> tuple[norch.Tensor, norch.Tensor]:
    op = f"fractional_max_pool{dims}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{op}(): output_size or output_ratio must be given")
    if input.ndim not in (dims + 1, dims + 2):
        raise norch.ShapeError(f"{op}(): expected {dims + 1} or {dims + 2} dims, got shape {tuple(input.shape)}")
    sizes, kernel = tuple(input.shape[-dims:]), as_tuple(kernel_size, dims)
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, tuple | list) else (output_ratio,) * dims
        wanted = tuple(int(n * r) for n, r in zip(sizes, ratios, strict=True))
    else:
        wanted = as_tuple(output_size, dims)
    if len(kernel) != dims or len(wanted) != dims:
        raise norch.ShapeError(f"{op}(): kernel_size and output_size must be an int or {dims}")
    if any(m < 1 or k < 1 or m + k - 1 > n for n, m, k in zip(sizes, wanted, kernel, strict=True)):
        raise norch.ShapeError(f"{op}(): {wanted} windows of size {kernel} do not fit in {sizes}")
    batch = input if input.ndim == dims + 2 else input.unsqueeze(0)
    lead = tuple(batch.shape[:2])
    if samples is None:
        samples = norch.rand((*lead, dims), dtype=input.dtype, device=input.device)
    if samples.ndim == 3:  # those of the first images, as in PyTorch
        samples = samples[: lead[0]]
    if tuple(samples.shape) != (*lead, dims):
        raise norch.ShapeError(f"{op}(): samples must be of shape {(*lead, dims)}, got {tuple(samples.shape)}")
    order = (1, 0) if dims == 2 else (0, 1, 2)  # as in PyTorch: of a plane the first sample is that of the columns
    places: Any = 0
    for dim, (n, m, k, which) in enumerate(zip(sizes, wanted, kernel, order, strict=True)):
        starts = _starts(samples[..., which], n, m, k).unsqueeze(-1) + norch.arange(k, device=input.device)
        shape = [*lead, *(1,) * (2 * dims)]
        shape[2 + dim], shape[2 + dims + dim] = m, k
        places = places * n + starts.reshape(shape)
    places = places.reshape(*lead, math.prod(wanted), math.prod(kernel))
    flat = batch.flatten(2)
    which = flat.detach().gather(-1, places.flatten(2)).reshape(places.shape).max(-1)[1]
    at = places.gather(-1, which.unsqueeze(-1)).squeeze(-1)
    result = (*input.shape[:-dims], *wanted)
    return flat.gather(-1, at).reshape(result), at.reshape(result)


def fractional_max_pool2d(
    input: norch.Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: norch.Tensor | None = None,
) -> Any:
    """The largest of y * x windows at places that are drawn for each image and channel, as in "Fractional max-pooling"
    (Graham, 2014): (n, c, h, w) or (c, h, w) -> (n, c, y, x), or (c, y, x).

    kernel_size: of the windows, an int or two. output_size: how many, an int or two, or else output_ratio: how many for
    each element, one or two numbers between 0 and 1. return_indices: whether the places of the largest in h * w are
    returned too, as for `max_unpool2d`. _random_samples: (n, c, 2) numbers in [0, 1), instead of drawn ones.

    Raises ValueError where neither size nor ratio is given, ShapeError where so many windows do not fit.
    """
    values, places = _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 2)
    return (values, places) if return_indices else values


def fractional_max_pool3d(
    input: norch.Tensor,
    kernel_size: Any,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: norch.Tensor | None = None,
) -> Any:
    """The largest of z * y * x windows at places that are drawn: (n, c, d, h, w) or (c, d, h, w) -> (n, c, z, y, x), or
    (c, z, y, x).

    kernel_size, output_size, output_ratio: three numbers, or one; return_indices: as in `fractional_max_pool2d`.
    _random_samples: (n, c, 3) numbers in [0, 1). Raises as that does.
    """
    values, places = _fractional(input, kernel_size, output_size, output_ratio, _random_samples, 3)
    return (values, places) if return_indices else values


fractional_max_pool2d_with_indices = _with_indices(fractional_max_pool2d)
fractional_max_pool3d_with_indices = _with_indices(fractional_max_pool3d)
