"""The routines that linear algebra rests on: composites, which a backend may have, and which NumPy's LAPACK computes
on the host otherwise. None is recorded.

Matrices are (*batch, rows, columns) of float32 or float64. `info` (int32, of the batch's shape) is 0 where a matrix
has an answer; it is None from the host, whose failures are raised at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd import no_grad
from ..dtype import int32, int64
from ..ops.families import composite
from ..spec import Spec
from . import lapack
from .host import check_info, on_host

if TYPE_CHECKING:
    from ..tensor import Tensor


def _info(a: Spec) -> Spec:
    return a.like(a.shape[:-2], dtype=int32)


@composite(lambda a: (a.like(), _info(a)))
def linalg_inv(a: Tensor) -> Any:
    """(inverse, info)."""
    return on_host("inv", np.linalg.inv, a), None


def inv(a: Tensor) -> Tensor:
    out, info = linalg_inv(a)
    return check_info("inv", info, a, out)  # type: ignore[no-any-return]


@composite(lambda a, b: (b.like(), _info(a)))
def linalg_solve(a: Tensor, b: Tensor) -> Any:
    """(X with a @ X = b, info), for `a` and `b` of one batch."""
    return on_host("solve", np.linalg.solve, a, b), None


def solve(a: Tensor, b: Tensor) -> Tensor:
    out, info = linalg_solve(a, b)
    return check_info("solve", info, a, out)  # type: ignore[no-any-return]


def _solve_triangular(upper: bool, unitriangular: bool) -> Any:
    def routine(a: Any, b: Any) -> Any:
        triangle = np.triu(a, int(unitriangular)) if upper else np.tril(a, -int(unitriangular))
        return np.linalg.solve(triangle + np.eye(a.shape[-1], dtype=a.dtype) if unitriangular else triangle, b)

    return routine


@composite(lambda a, b, upper, unitriangular: b.like())
def linalg_solve_triangular(a: Tensor, b: Tensor, upper: bool, unitriangular: bool) -> Any:
    """X, of `linalg_solve` for one triangle of `a`. Where that is singular a backend gives what division by 0 does."""
    return on_host("solve_triangular", _solve_triangular(upper, unitriangular), a, b)


@composite(lambda a: a.like(a.shape[:-2]))
def linalg_det(a: Tensor) -> Any:
    """The determinants."""
    return on_host("det", np.linalg.det, a)


@composite(lambda a: (a.like(a.shape[:-2]), a.like(a.shape[:-2])))
def linalg_slogdet(a: Tensor) -> Any:
    """(sign, logarithm of the size) of the determinants; (0, -inf) of a singular matrix."""
    return on_host("slogdet", np.linalg.slogdet, a)


def _lu(given: Any) -> Any:
    """LAPACK's getrf, column by column, of all matrices together: NumPy has none."""
    a = given.reshape(-1, *given.shape[-2:]).copy()
    every, k = np.arange(len(a)), min(a.shape[-2:])
    pivots, info = np.empty((len(a), k), np.int32), np.zeros(len(a), np.int32)
    for j in range(k):
        chosen = np.abs(a[:, j:, j]).argmax(1) + j
        pivots[:, j] = chosen + 1
        a[every, j], a[every, chosen] = a[every, chosen], a[every, j]
        pivot = a[:, j, j]
        info[(pivot == 0) & (info == 0)] = j + 1
        a[:, j + 1 :, j] /= np.where(pivot == 0, 1, pivot)[:, None]
        a[:, j + 1 :, j + 1 :] -= a[:, j + 1 :, j, None] * a[:, None, j, j + 1 :]
    batch = given.shape[:-2]
    return a.reshape(given.shape), pivots.reshape(*batch, k), info.reshape(batch)


@composite(lambda a: (a.like(), a.like((*a.shape[:-2], min(a.shape[-2:])), dtype=int32), _info(a)))
def linalg_lu_factor(a: Tensor) -> Any:
    """(LU, pivots, info) as LAPACK's getrf gives them; pivots count from 1."""
    return on_host("lu_factor", _lu, a)


