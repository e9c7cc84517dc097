"""Histograms with their edges, of weighted elements and of points in several dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dispatch.arguments import check_functions
from ..dtype import int64
from ..errors import DTypeError, ShapeError
from ..ops import linspace, ones_like, searchsorted, where, zeros

if TYPE_CHECKING:
    from ..tensor import Tensor


class Histogram(NamedTuple):
    hist: Tensor
    bin_edges: Tensor


class HistogramDD(NamedTuple):
    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def _edges(op: str, x: Tensor, bins: Any, low: float | None, high: float | None) -> Tensor:
    """The edges of bins of `x`, 1-D: those given, or equally far apart from `low` to `high`, else those of `x`."""
    if hasattr(bins, "spec"):
        if bins.ndim != 1 or bins.dtype is not x.dtype:
            raise ShapeError(f"{op}(): bins must be 1-D and {x.dtype}, got {bins.dtype} of shape {tuple(bins.shape)}")
        edges: Tensor = bins.detach()
        return edges
    if bins < 1:
        raise ValueError(f"{op}(): needs at least 1 bin, got {bins}")
    if low is None or high is None:
        low, high = (float(x.min().item()), float(x.max().item())) if x.numel() else (0.0, 1.0)
    if not (-float("inf") < low <= high < float("inf")):
        raise ValueError(f"{op}(): the range from {low} to {high} must be finite and not fall")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)


def histogramdd(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """How many points lie in each cell of a grid: (..., N) -> N dims, and the edges along each.

    bins: for each dim how many, an int for all, or a sequence of 1-D tensors of edges; range: the lowest and highest
    edge of each dim in turn, those of the points by default. A cell has its lower edges; the last ones have their upper
    too. weight: how much each point counts, of input's shape without the last dim. density: divided by the sum and the
    cells' sizes. Raises DTypeError unless input is floating, ShapeError for weights or edges that do not fit,
    ValueError for no bins or an infinite range.
    """
    if not input.is_floating_point():
        raise DTypeError(f"histogramdd(): input must be floating, got {input.dtype}")
    if input.ndim < 2:
        raise ShapeError(f"histogramdd(): input must have 2 dims or more, got shape {tuple(input.shape)}")
    dims = input.shape[-1]
    points = input.detach().reshape(-1, dims)
    counts = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(counts) != dims:
        raise ShapeError(f"histogramdd(): {len(counts)} bins for {dims} dims")
    if range is not None and len(range) != 2 * dims:
        raise ShapeError(f"histogramdd(): a range of {len(range)} numbers for {dims} dims; it needs two for each")
    if weight is not None and (tuple(weight.shape) != tuple(input.shape[:-1]) or weight.dtype is not input.dtype):
        raise ShapeError(
            f"histogramdd(): weight {tuple(weight.shape)} must be {tuple(input.shape[:-1])}, {input.dtype}"
        )
    amounts = ones_like(points[:, 0]) if weight is None else weight.detach().reshape(-1)
    edges, cell = [], points.new_zeros(len(points), dtype=int64)
    for d, chosen in enumerate(counts):
        low, high = (None, None) if range is None else range[2 * d : 2 * d + 2]
        column = points[:, d].contiguous()
        edge = _edges("histogramdd", column, chosen, low, high)
        n = len(edge) - 1
        at = searchsorted(edge, column, right=True) - 1
        at = where(column == edge[-1], n - 1, at)
        inside = (column >= edge[0]) & (column <= edge[-1])
        cell, amounts = cell * n + where(inside, at, 0), where(inside, amounts, 0.0)
        edges.append(edge)
    shape = tuple([len(edge) - 1 for edge in edges])
    found = zeros(shape, dtype=input.dtype, device=input.device)
    found = found.reshape(-1).scatter_add(0, cell, amounts).reshape(shape)
    if density:
        found = found / found.sum()
        for d, edge in enumerate(edges):
            found = found / edge.diff().reshape((-1, *(1,) * (dims - 1 - d)))
    return HistogramDD(found, tuple(edges))


def histogram(
    input: Tensor,
    bins: Any,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """How many elements lie in each bin, 1-D, and the bins' edges, one more.

    bins: how many, or the edges, a 1-D tensor; range: the lowest and the highest edge, those of the elements by
    default. A bin has its lower edge; the last has its upper one too. weight: how much each element counts, of input's
    shape. density: divided by the sum and the bins' sizes. Raises as `histogramdd`.
    """
    if weight is not None and tuple(weight.shape) != tuple(input.shape):
        raise ShapeError(f"histogram(): weight {tuple(weight.shape)} must be of input's shape {tuple(input.shape)}")
    amounts = None if weight is None else weight.reshape(-1)
    found = histogramdd(input.reshape(-1, 1), [bins], range=range, weight=amounts, density=density)
    return Histogram(found.hist, found.bin_edges[0])


check_functions(globals())
