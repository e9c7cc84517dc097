"""What rests on singular values: the pseudoinverse, the rank, and systems of equations without one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..dtype import finfo
from ..errors import ShapeError
from ..ops import where
from .decompositions import svd, svdvals
from .host import check_matrices

if TYPE_CHECKING:
    from ..tensor import Tensor


def _cutoff(s: Tensor, shape: Any, atol: float | None, rtol: float | None) -> Tensor:
    relative = (max(shape[-2:]) * finfo(s.dtype).eps if atol is None else 0.0) if rtol is None else rtol
    largest = s.amax(-1, True) if s.shape[-1] else s.sum(-1, True)
    return (largest * relative).clamp(min=0.0 if atol is None else atol)


def pinv(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The Moore-Penrose inverse, (..., n, m) of A (..., m, n): singular values below atol, or rtol times the largest,
    count as 0."""
    u, s, vh = svd(A, full_matrices=False)
    significant = s > _cutoff(s, A.shape, atol, rtol)
    inverse = where(significant, 1 / where(significant, s, 1.0), 0.0)
    return (vh.mT * inverse.unsqueeze(-2)) @ u.mT


def matrix_rank(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """How many singular values are not 0, which those below atol, or rtol times the largest, count as. int64."""
    s = svdvals(A.detach())
    return (s > _cutoff(s, A.shape, atol, rtol)).sum(-1)


class LeastSquares(NamedTuple):
    """What lstsq returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None) -> LeastSquares:
    """The X of least |A @ X - B|, the smallest of several, by the pseudoinverse; and A's rank and singular values.

    residuals: the squared distances, where A has more rows than columns and full rank; else empty. Raises ShapeError
    where the rows of A and B differ in number.
    """
    check_matrices("lstsq", A, square=False)
    is_vector = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if is_vector else B
    if right.shape[-2] != A.shape[-2]:
        raise ShapeError(f"linalg.lstsq(): shapes {tuple(A.shape)} and {tuple(B.shape)} do not match")
    solution = pinv(A, rtol=rcond) @ right
    rank = matrix_rank(A, rtol=rcond)
    full = A.shape[-2] > A.shape[-1] and bool((rank == A.shape[-1]).all())
    residuals = ((A @ solution - right) ** 2).sum(-2) if full else A.new_empty(0)
    return LeastSquares(solution.squeeze(-1) if is_vector else solution, residuals, rank, svdvals(A.detach()))
