"""Matrix decompositions and their derivatives."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ..autograd import is_grad_enabled, no_grad
from ..errors import AutogradError
from ..ops import cat, eye, isfinite, where
from . import routines
from .host import check_matrices, differentiable
from .solving import solve_triangular

if TYPE_CHECKING:
    from ..tensor import Tensor


def _cholesky_gradient(a: Tensor, factor: Tensor, g: Tensor) -> Tensor:
    """Murray, "Differentiation of the Cholesky decomposition" (2016)."""
    inner = (factor.mT @ g).tril()
    inner = inner - (inner * eye(g.shape[-1], dtype=g.dtype, device=g.device)) * 0.5
    inner = solve_triangular(factor.mT, (inner + inner.mT) * 0.5, upper=True)
    return solve_triangular(factor, inner, upper=False, left=False)


_cholesky = differentiable("cholesky", routines.cholesky, _cholesky_gradient)


def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangular L with L @ L.mT = A, for symmetric positive definite matrices (..., n, n); `upper`: L.mT.

    Only the lower triangle of A is read. Raises LinAlgError where A is not positive definite.
    """
    check_matrices("cholesky", A)
    factor: Tensor = _cholesky(A)
    return factor.mT if upper else factor


class QR(NamedTuple):
    """What qr returns."""

    Q: Tensor
    R: Tensor


