"""Values between the elements of images and volumes, at places that a grid names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import norch

Tensor = norch.Tensor
Taps = list[list[tuple[Tensor, Tensor]]]
"""For each spatial dim its neighbours: their indices and their weights, which are 0 of what lies outside."""

_MANY_CHANNELS = 8


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The values of `input` at the places of `grid`: (N, C, *in), (N, *out, dims) -> (N, C, *out), for 2 or 3 dims.

    A place is (x, y) or (x, y, z), -1 and 1 being the borders of input, or with `align_corners` the centres of its
    outermost elements. mode: "bilinear" (of volumes trilinear), "nearest" or, of images, "bicubic". padding_mode: what
    is outside: "zeros", "border" or "reflection". Raises ShapeError for shapes that do not fit, DTypeError unless both
    have one floating dtype, ValueError for another mode. After Jaderberg et al. (2015).
    """
    _check(input, grid, mode, padding_mode)
    if input.dtype.itemsize == 2:
        return grid_sample(input.float(), grid.float(), mode, padding_mode, align_corners).to(input.dtype)
    align = bool(align_corners)
    sizes = input.shape[2:]
    count = math.prod(grid.shape[1:-1])
    places = [_unnormalised(grid[..., -1 - d].reshape(-1, count), n, align) for d, n in enumerate(sizes)]
    taps: Taps = []
    for x, n in zip(places, sizes, strict=True):
        if mode == "bicubic":
            taps.append([_tap(_padded(i, n, padding_mode, align), w, n) for i, w in _cubic(x)])
            continue
        x = _padded(x, n, padding_mode, align)
        first = x.detach().round() if mode == "nearest" else x.detach().floor()
        # Of the nearest one the weight is 1, whatever the place; its gradient is 0.
        near = [(first, x * 0 + 1)] if mode == "nearest" else [(first, 1 - (x - first)), (first + 1, x - first)]
        taps.append([_tap(i, w, n) for i, w in near])
    return _gathered(input, taps).reshape(*input.shape[:2], *grid.shape[1:-1])


def _check(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample(): mode must be 'bilinear', 'nearest' or 'bicubic', got {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample(): padding_mode must be 'zeros', 'border' or 'reflection', got {padding_mode!r}")
    shapes = f"got input {tuple(input.shape)} and grid {tuple(grid.shape)}"
    dims = input.ndim - 2
    if dims not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise norch.ShapeError(f"grid_sample(): expected (N, C, *in) and (N, *out, dims) of 2 or 3 dims, {shapes}")
    if 0 in input.shape[2:]:
        raise norch.ShapeError(f"grid_sample(): there is nothing to sample, {shapes}")
    if mode == "bicubic" and dims == 3:
        raise norch.ShapeError(f"grid_sample(): mode 'bicubic' is for images, {shapes}")
    if input.dtype is not grid.dtype or not input.is_floating_point():
        raise norch.DTypeError(f"grid_sample(): expected one floating dtype, got {input.dtype} and {grid.dtype}")


def _unnormalised(x: Tensor, size: int, align: bool) -> Tensor:
    return (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2


def _padded(x: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """Places brought inside. What is moved to the border, or lies on it, has no gradient; NaN is 0."""
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        x = _reflected(x, 0.0, size - 1.0) if align else _reflected(x, -0.5, float(size))
    last = size - 1.0
    return norch.where(x > 0, norch.where(x < last, x, last), 0.0)


def _reflected(x: Tensor, low: float, span: float) -> Tensor:
    if not span:
        return x * 0
    away = x - low
    away = norch.where(away < 0, -away, away)
    rest = norch.fmod(away, span)
    odd = (away.detach() / span).floor() % 2 != 0
    return norch.where(odd, span - rest, rest) + low


def _cubic(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The four neighbours of each place and their weights (Keys, 1981, with a = -0.75)."""
    a, first = -0.75, x.detach().floor()
    t = x - first

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    return [(first + i - 1, w) for i, w in enumerate(weights)]


def _tap(index: Tensor, weight: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Indices of the dim and their weights; both 0 where they lie outside."""
    inside = (index >= 0) & (index <= size - 1)
    return norch.where(inside, index, 0.0).to(norch.int64), norch.where(inside, weight, 0.0)


def _gathered(input: Tensor, taps: Taps) -> Tensor:
    """(N, C, places): the sums of elements, of many channels as rows of a table, of few one by one."""
    n, c = input.shape[:2]
    flat = input.reshape(n, c, -1)
    count, as_rows = flat.shape[2], c >= _MANY_CHANNELS
    table = flat.transpose(1, 2).reshape(-1, c) if as_rows else flat
    first = norch.arange(n, device=input.device).unsqueeze(1) * count
    total: Tensor | None = None
    for corner in itertools.product(*taps):
        index, weight = corner[0]
        for size, (i, w) in zip(input.shape[3:], corner[1:], strict=True):
            index, weight = index * size + i, weight * w
        weight = weight.unsqueeze(-1 if as_rows else 1)
        if as_rows:
            values = norch.embedding(index + first, table)
        else:
            values = table.gather(2, index.unsqueeze(1).expand(-1, c, -1))
        total = values * weight if total is None else norch.addcmul(total, values, weight)
    assert total is not None
    return total.transpose(1, 2) if as_rows else total


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid that `grid_sample` takes for affine maps of places: (N, 2, 3) or (N, 3, 4) -> (N, *out, dims).

    size: that of the result of grid_sample, (N, C, *out). align_corners: as there. Raises ShapeError for shapes that do
    not fit, DTypeError unless theta is floating.
    """
    sizes = list(size)[2:]
    dims = len(sizes)
    if dims not in (2, 3) or tuple(theta.shape) != (size[0], dims, dims + 1) or min(size) < 1:
        raise norch.ShapeError(
            f"affine_grid(): theta {tuple(theta.shape)} for size {tuple(size)}; expected (N, 2, 3) and (N, C, H, W) or "
            "(N, 3, 4) and (N, C, D, H, W)"
        )
    if not theta.is_floating_point():
        raise norch.DTypeError(f"affine_grid(): theta must be floating, got {theta.dtype}")
    parts = []
    for d in reversed(range(dims)):
        line = _line(sizes[d], bool(align_corners), theta)
        parts.append(line.reshape([-1 if i == d else 1 for i in range(dims)]).expand(sizes))
    base = norch.stack([*parts, norch.ones_like(parts[0])], -1).reshape(-1, dims + 1)
    return (base @ theta.mT).reshape(size[0], *sizes, dims)


def _line(count: int, align: bool, like: Tensor) -> Tensor:
    if count == 1:
        return norch.zeros(1, dtype=like.dtype, device=like.device)
    line = norch.linspace(-1, 1, count, dtype=like.dtype, device=like.device)
    return line if align else line * ((count - 1) / count)
