"""Linear algebra under names and with arguments that PyTorch has beside `torch.linalg`. Loaded when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .. import linalg
from ..dispatch.arguments import check_functions
from ..linalg.host import check_matrices
from ..linalg.lu import check_pivots, unpacked

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


check_functions(globals())
