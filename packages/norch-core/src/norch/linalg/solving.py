"""Inverses, determinants and systems of equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ShapeError
from ..ops import broadcast_shapes, log, where
from .host import Function, check_matrices, is_grad_enabled, on_host

if TYPE_CHECKING:
    from ..tensor import Tensor


class _Inverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        out: Tensor = on_host("inv", np.linalg.inv, a)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        a, out = ctx.saved_tensors
        turned = (inv(a) if is_grad_enabled() else out).mT
        return -(turned @ g @ turned)


def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices. Raises LinAlgError for a singular one. `solve` is faster and more exact."""
    check_matrices("inv", A)
    out: Tensor = _Inverse.apply(A)
    return out


class _Solve(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        out: Tensor = on_host("solve", np.linalg.solve, a, b)
        ctx.save_for_backward(a, b, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, b, x = ctx.saved_tensors
        x = _Solve.apply(a, b) if is_grad_enabled() else x
        gb = _Solve.apply(a.mT, g)
        return -(gb @ x.mT), gb


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X with A @ X = B (with left=False, X @ A = B), for square A; batches broadcast, a vector B is a column.

    Raises LinAlgError where A is singular, ShapeError where the sizes do not match.
    """
    check_matrices("solve", A)
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if is_vector else B
    if not left and not is_vector:
        return solve(A.mT, B.mT).mT
    check_matrices("solve", right, square=False)
    if right.shape[-2] != A.shape[-1]:
        raise ShapeError(f"linalg.solve(): shapes {tuple(A.shape)} and {tuple(B.shape)} do not match")
    batch: Any = broadcast_shapes(A.shape[:-2], right.shape[:-2])
    out: Tensor = _Solve.apply(A.expand(*batch, *A.shape[-2:]), right.expand(*batch, *right.shape[-2:]))
    return out.squeeze(-1) if is_vector else out


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` for a triangular A, of which only one triangle is read; with `unitriangular`, as if 1 on its diagonal."""
    check_matrices("solve_triangular", A)
    triangle = A.triu(1 if unitriangular else 0) if upper else A.tril(-1 if unitriangular else 0)
    if unitriangular:
        from ..ops import eye

        triangle = triangle + eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return solve(triangle, B, left=left)


# --- Determinants ---------------------------------------------------------------------------------------------------


def _cofactors(a: Any) -> Any:
    """The derivative of the determinant, for singular matrices too: from the singular value decomposition."""
    u, s, vh = np.linalg.svd(a)
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1) if s.shape[-1] else s
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return ((u * others[..., None, :]) @ vh * sign[..., None, None]).astype(a.dtype)


class _Determinant(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return on_host("det", np.linalg.det, a)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        if is_grad_enabled():
            return (g * det(a)).unsqueeze(-1).unsqueeze(-1) * inv(a).mT
        cofactors: Tensor = on_host("det", _cofactors, a)
        return g.unsqueeze(-1).unsqueeze(-1) * cofactors


def det(A: Tensor) -> Tensor:
    """The determinant of square matrices. Of a singular one only the first derivative can be had."""
    check_matrices("det", A)
    out: Tensor = _Determinant.apply(A)
    return out


class SLogDet(NamedTuple):
    """What slogdet returns."""

    sign: Tensor
    logabsdet: Tensor


class _SignLogDet(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        sign, size = on_host("slogdet", lambda x: tuple(np.linalg.slogdet(x)), a)
        ctx.save_for_backward(a)
        ctx.mark_non_differentiable(sign)
        return sign, size

    @staticmethod
    def backward(ctx: Any, _: Tensor, g: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return g.unsqueeze(-1).unsqueeze(-1) * inv(a).mT


def slogdet(A: Tensor) -> SLogDet:
    """(sign, log of the size) of the determinant of square matrices; (0, -inf) for a singular one."""
    check_matrices("slogdet", A)
    return SLogDet(*_SignLogDet.apply(A))


def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinant of square matrices: NaN for a negative one, -inf for 0."""
    sign, size = slogdet(A)
    return where(sign < 0, log(sign), size)


# --- Systems without one answer -------------------------------------------------------------------------------------


def _cutoff(s: Tensor, shape: Any, atol: float | None, rtol: float | None) -> Tensor:
    from ..dtype import finfo

    relative = (max(shape[-2:]) * finfo(s.dtype).eps if atol is None else 0.0) if rtol is None else rtol
    largest = s.amax(-1, True) if s.shape[-1] else s.sum(-1, True)
    return (largest * relative).clamp(min=0.0 if atol is None else atol)


def pinv(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """The Moore-Penrose inverse: singular values below atol, or rtol times the largest, count as 0."""
    from .decompositions import svd

    u, s, vh = svd(A, full_matrices=False)
    keeps = s > _cutoff(s, A.shape, atol, rtol)
    inverse = where(keeps, 1 / where(keeps, s, 1.0), 0.0)
    return (vh.mT * inverse.unsqueeze(-2)) @ u.mT


def matrix_rank(A: Tensor, *, atol: float | None = None, rtol: float | None = None) -> Tensor:
    """How many singular values are not 0, which those below atol, or rtol times the largest, count as. int64."""
    from .decompositions import svdvals

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

    residuals: the squared distances, where A has more rows than columns and full rank; else empty.
    """
    from .decompositions import svdvals

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
