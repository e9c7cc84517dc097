"""The largest singular values, from random directions: Halko, Martinsson and Tropp (2011), algorithm 4.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dispatch.arguments import check_functions
from ..errors import ShapeError
from ..ops import randn
from .decompositions import SVD, qr, svd

if TYPE_CHECKING:
    from ..tensor import Tensor

_MOST = 1000  # products, long after which nothing changes


def svd_lowrank(A: Tensor, q: int = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) with about A = U @ diag(S) @ V.mT: q singular values of A (..., m, n), or of A - M.

    niter: how often the random directions are multiplied by A and its transpose. Raises ShapeError unless q is at most
    m and n, ValueError for another niter than 0 to 1000.
    """
    a = A if M is None else A - M
    if a.ndim < 2 or not 0 <= q <= min(a.shape[-2:]):
        raise ShapeError(f"svd_lowrank(): q {q} does not fit shape {tuple(a.shape)}")
    if not 0 <= niter <= _MOST:
        raise ValueError(f"svd_lowrank(): niter must be from 0 to {_MOST}, got {niter}")
    directions = randn(*a.shape[:-2], a.shape[-1], q, dtype=a.dtype, device=a.device)
    basis = qr(a @ directions).Q
    for _ in range(niter):
        basis = qr(a @ qr(a.mT @ basis).Q).Q
    found: SVD = svd(basis.mT @ a, full_matrices=False)
    return basis @ found.U, found.S, found.Vh.mT


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """The `q` (by default 6) largest principal components of rows: `svd_lowrank` of A, its columns' means taken off if
    `center`. `niter` as there.
    """
    count = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A, count, niter, A.mean(-2, keepdim=True) if center else None)


check_functions(globals())
