"""Linear algebra under names and with arguments that PyTorch has beside `torch.linalg`. Loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import linalg
from ..autograd import no_grad
from ..dispatch.arguments import check_functions
from ..errors import ShapeError
from ..linalg.host import check_matrices
from ..linalg.lu import check_pivots, unpacked
from ..ops import cat, copysign, hypot, ones_like, where

if TYPE_CHECKING:
    from ..tensor import Tensor


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """`linalg.lu_factor`; with `get_infos` `linalg.lu_factor_ex`, which raises nothing for a singular A. Raises as they
    do.
    """
    return tuple(linalg.lu_factor_ex(A, pivot=pivot) if get_infos else linalg.lu_factor(A, pivot=pivot))


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve` of `b` by the factors `LU_data` and `LU_pivots`. Raises as that does."""
    return linalg.lu_solve(LU_data, LU_pivots, b)


def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """(P, L, U) as `linalg.lu` gives them, from what `lu_factor` gives, `LU_data` and `LU_pivots`.

    unpack_data, unpack_pivots: whether L and U, and P, are wanted; else they are empty. Raises as `lu_solve`.
    """
    check_matrices("lu_unpack", LU_data, square=False)
    check_pivots("lu_unpack", LU_data, LU_pivots)
    p, lower, upper = unpacked(LU_data, LU_pivots)
    nothing = LU_data.new_empty(0)
    return p if unpack_pivots else nothing, *((lower, upper) if unpack_data else (nothing, nothing))


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Any = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    **more: Any,
) -> tuple[Tensor, Tensor]:
    """(eigenvalues, eigenvectors in columns) of symmetric floating matrices A, or of A x = v B x for positive definite
    B: the k largest, by default 1 or as many as X has columns, or with largest=False smallest.

    They come from the whole decomposition, by `linalg.eigh`: n, iK, niter, tol and `more`, which govern PyTorch's
    iteration, change nothing. Raises ShapeError unless the matrices are square, and as `linalg.eigh` and `cholesky` do.
    """
    count = k if k is not None else X.shape[-1] if X is not None else 1
    if B is None:
        values, vectors = linalg.eigh(A)
    else:
        lower = linalg.cholesky(B)
        inner = linalg.solve_triangular(lower, linalg.solve_triangular(lower, A, upper=False).mT, upper=False)
        values, vectors = linalg.eigh((inner + inner.mT) / 2)
        vectors = linalg.solve_triangular(lower.mT, vectors, upper=True)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    return values[..., :count], vectors[..., :count]


class TriangularSolve(NamedTuple):
    """What triangular_solve returns."""

    solution: Tensor
    cloned_coefficient: Tensor


def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve:
    """`linalg.solve_triangular` of `b` by A, or with `transpose` by its transpose; and a copy of A. `upper` says which
    triangle of A is read, `unitriangular` that its diagonal is 1. Raises as that does.
    """
    matrix = A.mT if transpose else A
    is_upper = bool(upper) is not bool(transpose)
    return TriangularSolve(linalg.solve_triangular(matrix, b, upper=is_upper, unitriangular=unitriangular), A.clone())


class GeQRF(NamedTuple):
    """What geqrf returns."""

    a: Tensor
    tau: Tensor


def geqrf(input: Tensor) -> GeQRF:
    """The decomposition Q @ R of `input`, real matrices (..., m, n), as LAPACK writes it: `a` has R in its upper
    triangle and below it the vectors of the reflections whose product is Q, by the numbers `tau`, as
    `linalg.householder_product` takes them.

    Raises ShapeError unless it has two dims and more. It has no derivative.
    """
    check_matrices("geqrf", input, square=False)
    with no_grad():
        out = input.clone()
        count = min(out.shape[-2:])
        tau = out.new_zeros((*out.shape[:-2], count))
        for i in range(count):
            first, below = out[..., i, i].clone(), out[..., i + 1 :, i]
            length = hypot(first, linalg.vector_norm(below, dim=-1))
            is_done = (below == 0).all(-1)  # a column that needs no reflection
            start = where(is_done, first, -copysign(length, first))
            tau[..., i] = where(is_done, 0.0, (start - first) / where(is_done, 1.0, start))
            vector = below / where(is_done, 1.0, first - start).unsqueeze(-1)
            out[..., i:, i + 1 :] = _reflected(out[..., i:, i + 1 :], vector, tau[..., i])
            out[..., i, i] = start
            out[..., i + 1 :, i] = vector
        return GeQRF(out, tau)


def _reflected(rows: Tensor, vector: Tensor, tau: Tensor) -> Tensor:
    """(1 - tau * v @ v.T) @ rows, v being 1 and then `vector`."""
    v = cat([ones_like(tau).unsqueeze(-1), vector], -1).unsqueeze(-1)
    return rows - tau[..., None, None] * (v @ (v.mT @ rows))


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ other, or with left=False other @ Q, of the Q that `geqrf` gives as `input` and `tau`; with `transpose` of
    its transpose.

    Raises ShapeError where shapes do not match.
    """
    check_matrices("ormqr", input, square=False)
    m, k = input.shape[-2], tau.shape[-1]
    if other.shape[-2 if left else -1] != m or k > min(input.shape[-2:]):
        raise ShapeError(
            f"ormqr(): shapes {tuple(input.shape)}, {tuple(tau.shape)} and {tuple(other.shape)} do not match"
        )
    out = (other if left else other.mT).clone()
    transpose = bool(transpose) is bool(left)
    for i in range(k) if transpose else reversed(range(k)):
        out = cat([out[..., :i, :], _reflected(out[..., i:, :], input[..., i + 1 :, i], tau[..., i])], -2)
    return out if left else out.mT


def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The Moore-Penrose inverse, (..., n, m) of input (..., m, n): singular values below rcond times the largest count
    as 0. Raises as `linalg.pinv`, whose cutoff is another by default."""
    return linalg.pinv(input, rtol=rcond)


check_functions(globals())
