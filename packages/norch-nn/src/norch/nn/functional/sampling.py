"""Values between the elements of images and volumes, at places that a grid names."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

import norch

Tensor = norch.Tensor


grid_sample = norch.grid_sample


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid that `grid_sample` takes for affine maps of places: (N, 2, 3) or (N, 3, 4) -> (N, *out, dims).

    size: that of the result of grid_sample, (N, C, *out). align_corners: as there. Raises ShapeError for shapes that do
    not fit, DTypeError unless theta is floating.
    """
    size = [index(n) for n in size]  # which may be 0-d tensors
    sizes = size[2:]
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
    return line if align else line * (count - 1) / count
