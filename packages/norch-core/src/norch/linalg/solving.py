"""Inverses, determinants and systems of equations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd import is_grad_enabled
from ..errors import ShapeError
from ..ops import broadcast_shapes, eye, log, where
from . import routines
from .host import LinAlgError, check_matrices, differentiable

if TYPE_CHECKING:
    from ..tensor import Tensor


_inv = differentiable("inv", routines.inv, lambda a, out, g: -(out.mT @ g @ out.mT))


def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices (..., n, n). Raises LinAlgError for a singular one.

    `solve` is faster and more exact. Derivative: Giles, "An extended collection of matrix derivative results" (2008).
    """
    check_matrices("inv", A)
    out: Tensor = _inv(A)
    return out


def _solve_gradient(a: Tensor, b: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    gb = _solve(a.mT, g)
    return -gb @ x.mT, gb


_solve = differentiable("solve", routines.solve, _solve_gradient)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X with A @ X = B (with left=False, X @ A = B), for A (..., n, n) and B (..., n, k) or (..., n), a column.

    Batches broadcast. Raises LinAlgError where A is singular, ShapeError where the sizes do not match.
    """
    check_matrices("solve", A)
    if is_batch_of_vectors(A, B):
        return solve(A, B.unsqueeze(-1)).squeeze(-1)
    return _solved("solve", _solve, A, B, left)


def is_batch_of_vectors(A: Tensor, B: Tensor) -> bool:
    """Whether `solve` takes B for a vector for each of the matrices A; what else solves takes it for a matrix."""
    return B.ndim > 1 and B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]


def _solved(op: str, solver: Any, A: Tensor, B: Tensor, left: bool, transposed: Any = None) -> Tensor:
    """`solver` of what A and B are broadcast and promoted to. transposed: the solver for A.mT, if not the same."""
    is_vector = B.ndim == 1
    right = B.unsqueeze(-1) if is_vector else B
    if not left and not is_vector:
        return _solved(op, transposed or solver, A.mT, B.mT, True).mT
    check_matrices(op, right, square=False)
    if right.shape[-2] != A.shape[-1]:
        raise ShapeError(f"linalg.{op}(): shapes {tuple(A.shape)} and {tuple(B.shape)} do not match")
    if A.dtype is not right.dtype:
        A, right = A.double(), right.double()
    if A.shape[:-2] != right.shape[:-2]:
        batch: Any = broadcast_shapes(A.shape[:-2], right.shape[:-2])
        A, right = A.expand(*batch, *A.shape[-2:]), right.expand(*batch, *right.shape[-2:])
    out: Tensor = solver(A, right)
    return out.squeeze(-1) if is_vector else out


def _triangle(a: Tensor, upper: bool, unitriangular: bool) -> Tensor:
    return a.triu(int(unitriangular)) if upper else a.tril(-int(unitriangular))


def _differentiable_triangular(upper: bool, unitriangular: bool) -> Any:
    def gradient(a: Tensor, b: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        gb: Tensor = _TRIANGULAR[not upper, unitriangular](a.mT, g)
        return _triangle(-gb @ x.mT, upper, unitriangular), gb

    routine = partial(routines.linalg_solve_triangular, upper=upper, unitriangular=unitriangular)
    return differentiable("solve_triangular", routine, gradient)


_FLAGS = (False, True)
_TRIANGULAR = {(upper, unit): _differentiable_triangular(upper, unit) for upper in _FLAGS for unit in _FLAGS}


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` for a triangular A, of which only one triangle is read, that above the diagonal with `upper`; with
    `unitriangular`, as if 1 on its diagonal.

    On a device that has a routine for it, a singular A raises nothing: the result is then not finite.
    """
    check_matrices("solve_triangular", A)
    upper, unit = bool(upper), bool(unitriangular)
    return _solved("solve_triangular", _TRIANGULAR[upper, unit], A, B, left, _TRIANGULAR[not upper, unit])


# --- Determinants ---------------------------------------------------------------------------------------------------


def _cofactors(a: Tensor) -> Tensor:
    """The derivative of the determinant (Jacobi's formula), for singular matrices too: by singular values."""
    u, s, vh = routines.svd(a)
    others = where(eye(s.shape[-1], device=a.device) == 1, 1.0, s.unsqueeze(-2)).prod(-1)
    sign = routines.linalg_det(u) * routines.linalg_det(vh)
    out: Tensor = (u * (others * sign.unsqueeze(-1)).unsqueeze(-2)) @ vh
    return out


def _det_gradient(a: Tensor, out: Tensor, g: Tensor) -> Tensor:
    g = g.unsqueeze(-1).unsqueeze(-1)
    try:
        return g * out.unsqueeze(-1).unsqueeze(-1) * inv(a).mT
    except LinAlgError:
        if is_grad_enabled():
            raise
        return g * _cofactors(a)


_det = differentiable("det", routines.linalg_det, _det_gradient)


def det(A: Tensor) -> Tensor:
    """The determinants (...) of square matrices A (..., n, n). Of a singular one only the first derivative can be had.
    Raises ShapeError unless they are square, DTypeError unless floating.
    """
    check_matrices("det", A)
    if A.spec.shape[-1] == 1:  # linear, and exact
        return A.flatten(-2).sum(-1)
    out: Tensor = _det(A)
    return out


class SLogDet(NamedTuple):
    """What slogdet returns."""

    sign: Tensor
    logabsdet: Tensor


_slogdet = differentiable(
    "slogdet",
    routines.linalg_slogdet,
    lambda a, sign, size, _, g: g.unsqueeze(-1).unsqueeze(-1) * inv(a).mT,
    constants=1,
)


def slogdet(A: Tensor) -> SLogDet:
    """(sign, logarithm of the absolute value) of the determinants of square matrices A (..., n, n); (0, -inf) for a
    singular one.

    Raises as `det` does.
    """
    check_matrices("slogdet", A)
    return SLogDet(*_slogdet(A))


def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinants of square matrices A (..., n, n): NaN for a negative one, -inf for 0."""
    sign, size = slogdet(A)
    return where(sign < 0, log(sign), size)
