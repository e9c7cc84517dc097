"""What rests on singular values: the pseudoinverse, the rank, and systems of equations without one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd import no_grad
from ..dtype import finfo
from ..errors import ShapeError
from ..ops import where
from . import routines
from .decompositions import svdvals
from .host import check_matrices, differentiable, of_all_samples

if TYPE_CHECKING:
    from ..tensor import Tensor


def relative_cutoff(s: Tensor, shape: Any, atol: Any, rtol: Any) -> Tensor:
    """What singular values must exceed, (..., 1). The tolerances: numbers, or a tensor of one for each matrix."""
    atol, rtol = (v.detach().to(s.dtype).unsqueeze(-1) if hasattr(v, "spec") else v for v in (atol, rtol))
    relative = (max(shape[-2:]) * finfo(s.dtype).eps if atol is None else 0.0) if rtol is None else rtol
    largest = s.amax(-1, True) if s.shape[-1] else s.sum(-1, True)
    return (largest * relative).clamp(min=0.0 if atol is None else atol)


def _lower(A: Tensor) -> Tensor:
    """The symmetric matrices that the lower triangles of A stand for."""
    return A.tril() + A.tril(-1).mT


def _singular_values(A: Tensor, atol: Any, rtol: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A's pseudoinverse, which no gradient passes, its singular values, and what they must exceed."""
    with no_grad():
        u, s, vh = routines.svd(A.detach())
        cutoff = relative_cutoff(s, A.shape, atol, rtol)
        return (vh.mT * where(s > cutoff, 1 / s, 0.0).unsqueeze(-2)) @ u.mT, s, cutoff


def _pinv_gradient(a: Tensor, _: Tensor, p: Tensor, g: Tensor) -> tuple[Tensor, None]:
    """Golub and Pereyra, "The differentiation of pseudo-inverses" (1973): for matrices of any rank, if it stays."""
    left, right = g.mT - a @ (p @ g.mT), g.mT - (g.mT @ p) @ a
    return left @ p @ p.mT + p.mT @ p @ right - p.mT @ g @ p.mT, None


_pinv = differentiable("pinv", lambda a, p: p, _pinv_gradient)


def pinv(A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """The Moore-Penrose inverse, (..., n, m) of A (..., m, n): singular values below atol, or rtol times the largest,
    count as 0. rcond: rtol, in PyTorch's first form. hermitian: A is symmetric, and only its lower triangle read.

    Raises ShapeError unless they are matrices, DTypeError unless float32 or float64.
    """
    A, rtol = _lower(A) if hermitian else A, rtol if rcond is None else rcond
    check_matrices("pinv", A, square=False)
    out: Tensor = _pinv(A, _singular_values(A, atol, rtol)[0])
    return out


def matrix_rank(A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Tensor:
    """How many singular values of each matrix are not 0, which those below atol, or rtol times the largest, count as.
    int64.

    tol: atol, with an rtol of 0. hermitian: A is symmetric, and only its lower triangle read.
    """
    if tol is not None:
        atol, rtol = tol, 0.0
    s = svdvals(_lower(A.detach()) if hermitian else A.detach())
    return (s > relative_cutoff(s, A.shape, atol, rtol)).sum(-1)


class LeastSquares(NamedTuple):
    """What lstsq returns."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LeastSquares:
    """The X of least |A @ X - B|, the smallest of several, by the pseudoinverse; and A's rank and singular values.

    rcond: singular values below it, times the largest, count as 0. residuals: the squared distances, where A has more
    rows than columns and full rank; else empty. driver: a name of PyTorch's, without effect. Raises ShapeError where
    the rows of A and B differ in number, ValueError for another driver.
    """
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ValueError(f"linalg.lstsq(): driver must be gels, gelsy, gelsd or gelss, got {driver!r}")
    check_matrices("lstsq", A, square=False)
    is_vector = B.ndim == A.ndim - 1
    right = B.unsqueeze(-1) if is_vector else B
    if right.shape[-2] != A.shape[-2]:
        raise ShapeError(f"linalg.lstsq(): shapes {tuple(A.shape)} and {tuple(B.shape)} do not match")
    inverse, singular_values, cutoff = _singular_values(A, None, rcond)
    solution = _pinv(A, inverse) @ right
    rank = (singular_values > cutoff).sum(-1)
    full = A.shape[-2] > A.shape[-1] and bool(of_all_samples(rank == A.shape[-1]).all())
    residuals = ((A @ solution - right) ** 2).sum(-2) if full else A.new_empty(0)
    return LeastSquares(solution.squeeze(-1) if is_vector else solution, residuals, rank, singular_values)
