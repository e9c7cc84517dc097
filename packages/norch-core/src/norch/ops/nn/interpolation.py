"""Images and sequences at another size."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import Device
from ...dispatch.arguments import check_functions
from ...dtype import DType, float32, float64, int64, uint8
from ...errors import DTypeError, ShapeError
from ...spec import is_channels_last
from ..copying import clone, like_images
from ..creation import arange
from ..indexing import index_select
from ..shape.joining import stack
from ..upcast import upcast
from .pooling import adaptive_average, repeated
from .resampling import Neighbours, neighbours, resampled

if TYPE_CHECKING:
    from ...tensor import Tensor

_MODES = {
    "nearest": (3, 4, 5),
    "nearest-exact": (3, 4, 5),
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "lanczos": (4,),
    "trilinear": (5,),
    "area": (3, 4, 5),
}
"""Each mode and the numbers of dims of the inputs that it takes."""

_REACHES = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
"""How far an element of an image may be from a place that it is part of."""

_FEW = 8
"""Where a gradient is wanted, up to so many times elements are repeated by a copy each, whose gradients are added: sums
over dims of so few are slow."""


@lru_cache(128)
def _nearest(n: int, count: int, scale: float, exact: bool, device: Device) -> Tensor:
    """Which of n elements each of `count` is."""
    at = arange(count, device=device).to(float32)
    at = (at + 0.5) * scale if exact else at * scale
    return at.floor().to(int64).clamp(0, n - 1)


@lru_cache(128)
def _between(n: int, count: int, scale: float, align: bool, cubic: bool, dtype: DType, device: Device) -> Neighbours:
    """Each of `count` as a sum of the two or four elements around its place, in the arithmetic of `dtype`."""
    kind: Any = np.float64 if dtype is float64 else np.float32
    at = np.arange(count, dtype=kind)
    at = at * kind(scale) if align else (at + kind(0.5)) * kind(scale) - kind(0.5)
    if not cubic:
        at = np.maximum(at, 0)
        low = np.minimum(np.floor(at), n - 1)
        part = np.clip(at - low, 0, 1)
        places, weights = low + [[0], [1]], [1 - part, part]
    else:
        low = np.floor(at)
        part = at - low
        places, weights = low + [[-1], [0], [1], [2]], [_cubic(d, -0.75) for d in (part + 1, part, 1 - part, 2 - part)]
    return neighbours(places.T, np.stack(weights, 1), n, dtype, device)


@lru_cache(128)
def _covered(n: int, count: int, scale: float, mode: str, dtype: DType, device: Device) -> Neighbours:
    """Each of `count` as a sum of the elements that it covers, and those beside it, in the arithmetic of `dtype`."""
    kind: Any = np.float64 if dtype is float64 else np.float32
    spread = max(kind(scale), kind(1))
    reach = kind(_REACHES[mode]) * spread
    centres = (np.arange(count, dtype=kind) + kind(0.5)) * kind(scale)
    first, end = (np.trunc(centres + edge + kind(0.5)) for edge in (-reach, reach))
    first, end = np.maximum(first, 0), np.minimum(end, n)
    places = first[:, None] + np.arange(math.ceil(reach) * 2 + 1, dtype=kind)
    x = np.abs((places - centres[:, None] + kind(0.5)) * (1 / spread))
    if mode == "lanczos":
        weights = np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
    else:
        weights = _cubic(x, -0.5) if mode == "bicubic" else np.maximum(1 - x, 0)
    weights = np.where(places < end[:, None], weights, 0)
    return neighbours(places, weights / weights.sum(1, keepdims=True), n, dtype, device)


def _cubic(x: Any, a: float) -> Any:
    """The convolution kernel of Keys (1981) at distances x."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0 * x))