def _qr_gradient(a: Tensor, q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    """Walter, Lehmann and Lamour, "On evaluating higher-order derivatives of the QR decomposition" (2010)."""
    rows, columns = a.shape[-2:]
    if rows < columns:  # those of the first columns say what Q is, and R of the others is Q.mT @ them
        others, g_others = a[..., rows:], gr[..., rows:]
        first = _qr_gradient(a[..., :rows], q, r[..., :rows], gq + others @ g_others.mT, gr[..., :rows])
        return cat([first, q @ g_others], -1)
    m = r @ gr.mT - gq.mT @ q
    lower = m.tril() + m.tril(-1).mT
    return solve_triangular(r.mT, gq + q @ lower, upper=False, left=False)


_qr = differentiable("qr", partial(routines.linalg_qr, mode="reduced"), _qr_gradient)


def qr(A: Tensor, mode: str = "reduced") -> QR:
    """(Q, R) with A = Q @ R, Q orthonormal and R upper triangular. mode: "reduced", "complete", or "r" (Q is empty).

    Of A (..., m, n), with k = min(m, n), Q is (..., m, k) and R (..., k, n); in mode "complete" (..., m, m) and
    (..., m, n). Differentiable in mode "reduced", and in "complete" for m <= n, where the first k columns are
    independent; else raises AutogradError. ValueError for another mode.
    """
    check_matrices("qr", A, square=False)
    if mode == "reduced" or (mode == "complete" and A.shape[-2] <= A.shape[-1]):
        return QR(*_qr(A))
    if mode not in ("complete", "r"):
        raise ValueError(f"linalg.qr(): mode must be 'reduced', 'complete' or 'r', got {mode!r}")
    if A.requires_grad and is_grad_enabled():
        raise AutogradError(f"linalg.qr(): mode {mode!r} has no derivative; use mode='reduced' or detach()")
    with no_grad():
        return QR(A.new_empty(0), routines.linalg_qr_r(A)) if mode == "r" else QR(*routines.linalg_qr(A, mode))


class Eigh(NamedTuple):
    """What eigh returns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _off_diagonal(differences: Tensor) -> Tensor:
    """1 / differences, 0 on the diagonal."""
    n = differences.shape[-1]
    on = eye(n, dtype=differences.dtype, device=differences.device) == 1
    return where(on, 0.0, 1 / where(on, 1.0, differences))


def _or_zeros(g: Tensor | None, like: Tensor) -> Tensor:
    return like.new_zeros(like.shape) if g is None else g


def _eigh_gradient(a: Tensor, values: Tensor, vectors: Tensor, gl: Tensor | None, gv: Tensor | None) -> Tensor:
    """Giles, "An extended collection of matrix derivative results for forward and reverse mode" (2008)."""
    if gl is not None and gv is None:
        return (vectors * gl.unsqueeze(-2)) @ vectors.mT
    gl, gv = _or_zeros(gl, values), _or_zeros(gv, vectors)
    gaps = _off_diagonal(values.unsqueeze(-2) - values.unsqueeze(-1))
    inner = _times(vectors.mT @ gv, gaps)
    inner = inner + gl.unsqueeze(-1) * eye(gl.shape[-1], dtype=gl.dtype, device=gl.device)
    out = vectors @ inner @ vectors.mT
    return (out + out.mT) * 0.5


_EIGH = {
    u: differentiable("eigh", partial(routines.eigh, upper=u == "U"), _eigh_gradient, takes_none=True)
    for u in ("L", "U")
}


def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """(eigenvalues, eigenvectors) of symmetric matrices, the values ascending, the vectors in columns.

    Only the lower (UPLO "L") or upper ("U") triangle of A is read, else ValueError. A vector's sign is arbitrary, and
    its gradient not finite where eigenvalues are equal.
    """
    check_matrices("eigh", A)
    UPLO = UPLO.upper()
    if UPLO not in _EIGH:
        raise ValueError(f"linalg.eigh(): UPLO must be 'L' or 'U', got {UPLO!r}")
    return Eigh(*_EIGH[UPLO](A))


def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues (..., n) of symmetric matrices (..., n, n), ascending, as `eigh` gives them, of whose triangle
    `UPLO` ("L" or "U") is read. Raises as that does.
    """
    check_matrices("eigvalsh", A)
    UPLO = UPLO.upper()
    if UPLO not in _EIGH or (A.requires_grad and is_grad_enabled()):
        return eigh(A, UPLO)[0]
    with no_grad():
        return routines.eigvalsh(A, UPLO == "U")


class SVD(NamedTuple):
    """What svd returns."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def _times(numerator: Tensor, factor: Tensor) -> Tensor:
    """Their product, but 0 where it would be 0 times 1 / 0: values alone have a gradient anywhere.

    Linear in the numerator where the factor is finite, at a numerator of 0 too: there `func.jvp` differentiates it.
    """
    return numerator * where((numerator == 0) & ~isfinite(factor), 0.0, factor)


def _svd_gradient(
    a: Tensor, u: Tensor, s: Tensor, vh: Tensor, gu: Tensor | None, gs: Tensor | None, gvh: Tensor | None
) -> Tensor:
    """Townsend, "Differentiating the singular value decomposition" (2016)."""
    if gs is not None and gu is None and gvh is None:
        return (u * gs.unsqueeze(-2)) @ vh
    gu, gs, gvh = _or_zeros(gu, u), _or_zeros(gs, s), _or_zeros(gvh, vh)
    v, gv = vh.mT, gvh.mT
    squares = s * s
    gaps = _off_diagonal(squares.unsqueeze(-2) - squares.unsqueeze(-1))
    left, right = u.mT @ gu, v.mT @ gv
    inner = _times(left - left.mT, gaps) * s.unsqueeze(-2) + s.unsqueeze(-1) * _times(right - right.mT, gaps)
    inner = inner + gs.unsqueeze(-1) * eye(s.shape[-1], dtype=s.dtype, device=s.device)
    out = u @ inner @ vh
    if a.shape[-2] > a.shape[-1]:
        part = _times(gu, 1 / s.unsqueeze(-2))
        out = out + (part - u @ (u.mT @ part)) @ vh
    elif a.shape[-2] < a.shape[-1]:
        part = _times(gv, 1 / s.unsqueeze(-2)).mT
        out = out + u @ (part - (part @ v) @ vh)
    return out


def _full_svd_gradient(
    a: Tensor, u: Tensor, s: Tensor, vh: Tensor, gu: Tensor | None, gs: Tensor | None, gvh: Tensor | None
) -> Tensor:
    """Without what belongs to the vectors beyond the singular values, which may be any of the other directions."""
    k = s.shape[-1]
    gu, gvh = None if gu is None else gu[..., :k], None if gvh is None else gvh[..., :k, :]
    return _svd_gradient(a, u[..., :k], s, vh[..., :k, :], gu, gs, gvh)


_svd = differentiable("svd", routines.svd, _svd_gradient, takes_none=True)
_full_svd = differentiable("svd", partial(routines.svd, full_matrices=True), _full_svd_gradient, takes_none=True)


def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> SVD:
    """(U, S, Vh) with A = U @ diag(S) @ Vh, the singular values descending.

    Of A (..., m, n) U is (..., m, m) and Vh (..., n, n), or with full_matrices=False (..., m, k) and (..., k, n) for
    k = min(m, n). Signs of vectors are arbitrary, and their gradients not finite where singular values are equal. The
    vectors beyond the first k are arbitrary too, and what is made of them has no gradient. driver: which of cuSOLVER's
    functions PyTorch takes, ignored. Raises ShapeError below two dims, DTypeError unless floating.
    """
    check_matrices("svd", A, square=False)
    return SVD(*(_full_svd if full_matrices and A.shape[-1] != A.shape[-2] else _svd)(A))


def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values (..., min(m, n)) of matrices (..., m, n), descending. Raises as `svd` does. driver: ignored
    as it is there.
    """
    check_matrices("svdvals", A, square=False)
    if A.requires_grad and is_grad_enabled():
        return svd(A, full_matrices=False)[1]
    with no_grad():
        return routines.svdvals(A)
