"""Images and sequences at another size."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from typing import Any

import norch

_MODES = {
    "nearest": (3, 4, 5),
    "nearest-exact": (3, 4, 5),
    "linear": (3,),
    "bilinear": (4,),
    "bicubic": (4,),
    "trilinear": (5,),
    "area": (3, 4, 5),
}
"""Each mode and the numbers of dims of the inputs that it takes."""

_FEW = 8
"""Where a gradient is wanted, up to so many times elements are repeated by a copy each, whose gradients are added: sums
over dims of so few are slow."""


@lru_cache(128)
def _nearest(n: int, count: int, scale: float, exact: bool, device: norch.Device) -> norch.Tensor:
    """Which of n elements each of `count` is."""
    at = norch.arange(count, device=device).to(norch.float32)
    at = (at + 0.5) * scale if exact else at * scale
    return at.floor().to(norch.int64).clamp(0, n - 1)


@lru_cache(128)
def _taps(
    n: int, count: int, scale: float, align: bool, cubic: bool, dtype: norch.DType, device: norch.Device
) -> tuple[norch.Tensor, norch.Tensor]:
    """Of which elements each of `count` is a sum, (taps * count), and with what weights, (taps, count)."""
    at = norch.arange(count, device=device).to(dtype)
    at = at * scale if align else (at + 0.5) * scale - 0.5
    if not cubic:
        at = at.clamp(min=0.0)
        low = at.floor().clamp(max=float(n - 1))
        part = (at - low).clamp(0.0, 1.0)
        places, weights = [low, (low + 1).clamp(max=float(n - 1))], [1 - part, part]
    else:
        low = at.floor()
        part = at - low
        places = [(low + shift).clamp(0.0, float(n - 1)) for shift in (-1, 0, 1, 2)]
        weights = [_cubic(part + 1), _cubic(part), _cubic(1 - part), _cubic(2 - part)]
    return norch.cat(places).to(norch.int64), norch.stack(weights)


def _cubic(x: norch.Tensor, a: float = -0.75) -> norch.Tensor:
    """The convolution kernel of Keys (1981) at distances x from 0 to 2."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return norch.where(x <= 1, near, far)


