"""Values between the elements of images and volumes, at places that a grid names."""

from __future__ import annotations

from collections.abc import Sequence

import norch
from norch.ops.nn.sampling import grid_sample2d, sampled

Tensor = norch.Tensor


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
    # Composites are of images; what they cannot do is composed.
    sample = sampled if input.ndim == 5 or mode == "bicubic" else grid_sample2d
    return sample(input, grid, mode, padding_mode, bool(align_corners))


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
