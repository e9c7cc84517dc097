"""Distances of rows to rows."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from ...device import Device
from ...errors import ShapeError
from ...spec import Shape, Spec, broadcast_shapes
from ..copying import contiguous
from ..elementwise.arithmetic import sign, where
from ..families import composite, floating, has_kernel, op_of
from ..indexing import gather, gather_grad, index_select
from ..reduction.norms import norm
from ..reduction.reductions import sum as total
from ..reduction.variance import _root
from ..registry import public
from ..shape.arranging import triu_indices
from ..shape.joining import cat
from ..shape.views import reshape, unsqueeze
from .matmul import matmul, require_dims

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer(x1: Spec, x2: Spec, p: float) -> Spec:
    return x1.like((*x1.shape[:2], x2.shape[1]))


def _first_rule(g: Tensor, x1: Tensor, x2: Tensor, y: Tensor, p: float) -> Tensor:
    return distances_grad(g, x1, x2, y, p)


def _second_rule(g: Tensor, x1: Tensor, x2: Tensor, y: Tensor, p: float) -> Tensor:
    return distances_grad(g.mT, x2, x1, y.mT, p)


@composite(_infer, {"x1": _first_rule, "x2": _second_rule})
def distances(x1: Tensor, x2: Tensor, p: float) -> Tensor:
    """The 1-norms or 2-norms of the differences of all rows, (b, n, k) and (b, m, k) -> (b, n, m)."""
    return norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1)


def _infer_grad(grad: Spec, x1: Spec, x2: Spec, distance: Spec, p: float) -> Spec:
    return x1.like(tuple(x1.shape))


@composite(_infer_grad)
def distances_grad(grad: Tensor, x1: Tensor, x2: Tensor, distance: Tensor, p: float) -> Tensor:
    """The gradient of the first rows; of rows that are the same it is 0."""
    away = unsqueeze(x1, -2) - unsqueeze(x2, -3)
    if p == 1:
        return total(sign(away) * unsqueeze(grad, -1), -2)
    none = distance == 0
    factor = where(none, 0.0, grad / where(none, 1.0, distance))
    return total(away * unsqueeze(factor, -1), -2)


def _between(x1: Tensor, x2: Tensor, batch: Shape, p: float) -> Tensor:
    """`distances` of rows in batches that broadcast to `batch`."""
    count, (n, k), m = math.prod(batch), x1.spec.shape[-2:], x2.spec.shape[-2]
    a = contiguous(x1.expand(*batch, n, k)).reshape(count, n, k)
    b = contiguous(x2.expand(*batch, m, k)).reshape(count, m, k)
    return distances(a, b, float(p)).reshape(*batch, n, m)


_POINT = 4
"""Elements of rows whose distances a device's kernel finds sooner than products, of which several passes are made."""


def _are_points(x1: Tensor, x2: Tensor, batch: Shape) -> bool:
    """Whether the rows are so short, and their device has that kernel. On the CPU its gradient takes longer."""
    (n, k), m = x1.spec.shape[-2:], x2.spec.shape[-2]
    if k > _POINT or x1.spec.device.type == "cpu" or type(x1.spec) is not Spec or type(x2.spec) is not Spec:
        return False
    if x1.dtype is not x2.dtype or x1.dtype.itemsize == 2 or x1.spec.device != x2.spec.device:
        return False
    count = math.prod(batch)
    return has_kernel(op_of(distances), x1.spec.like((count, n, k)), x2.spec.like((count, m, k)), 2.0)


