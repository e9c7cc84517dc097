"""Inverses, determinants and systems of equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..autograd import is_grad_enabled
from ..errors import ShapeError
from ..ops import broadcast_shapes, eye, log, where
from .host import check_matrices, differentiable, on_host

if TYPE_CHECKING:
    from ..tensor import Tensor


_inv = differentiable("inv", np.linalg.inv, lambda a, out, g: -(out.mT @ g @ out.mT))


def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices (..., n, n). Raises LinAlgError for a singular one.

    `solve` is faster and more exact. Derivative: Giles, "An extended collection of matrix derivative results" (2008).
    """
    check_matrices("inv", A)
    out: Tensor = _inv(A)
    return out


def _solve_gradient(a: Tensor, b: Tensor, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    gb = _solve(a.mT, g)
    return -(gb @ x.mT), gb


_solve = differentiable("solve", np.linalg.solve, _solve_gradient)


def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The X with A @ X = B (with left=False, X @ A = B), for A (..., n, n) and B (..., n, k) or (..., n), a column.

    Batches broadcast. Raises LinAlgError where A is singular, ShapeError where the sizes do not match.
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
    out: Tensor = _solve(A.expand(*batch, *A.shape[-2:]), right.expand(*batch, *right.shape[-2:]))
    return out.squeeze(-1) if is_vector else out


def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` for a triangular A, of which only one triangle is read; with `unitriangular`, as if 1 on its diagonal."""
    check_matrices("solve_triangular", A)
    triangle = A.triu(1 if unitriangular else 0) if upper else A.tril(-1 if unitriangular else 0)
    if unitriangular:
        triangle = triangle + eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return solve(triangle, B, left=left)


# --- Determinants ---------------------------------------------------------------------------------------------------


def _cofactors(a: Any) -> Any:
    """The derivative of the determinant (Jacobi's formula), for singular matrices too: by singular values."""
    u, s, vh = np.linalg.svd(a)
    others = np.stack([np.prod(np.delete(s, i, -1), -1) for i in range(s.shape[-1])], -1) if s.shape[-1] else s
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return ((u * others[..., None, :]) @ vh * sign[..., None, None]).astype(a.dtype)


def _det_gradient(a: Tensor, out: Tensor, g: Tensor) -> Tensor:
    g = g.unsqueeze(-1).unsqueeze(-1)
    if is_grad_enabled():
        return g * out.unsqueeze(-1).unsqueeze(-1) * inv(a).mT
    cofactors: Tensor = on_host("det", _cofactors, a)
    return g * cofactors


_det = differentiable("det", np.linalg.det, _det_gradient)


def det(A: Tensor) -> Tensor:
    """The determinants (...) of square matrices (..., n, n). Of a singular one only the first derivative can be had."""
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
    "slogdet", np.linalg.slogdet, lambda a, sign, size, _, g: g.unsqueeze(-1).unsqueeze(-1) * inv(a).mT, constants=1
)


def slogdet(A: Tensor) -> SLogDet:
    """(sign, logarithm of the absolute value) of the determinants of square matrices; (0, -inf) for a singular one."""
    check_matrices("slogdet", A)
    return SLogDet(*_slogdet(A))


def logdet(A: Tensor) -> Tensor:
    """The logarithm of the determinants of square matrices: NaN for a negative one, -inf for 0."""
    sign, size = slogdet(A)
    return where(sign < 0, log(sign), size)