def _sizes(op: str, input: norch.Tensor, size: Any, scale_factor: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
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
    input: norch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> norch.Tensor:
    """(n, c, w), (n, c, h, w) or (n, c, d, h, w) at another `size`, or at `scale_factor` times its size.

    mode: "nearest", "nearest-exact", "area" for all; "linear" for three dims; "bilinear", "bicubic" for four;
    "trilinear" for five.
    align_corners: the centres of the corners stay in place, for the linear and cubic modes. A scale_factor is used as
    it is unless `recompute_scale_factor`, which takes it from the sizes. There is no antialias. Raises ValueError for
    arguments that do not fit, ShapeError for sizes below 1, DTypeError unless input is floating or, for the nearest
    modes, uint8.
    """
    if mode not in _MODES or input.ndim not in _MODES[mode]:
        raise ValueError(
            f"interpolate(): mode must be one of {', '.join(_MODES)}, linear for 3 dims, bilinear and bicubic for 4, "
            f"trilinear for 5; got {mode!r} and shape {tuple(input.shape)}"
        )
    if antialias:
        raise ValueError("interpolate(): antialias is not there; use avg_pool2d or mode='area' before making smaller")
    if not input.is_floating_point() and (input.dtype != norch.uint8 or not mode.startswith("nearest")):
        raise norch.DTypeError(f"interpolate(): needs a floating dtype, got {input.dtype}")
    if align_corners is not None and mode in ("nearest", "nearest-exact", "area"):
        raise ValueError(f"interpolate(): align_corners is for the linear and cubic modes, got mode {mode!r}")
    sizes, factors = _sizes("interpolate", input, size, scale_factor)
    if recompute_scale_factor:
        if size is not None:
            raise ValueError("interpolate(): recompute_scale_factor is for scale_factor, not for size")
        factors = (None,) * len(sizes)
    if min(sizes) < 1 or 0 in input.shape[1:]:
        raise norch.ShapeError(f"interpolate(): cannot make {sizes} of shape {tuple(input.shape)}")
    if mode == "area":
        pools = norch.adaptive_avg_pool1d, norch.adaptive_avg_pool2d, norch.adaptive_avg_pool3d
        return pools[len(sizes) - 1](input, sizes)
    if mode in ("nearest", "nearest-exact"):
        out = _to_nearest(input, sizes, factors, mode != "nearest")
    else:
        out = input
        for dim in range(2, input.ndim):
            out = _to_sum(out, dim, sizes[dim - 2], factors[dim - 2], bool(align_corners), mode == "bicubic")
    if out is input:
        return input.clone()
    out = out.to(input.dtype)
    if not input.is_contiguous() and input.ndim > 3:
        last = norch.channels_last if input.ndim == 4 else norch.channels_last_3d
        if input.is_contiguous(memory_format=last):
            return out.contiguous(memory_format=last)
    return out


def _to_nearest(x: norch.Tensor, sizes: tuple[int, ...], factors: tuple[Any, ...], exact: bool) -> norch.Tensor:
    scales = [n / m if f is None else 1 / f for n, m, f in zip(x.shape[2:], sizes, factors)]
    times = [_repeats(*each, exact, x.ndim == 4) for each in zip(x.shape[2:], sizes, scales)]
    for dim, scale in enumerate(scales, 2):
        if not times[dim - 2]:
            x = x.index_select(dim, _nearest(x.shape[dim], sizes[dim - 2], scale, exact, x.device))
    if max(times) <= 1:
        return x
    spread = [k for n in x.shape[2:] for k in (n, 1)]
    expanded = [k for n, t in zip(x.shape[2:], times) for k in (n, max(t, 1))]
    if x.ndim == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=norch.channels_last):
        rows = x.permute(0, 2, 3, 1).reshape((len(x), *spread, -1)).expand((len(x), *expanded, -1)).contiguous()
        return rows.reshape((len(x), *sizes, -1)).permute(0, 3, 1, 2)
    if max(times) > _FEW or not x.requires_grad:
        x = x.reshape((*x.shape[:2], *spread)).expand((*x.shape[:2], *expanded))
        return x.contiguous().reshape((*x.shape[:2], *sizes))
    for dim in range(x.ndim - 1, 1, -1):
        if times[dim - 2] > 1:
            x = norch.stack([x] * times[dim - 2], dim + 1).flatten(dim, dim + 1)
    return x


def _repeats(n: int, count: int, scale: float, exact: bool, images: bool) -> int:
    """How often in a row each of n elements comes; 0 where they differ in that, or rounding may make them."""
    times = count // n
    # As PyTorch does, "nearest" of images forgets the scale where the size is the same or doubled.
    known = scale * times == 1 or (times <= 2 and not exact and images)
    return times if times * n == count and times & (times - 1) == 0 and known else 0


def _to_sum(x: norch.Tensor, dim: int, count: int, factor: float | None, align: bool, cubic: bool) -> norch.Tensor:
    n = x.shape[dim]
    if align:
        scale = (n - 1) / (count - 1) if count > 1 else 0.0
    else:
        scale = n / count if factor is None else 1 / factor
    if n == count and (scale == 1 or not cubic):  # PyTorch forgets the scale there
        return x
    dtype = x.dtype if x.dtype.itemsize > 2 else norch.float32
    places, weights = _taps(n, count, scale, align, cubic, dtype, x.device)
    taps = x.index_select(dim, places).unflatten(dim, (-1, count))
    return (taps * weights.reshape((-1, count, *(1,) * (x.ndim - dim - 1)))).sum(dim)


def upsample(
    input: norch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Any = None
) -> norch.Tensor:
    """`interpolate`, under its old name, which warns."""
    warnings.warn("upsample() is deprecated: use interpolate()", FutureWarning, stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)