@public(method=False)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """The `p`-norm distance of every row of x1 to every row of x2: (..., n, k), (..., m, k) -> (..., n, m).

    Euclidean distances of more than 25 rows come from a matrix product, which is faster and less exact for near rows,
    but for rows of up to four elements on a device that has a kernel for them. `compute_mode`
    "donot_use_mm_for_euclid_dist" never does that, "use_mm_for_euclid_dist" always. Raises ShapeError for shapes that
    do not fit, DTypeError unless both are floating, ValueError for a negative `p` or another mode.
    """
    modes = ("use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist")
    if compute_mode not in modes:
        raise ValueError(f"cdist(): compute_mode must be one of {', '.join(modes)}, got {compute_mode!r}")
    if x1.spec.ndim < 2 or x2.spec.ndim < 2 or x1.spec.shape[-1] != x2.spec.shape[-1]:
        raise ShapeError(
            f"cdist(): expected rows of one length, got shapes {tuple(x1.spec.shape)} and {tuple(x2.spec.shape)}"
        )
    if p < 0:
        raise ValueError(f"cdist(): p must not be negative, got {p}")
    floating("cdist", x1.spec, x2.spec)
    many = x1.spec.shape[-2] > 25 or x2.spec.shape[-2] > 25
    batch = broadcast_shapes(tuple(x1.spec.shape[:-2]), tuple(x2.spec.shape[:-2]), op="cdist")
    by_product = compute_mode == modes[0] and many and not (p == 2 and _are_points(x1, x2, batch))
    if p == 2 and (compute_mode == modes[1] or by_product):
        # |a - b|**2 = |a|**2 + |b|**2 - 2 a.b, the norms as two more columns of the factors.
        square1, square2 = total(x1 * x1, -1, True), total(x2 * x2, -1, True)
        left = cat([x1 * -2, square1, square1.new_ones(square1.shape)], -1)
        right = cat([x2, square2.new_ones(square2.shape), square2], -1)
        return _root(matmul(left, right.mT).clamp(min=0.0))
    p = p if x1.spec.shape[-1] else 1.0  # rows of nothing: 0 by any norm
    if p in (1, 2) and x1.dtype is x2.dtype and x1.dtype.itemsize > 2:
        return _between(x1, x2, batch, p)
    return norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, -1)


_FEW = 1024
"""Rows of which the places of all pairs are kept."""


@lru_cache(16)
def _pairs(n: int, device: Device) -> Tensor:
    """Where pairs of n rows are in the n x n matrix of all, those below the diagonal and on it left out."""
    first, second = triu_indices(n, n, 1, device=device).unbind(0)
    return first * n + second


def _places(n: int, x: Tensor) -> Tensor:
    return (_pairs if n <= _FEW else _pairs.__wrapped__)(n, x.device)


def _symmetric(values: Tensor, n: int) -> Tensor:
    """The symmetric matrix, (1, n, n), that has values of pairs beside a diagonal of 0."""
    above = reshape(gather_grad(values, _places(n, values), 0, (n * n,)), (1, n, n))
    return above + above.mT


def _infer_pairwise(input: Spec, p: float) -> Spec:
    return input.like((math.comb(input.shape[0], 2),))


def _pairwise_rule(g: Tensor, input: Tensor, y: Tensor, p: float) -> Tensor:
    return pairwise_distances_grad(g, input, y, p)


@composite(_infer_pairwise, _pairwise_rule)
def pairwise_distances(input: Tensor, p: float) -> Tensor:
    """The distances of each of n rows to those after it, row by row: (n, k) -> (n (n - 1) / 2)."""
    n, k = input.spec.shape
    rows = reshape(input, (1, n, k))
    return gather(reshape(distances(rows, rows, p), (n * n,)), 0, _places(n, input))


@composite(lambda grad, input, distance, p: input.like(tuple(input.shape)))
def pairwise_distances_grad(grad: Tensor, input: Tensor, distance: Tensor, p: float) -> Tensor:
    """The gradient of the rows; of rows that are the same it is 0."""
    n, rows = input.spec.shape[0], unsqueeze(input, 0)
    both = distances_grad(_symmetric(grad, n), rows, rows, _symmetric(distance, n), p)
    return reshape(both, tuple(input.spec.shape))


@public(method=False)
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The `p`-norm distances of all pairs of rows: (n, k) -> (n * (n - 1) / 2). Raises ShapeError unless 2-D."""
    require_dims("pdist", (input, 2))
    n = input.spec.shape[0]
    p = p if input.spec.shape[1] else 1.0
    if p in (1, 2) and input.is_floating_point() and input.dtype.itemsize > 2:
        return pairwise_distances(contiguous(input), float(p))
    first, second = triu_indices(n, n, 1, device=input.device).unbind(0)
    return norm(index_select(input, 0, first) - index_select(input, 0, second), p, -1)