def _sizes(op: str, input: Tensor, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The sizes asked for, and the factors (None where sizes were given)."""
    dims = input.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ValueError(f"{op}(): exactly one of size and scale_factor is needed, got {size} and {scale_factor}")
    given = size if size is not None else scale_factor
    values = tuple(given) if isinstance(given, tuple | list) else (given,) * dims
    if len(values) != dims:
        raise ValueError(f"{op}(): input of shape {tuple(input.shape)} has {dims} sizes to change, got {given}")
    if size is not None:
        return tuple(int(n) for n in values), (None,) * dims
    return tuple(math.floor(n * float(f)) for n, f in zip(input.shape[2:], values)), tuple(map(float, values))


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(n, c, w), (n, c, h, w) or (n, c, d, h, w) at another `size`, or at `scale_factor` times its size.

    mode: "nearest", "nearest-exact", "area" for all; "linear" for three dims; "bilinear", "bicubic" and, with
    antialias, "lanczos" for four; "trilinear" for five.
    align_corners: the centres of the corners stay in place, for the linear and cubic modes. A scale_factor is used as
    it is unless `recompute_scale_factor`, which takes it from the sizes. antialias: for images: each element of a
    smaller one is made of all those that it covers. Raises ValueError for arguments that do not fit,
    ShapeError for sizes below 1, DTypeError unless input is floating or, for images and the nearest modes, uint8:
    such images are computed in integers, as PyTorch and Pillow do.
    """
    if mode not in _MODES or input.ndim not in _MODES[mode]:
        raise ValueError(
            f"interpolate(): mode must be one of {', '.join(_MODES)}, linear for 3 dims, bilinear, bicubic and "
            f"lanczos for 4, trilinear for 5; got {mode!r} and shape {tuple(input.shape)}"
        )
    if antialias and mode not in _REACHES:
        raise ValueError(f"interpolate(): antialias is for {', '.join(_REACHES)}, got mode {mode!r}")
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError("interpolate(): mode 'lanczos' is there with antialias=True and without align_corners")
    images_of_bytes = input.dtype is uint8 and (mode.startswith("nearest") or mode in _REACHES)
    if not input.is_floating_point() and not images_of_bytes:
        raise DTypeError(f"interpolate(): needs a floating dtype, got {input.dtype}")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(f"interpolate(): align_corners is for the linear and cubic modes, got mode {mode!r}")
    sizes, factors = _sizes("interpolate", input, size, scale_factor)
    if recompute_scale_factor:
        if size is not None:
            raise ValueError("interpolate(): recompute_scale_factor is for scale_factor, not for size")
        factors = (None,) * len(sizes)
    if min(sizes) < 1 or 0 in input.shape[1:]:
        raise ShapeError(f"interpolate(): cannot make {sizes} of shape {tuple(input.shape)}")
    if mode == "area":
        return adaptive_average(input, sizes, len(sizes))
    if mode in ("nearest", "nearest-exact"):
        out = _to_nearest(input, sizes, factors, mode != "nearest")
    else:
        compute = _to_bytes if images_of_bytes else _to_sums
        out = compute(input, sizes, factors, bool(align_corners), mode, antialias)
    return like_images(clone(input) if out is input else out.to(input.dtype), input)


def _to_nearest(x: Tensor, sizes: tuple[int, ...], factors: tuple[Any, ...], exact: bool) -> Tensor:
    scales = [n / m if f is None else 1 / f for n, m, f in zip(x.shape[2:], sizes, factors)]
    times = [_repeats(*each, exact, x.ndim == 4) for each in zip(x.shape[2:], sizes, scales)]
    if x.ndim == 4 and times == [2, 2] and x.requires_grad:
        return repeated(x, 2)
    if not x.is_contiguous() and is_channels_last(x.spec):
        pixels = x.movedim(1, -1).reshape((len(x), -1, x.shape[1]))
        places = _nearest_pixels(tuple(x.shape[2:]), sizes, tuple(scales), tuple(times), exact, x.device)
        return index_select(pixels, 1, places).reshape((len(x), *sizes, -1)).movedim(-1, 1)
    if x.requires_grad and x.dtype.itemsize == 2:
        x = x.float()  # whose gradient is rounded once, not along each dim
    for dim, scale in enumerate(scales, 2):
        if not times[dim - 2]:
            x = index_select(x, dim, _nearest(x.shape[dim], sizes[dim - 2], scale, exact, x.device))
    if max(times) <= 1:
        return x
    if max(times) > _FEW or not x.requires_grad:
        spread = [k for n in x.shape[2:] for k in (n, 1)]
        expanded = [k for n, t in zip(x.shape[2:], times) for k in (n, max(t, 1))]
        x = x.reshape((*x.shape[:2], *spread)).expand((*x.shape[:2], *expanded))
        return x.contiguous().reshape((*x.shape[:2], *sizes))
    for dim in range(x.ndim - 1, 1, -1):
        if times[dim - 2] > 1:
            x = stack([x] * times[dim - 2], dim + 1).flatten(dim, dim + 1)
    return x


@lru_cache(128)
def _nearest_pixels(
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    scales: tuple[float, ...],
    times: tuple[int, ...],
    exact: bool,
    device: Device,
) -> Tensor:
    """Which pixel of an image or volume of `shape`, counted row by row, each of one of `sizes` is."""
    places = arange(1, device=device)
    for n, count, scale, repeats in zip(shape, sizes, scales, times):
        at = arange(count, device=device) // repeats if repeats else _nearest(n, count, scale, exact, device)
        places = (places.unsqueeze(1) * n + at).flatten()
    return places


def _repeats(n: int, count: int, scale: float, exact: bool, images: bool) -> int:
    """How often in a row each of n elements comes; 0 where they differ in that, or rounding may make them."""
    times = count // n
    # As PyTorch does, "nearest" of images forgets the scale where the size is the same or doubled.
    known = scale * times == 1 or (times <= 2 and not exact and images)
    return times if times * n == count and times & (times - 1) == 0 and known else 0


def _to_sums(
    x: Tensor, sizes: tuple[int, ...], factors: tuple[Any, ...], align: bool, mode: str, antialias: bool
) -> Tensor:
    # First what makes it smaller; lines are computed on more slowly than columns.
    ratios = [m / n for n, m in zip(x.shape[2:], sizes)]
    for at in sorted(range(len(sizes)), key=lambda at: (ratios[at], at if ratios[at] < 1 else -at)):
        near = _summands(x, at + 2, sizes[at], factors[at], align, mode, antialias)
        if near is not None:
            x = resampled(upcast(x), at + 2, near)
    return x


def _summands(
    x: Tensor, dim: int, count: int, factor: float | None, align: bool, mode: str, antialias: bool
) -> Neighbours | None:
    """What each of `count` elements along `dim` is a sum of; None where that is itself."""
    n = x.shape[dim]
    if align:
        scale = (n - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = n / count if factor is None else 1 / factor
    if n == count and (scale == 1 or antialias or mode != "bicubic"):  # PyTorch forgets the scale there
        return None
    dtype = float32 if x.dtype.itemsize < 4 else x.dtype
    if antialias:
        return _covered(n, count, scale, mode, dtype, x.device)
    return _between(n, count, scale, align, mode == "bicubic", dtype, x.device)


def _to_bytes(
    x: Tensor, sizes: tuple[int, ...], factors: tuple[Any, ...], align: bool, mode: str, antialias: bool
) -> Tensor:
    """Bytes in the integers of PyTorch and Pillow: across, rounded to bytes, and then down. float64 holds all sums."""
    x = x.double()
    for dim in (3, 2):
        near = _summands(x, dim, sizes[dim - 2], factors[dim - 2], align, mode, antialias)
        if near is not None:
            greatest, bits = near.weights.max().item(), 0
            while bits < 22 and int(0.5 + greatest * 2 ** (bits + 1)) < 2**15:
                bits += 1
            weights = near.weights * 2**bits
            weights = weights.sign() * (weights.abs() + 0.5).floor()
            sums = resampled(x, dim, near._replace(weights=weights))
            x = ((sums + 2 ** (bits - 1)) * 0.5**bits).floor().clamp(0, 255)
    return x.to(uint8)


check_functions(globals())
