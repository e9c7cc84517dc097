"""Matrix decompositions, computed on the host, and their derivatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import AutogradError
from ..ops import eye, where
from .host import Function, check_matrices, is_grad_enabled, on_host
from .solving import inv, solve

if TYPE_CHECKING:
    from ..tensor import Tensor


# In each `backward`: where the backward pass is itself recorded, results are computed anew from the operand, so that
# they are a function of it; otherwise the saved ones do.


class _Cholesky(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        factor: Tensor = on_host("cholesky", np.linalg.cholesky, a)
        ctx.save_for_backward(a, factor)
        return factor

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        # Murray, "Differentiation of the Cholesky decomposition" (2016).
        a, factor = ctx.saved_tensors
        factor = cholesky(a) if is_grad_enabled() else factor
        inner = (factor.mT @ g).tril()
        inner = inner - (inner * eye(g.shape[-1], dtype=g.dtype, device=g.device)) * 0.5
        inner = (inner + inner.mT) * 0.5
        back = inv(factor)
        return back.mT @ inner @ back


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L @ L.mT = A, for symmetric positive definite matrices; with `upper`, L.mT.

    Only the lower triangle of A is read. Raises LinAlgError where A is not positive definite.
    """
    check_matrices("cholesky", A)
    factor: Tensor = _Cholesky.apply(A)
    return factor.mT if upper else factor


class QR(NamedTuple):
    """What qr returns."""

    Q: Tensor
    R: Tensor


class _QR(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        q, r = on_host("qr", lambda x: tuple(np.linalg.qr(x)), a)
        ctx.save_for_backward(a, q, r)
        return q, r

    @staticmethod
    def backward(ctx: Any, gq: Tensor, gr: Tensor) -> Tensor:
        # Walter, Lehmann and Lamour, "On evaluating higher-order derivatives of the QR decomposition" (2010).
        a, q, r = ctx.saved_tensors
        if a.shape[-2] < a.shape[-1]:
            raise AutogradError(f"linalg.qr(): no derivative for more columns than rows, shape {tuple(a.shape)}")
        q, r = _QR.apply(a) if is_grad_enabled() else (q, r)
        m = r @ gr.mT - gq.mT @ q
        lower = m.tril() + m.tril(-1).mT
        return solve(r, (gq + q @ lower).mT).mT


def qr(A: Tensor, mode: str = "reduced") -> QR:
    """(Q, R) with A = Q @ R, Q orthonormal and R upper triangular. mode: "reduced", "complete", or "r" (Q is empty).

    Differentiable in mode "reduced" for matrices with no more columns than rows.
    """
    check_matrices("qr", A, square=False)
    if mode == "reduced":
        return QR(*_QR.apply(A))
    if mode not in ("complete", "r"):
        raise ValueError(f"linalg.qr(): mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if A.requires_grad and is_grad_enabled():
        raise AutogradError(f"linalg.qr(): mode {mode!r} has no derivative; use mode='reduced' or detach()")
    if mode == "r":
        return QR(A.new_empty(0), on_host("qr", lambda x: np.linalg.qr(x, "r"), A))
    return QR(*on_host("qr", lambda x: tuple(np.linalg.qr(x, "complete")), A))


class Eigh(NamedTuple):
    """What eigh returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _off_diagonal(differences: Tensor) -> Tensor:
    """1 / differences, 0 on the diagonal."""
    n = differences.shape[-1]
    on = eye(n, dtype=differences.dtype, device=differences.device) == 1
    return where(on, 0.0, 1 / where(on, 1.0, differences))


class _Eigh(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, uplo: str) -> tuple[Tensor, Tensor]:
        values, vectors = on_host("eigh", lambda x: tuple(np.linalg.eigh(x, uplo)), a)  # type: ignore[call-overload]
        ctx.save_for_backward(a, values, vectors)
        ctx.uplo = uplo
        return values, vectors

    @staticmethod
    def backward(ctx: Any, gl: Tensor, gv: Tensor) -> tuple[Tensor, None]:
        # Giles, "An extended collection of matrix derivative results" (2008).
        a, values, vectors = ctx.saved_tensors
        values, vectors = _Eigh.apply(a, ctx.uplo) if is_grad_enabled() else (values, vectors)
        gaps = _off_diagonal(values.unsqueeze(-2) - values.unsqueeze(-1))
        inner = (vectors.mT @ gv) * gaps
        inner = inner + gl.unsqueeze(-1) * eye(gl.shape[-1], dtype=gl.dtype, device=gl.device)
        out = vectors @ inner @ vectors.mT
        return (out + out.mT) * 0.5, None


def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """(eigenvalues, eigenvectors) of symmetric matrices, the values rising, the vectors in columns.

    Only the lower (UPLO "L") or upper ("U") triangle of A is read. A vector's sign is arbitrary, and its gradient not
    finite where eigenvalues are equal.
    """
    check_matrices("eigh", A)
    if UPLO not in ("L", "U"):
        raise ValueError(f"linalg.eigh(): UPLO must be 'L' or 'U', got {UPLO!r}")
    return Eigh(*_Eigh.apply(A, UPLO))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices, rising."""
    return eigh(A, UPLO)[0]


class SVD(NamedTuple):
    """What svd returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class _SVD(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, s, vh = on_host("svd", lambda x: tuple(np.linalg.svd(x, full_matrices=False)), a)
        ctx.save_for_backward(a, u, s, vh)
        return u, s, vh

    @staticmethod
    def backward(ctx: Any, gu: Tensor, gs: Tensor, gvh: Tensor) -> Tensor:
        # Townsend, "Differentiating the singular value decomposition" (2016).
        a, u, s, vh = ctx.saved_tensors
        u, s, vh = _SVD.apply(a) if is_grad_enabled() else (u, s, vh)
        v, gv = vh.mT, gvh.mT
        squares = s * s
        gaps = _off_diagonal(squares.unsqueeze(-2) - squares.unsqueeze(-1))
        left, right = u.mT @ gu, v.mT @ gv
        inner = (left - left.mT) * gaps * s.unsqueeze(-2) + s.unsqueeze(-1) * ((right - right.mT) * gaps)
        inner = inner + gs.unsqueeze(-1) * eye(s.shape[-1], dtype=s.dtype, device=s.device)
        out = u @ inner @ vh
        if a.shape[-2] > a.shape[-1]:
            part = gu / s.unsqueeze(-2)
            out = out + (part - u @ (u.mT @ part)) @ vh
        elif a.shape[-2] < a.shape[-1]:
            part = (gv / s.unsqueeze(-2)).mT
            out = out + u @ (part - (part @ v) @ vh)
        found: Tensor = out
        return found


def svd(A: Tensor, full_matrices: bool = True) -> SVD:
    """(U, S, Vh) with A = U @ diag(S) @ Vh, the singular values falling.

    Differentiable with `full_matrices=False`, or for square matrices. Signs of vectors are arbitrary, and their
    gradients not finite where singular values are equal.
    """
    check_matrices("svd", A, square=False)
    if not full_matrices or A.shape[-1] == A.shape[-2]:
        return SVD(*_SVD.apply(A))
    if A.requires_grad and is_grad_enabled():
        raise AutogradError("linalg.svd(): no derivative with full_matrices=True; use False, or detach()")
    return SVD(*on_host("svd", lambda x: tuple(np.linalg.svd(x)), A))


def svdvals(A: Tensor) -> Tensor:
    """The singular values, falling."""
    return svd(A, full_matrices=False)[1]