def _permutation(pivots: Any, rows: int) -> Any:
    flat = pivots.reshape(math.prod(pivots.shape[:-1]), pivots.shape[-1])
    order, every = np.tile(np.arange(rows), (len(flat), 1)), np.arange(len(flat))
    for j in range(flat.shape[-1]):
        other = flat[:, j] - 1
        order[every, j], order[every, other] = order[every, other], order[every, j]
    return order.reshape(*pivots.shape[:-1], rows)


@composite(lambda pivots, rows: pivots.like((*pivots.shape[:-1], rows), dtype=int64))
def linalg_permutation(pivots: Tensor, rows: int) -> Any:
    """Which row each became by the exchanges that `pivots` (int32) says: A[order] = L @ U."""
    return on_host("lu", lambda x: _permutation(x, rows), pivots)


def permutation(pivots: Tensor, rows: int) -> Tensor:
    with no_grad():
        return linalg_permutation(pivots.int(), rows)  # type: ignore[no-any-return]


@composite(lambda a: (a.like(), _info(a)))
def linalg_cholesky(a: Tensor) -> Any:
    """(lower triangular L with L @ L.mT = a, info), from the lower triangle of `a`."""
    return on_host("cholesky", np.linalg.cholesky, a), None


def cholesky(a: Tensor) -> Tensor:
    out, info = linalg_cholesky(a)
    return check_info("cholesky", info, a, out)  # type: ignore[no-any-return]


def _infer_qr(a: Spec, mode: str) -> tuple[Spec, ...]:
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    return a.like((*batch, m, k)), a.like((*batch, k, n))


@composite(_infer_qr)
def linalg_qr(a: Tensor, mode: str) -> Any:
    """(Q, R), of mode "reduced" or "complete"."""
    chosen: Any = mode
    return on_host("qr", lambda x: tuple(np.linalg.qr(x, chosen)), a)


@composite(lambda a: a.like((*a.shape[:-2], min(a.shape[-2:]), a.shape[-1])))
def linalg_qr_r(a: Tensor) -> Any:
    """R alone."""
    return on_host("qr", lambda x: np.linalg.qr(x, "r"), a)


@composite(lambda a, upper: (a.like(a.shape[:-1]), a.like(), _info(a)))
def linalg_eigh(a: Tensor, upper: bool) -> Any:
    """(eigenvalues, ascending; eigenvectors, in columns; info), from one triangle of `a`."""
    return *on_host("eigh", lapack.eigh[upper], a), None


def eigh(a: Tensor, upper: bool) -> tuple[Tensor, Tensor]:
    values, vectors, info = linalg_eigh(a, upper)
    return check_info("eigh", info, a, (values, vectors))  # type: ignore[no-any-return]


@composite(lambda a, upper: (a.like(a.shape[:-1]), _info(a)))
def linalg_eigvalsh(a: Tensor, upper: bool) -> Any:
    """(eigenvalues, info)."""
    return on_host("eigvalsh", lapack.eigvalsh[upper], a), None


def eigvalsh(a: Tensor, upper: bool) -> Tensor:
    values, info = linalg_eigvalsh(a, upper)
    return check_info("eigvalsh", info, a, values)  # type: ignore[no-any-return]


def _infer_svd(a: Spec, full_matrices: bool) -> tuple[Spec, ...]:
    *batch, m, n = a.shape
    k = min(m, n)
    u, vh = (m, n) if full_matrices else (k, k)
    return a.like((*batch, m, u)), a.like((*batch, k)), a.like((*batch, vh, n)), _info(a)


@composite(_infer_svd)
def linalg_svd(a: Tensor, full_matrices: bool) -> Any:
    """(U, S, Vh, info), the singular values descending."""
    return *on_host("svd", lapack.svd[full_matrices], a), None


def svd(a: Tensor, full_matrices: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    u, s, vh, info = linalg_svd(a, full_matrices)
    return check_info("svd", info, a, (u, s, vh))  # type: ignore[no-any-return]


@composite(lambda a: (a.like((*a.shape[:-2], min(a.shape[-2:]))), _info(a)))
def linalg_svdvals(a: Tensor) -> Any:
    """(singular values, info)."""
    return on_host("svdvals", lapack.svdvals, a), None


def svdvals(a: Tensor) -> Tensor:
    s, info = linalg_svdvals(a)
    return check_info("svdvals", info, a, s)  # type: ignore[no-any-return]
