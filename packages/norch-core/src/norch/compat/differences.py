"""Differences along dims, and norms of old names, as PyTorch has them at its root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import check_functions
from ..errors import ShapeError
from ..ops import as_tensor, cat
from .complex_numbers import ComplexPair, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tensor import Tensor


def _along(x: Tensor, dim: int, spacing: Any, edge_order: int) -> Tensor:
    """The derivative along a dim where points lie `spacing` apart, a number, or at the places of a 1-D tensor."""
    n = x.shape[dim]
    if n < edge_order + 1:
        raise ShapeError(f"gradient(): a dim of size {n} is too small for edge_order={edge_order}")
    floating = x if x.is_floating_point() else x.to(as_tensor(1.0).dtype)
    x = floating.movedim(dim, -1)
    if hasattr(spacing, "diff"):
        steps = (spacing if spacing.is_floating_point() else spacing.to(x.dtype)).diff()
    else:
        steps = x.new_ones(n - 1) * float(spacing)
    slopes = x.diff() / steps
    before, after = steps[:-1], steps[1:]
    if hasattr(spacing, "diff"):
        inner = (slopes[..., :-1] * after + slopes[..., 1:] * before) / (before + after)
    else:  # of which the point between takes no part, infinite or not
        inner = (x[..., 2:] - x[..., :-2]) / (2 * float(spacing))
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:  # a parabola through three points
        first = first - (slopes[..., 1:2] - first) * (steps[0] / (steps[0] + steps[1]))
        last = last + (last - slopes[..., -2:-1]) * (steps[-1] / (steps[-1] + steps[-2]))
    return cat([first, inner, last], -1).movedim(-1, dim)


def gradient(
    input: Tensor, *, spacing: Any = None, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """The derivative along each of the dims, all without `dim`, by central differences, at the edges one-sided.

    spacing: how far points lie apart, a number (1 by default) or one for each dim, or the places along each dim, 1-D
    tensors.
    edge_order: 1, or 2 for parabolas at the edges. Integers give the default dtype, and places promote. Raises
    ShapeError for a dim that is too small, out of range or named twice, or for another number of spacings than of dims,
    ValueError for another edge_order.
    """
    if isinstance(input, ComplexPair):
        re, im = [gradient(part, spacing=spacing, dim=dim, edge_order=edge_order) for part in (input.real, input.imag)]
        return tuple(map(joined, re, im))
    if edge_order not in (1, 2):
        raise ValueError(f"gradient(): edge_order is 1 or 2, got {edge_order}")
    dims = range(input.ndim) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    spacings = list(spacing) if isinstance(spacing, list | tuple) else [1 if spacing is None else spacing] * len(dims)
    if len(spacings) != len(dims):
        raise ShapeError(f"gradient(): {len(spacings)} spacings for {len(dims)} dims")
    if any(not -input.ndim <= d < input.ndim for d in dims):
        raise ShapeError(f"gradient(): a dim of {list(dims)} is out of range for {input.ndim} dims")
    if len({d % input.ndim for d in dims}) < len(dims):
        raise ShapeError(f"gradient(): a dim appears twice in {list(dims)}")
    return tuple([_along(input, d, s, edge_order) for d, s in zip(dims, spacings, strict=True)])


def frobenius_norm(input: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    """The square root of the sum of squares over the dims, over all of them where `dim` is ()."""
    return input.norm(dim=None if dim in ((), []) else dim, keepdim=keepdim)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norms of `v`, of order `pow`, over all dims but `dim`, which stay with size 1; over all where it is -1."""
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.ndim) if d != dim % v.ndim]
    return v.norm(pow, dim=others, keepdim=True)


check_functions(globals())
