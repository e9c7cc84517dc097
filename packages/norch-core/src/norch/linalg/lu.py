"""LU factors with exchanged rows, and solutions by them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..dtype import int32
from ..errors import DTypeError, ShapeError
from ..ops import arange, argsort, broadcast_shapes, cat, eye, take_along_dim
from . import routines
from .host import check_info, check_matrices, differentiable
from .solving import solve_triangular

if TYPE_CHECKING:
    from ..tensor import Tensor


def _identity(like: Tensor, size: int) -> Tensor:
    return eye(size, dtype=like.dtype, device=like.device)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows of matrices in another order; batches broadcast."""
    batch: Any = broadcast_shapes(x.shape[:-2], order.shape[:-1])
    index = order.unsqueeze(-1).expand(*batch, order.shape[-1], x.shape[-1])
    return take_along_dim(x.expand(*batch, *x.shape[-2:]), index, -2)


def _lu_gradient(a: Tensor, lu: Tensor, pivots: Tensor, _: Tensor, g: Tensor, *rest: Tensor) -> Tensor:
    """S. Walter and L. Lehmann, "Algorithmic differentiation of linear algebra functions" (2010), for square matrices.

    What a matrix has beside them is U2 = inv(L) A2, what it has below them L2 = A2 inv(U).
    """
    k = min(a.shape[-2:])
    lower, upper = lu[..., :k, :k].tril(-1) + _identity(lu, k), lu[..., :k, :k].triu()
    g_lower, g_upper = g[..., :k, :k].tril(-1), g[..., :k, :k].triu()
    is_wide, is_tall = k < a.shape[-1], k < a.shape[-2]
    if is_wide:
        beside = solve_triangular(lower.mT, g[..., k:], upper=True, unitriangular=True)
        g_lower = g_lower - (beside @ lu[..., k:].mT).tril(-1)
    if is_tall:
        below = solve_triangular(upper.mT, g[..., k:, :], upper=False, left=False)
        g_upper = g_upper - (lu[..., k:, :].mT @ below).triu()
    inner = (lower.mT @ g_lower).tril(-1) + (g_upper @ upper.mT).triu()
    inner = solve_triangular(lower.mT, inner, upper=True, unitriangular=True)
    inner = solve_triangular(upper.mT, inner, upper=False, left=False)
    if is_wide:
        inner = cat([inner, beside], -1)
    if is_tall:
        inner = cat([inner, below], -2)
    return _rows(inner, argsort(routines.permutation(pivots, a.shape[-2]), -1))


_lu_factor = differentiable("lu", routines.linalg_lu_factor, _lu_gradient)


class LUFactor(NamedTuple):
    """What lu_factor returns."""

    LU: Tensor
    pivots: Tensor


def _factors(op: str, A: Tensor, pivot: bool) -> tuple[Tensor, Tensor, Tensor]:
    check_matrices(op, A, square=False)
    if not pivot:
        raise ValueError(f"linalg.{op}(): pivot must be True; without exchanged rows factors are not exact")
    if not min(A.shape[-2:]):  # there is nothing to eliminate
        batch = tuple(A.shape[:-2])
        return A * 1, A.new_zeros((*batch, 0), dtype=int32), A.new_zeros(batch, dtype=int32)
    found: tuple[Tensor, Tensor, Tensor] = _lu_factor(A)
    return found


def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """(LU, pivots): U and, below its diagonal, L without the ones of its own; for `lu_solve`.

    pivots (int32, from 1): row i was exchanged for row pivots[i]. Raises LinAlgError where U is singular, ValueError
    for pivot=False.
    """
    factors, pivots, info = _factors("lu_factor", A, pivot)
    return LUFactor(*check_info("lu_factor", info, A, (factors, pivots)))


class LU(NamedTuple):
    """What lu returns."""

    P: Tensor
    L: Tensor
    U: Tensor


def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """(P, L, U) with A = P @ L @ U: a permutation, a lower triangle with ones on its diagonal, an upper triangle.

    Of A (..., m, n), with k = min(m, n), they are (..., m, m), (..., m, k) and (..., k, n). Raises as `lu_factor`, but
    for no singular matrix.
    """
    factors, pivots, _ = _factors("lu", A, pivot)
    return LU(*unpacked(factors, pivots))


def unpacked(factors: Tensor, pivots: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    m, n = factors.shape[-2:]
    k = min(m, n)
    order = routines.permutation(pivots, m)
    p = (order.unsqueeze(-2) == arange(m, device=factors.device).unsqueeze(-1)).to(factors.dtype)
    diagonal = _identity(factors, max(m, k))[:, :k]
    return p, factors[..., :k].tril(-1) + diagonal, factors[..., :k, :].triu()


def check_pivots(op: str, LU: Tensor, pivots: Tensor) -> None:
    if pivots.dtype.is_floating_point or tuple(pivots.shape) != (*LU.shape[:-2], min(LU.shape[-2:])):
        kind = DTypeError if pivots.dtype.is_floating_point else ShapeError
        raise kind(f"linalg.{op}(): pivots of {pivots.dtype} {tuple(pivots.shape)} are none of {tuple(LU.shape)}")


def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """The X with A @ X = B for the A that `lu_factor` gave LU and pivots of; X @ A = B with left=False, and A.mT in
    place of A with `adjoint`. B is (..., n, k), or (..., k, n) with left=False.

    Raises ShapeError where the sizes do not match, DTypeError unless pivots are int32 or int64.
    """
    check_matrices("lu_solve", LU)
    check_pivots("lu_solve", LU, pivots)
    if not left:
        return lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT
    order = routines.permutation(pivots, LU.shape[-1])
    if not adjoint:
        x = solve_triangular(LU, _rows(B, order), upper=False, unitriangular=True)
        return solve_triangular(LU, x, upper=True)
    x = solve_triangular(LU.mT, solve_triangular(LU.mT, B, upper=False), upper=True, unitriangular=True)
    return _rows(x, argsort(order, -1))
