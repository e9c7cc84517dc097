"""Norms of vectors and of matrices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import checked
from ..errors import DTypeError, ShapeError
from ..ops import norm as _norm
from ..ops import where
from ..ops.families import accepts_axis
from ..spec import wrap_dim
from .decompositions import svdvals
from .unchecked import inv_ex

if TYPE_CHECKING:
    from ..tensor import Tensor


def _converted(x: Tensor, dtype: Any, op: str) -> Tensor:
    out = x if dtype is None else x.to(dtype)
    if not out.dtype.is_floating_point:
        raise DTypeError(f"linalg.{op}(): expected a floating dtype, got {out.dtype}")
    return out


@checked
@accepts_axis
def vector_norm(x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The `ord`-norm of the elements of x over `dim` (None for all): any number, inf or -inf. DTypeError unless
    floating.
    """
    x = _converted(x, dtype, "vector_norm")
    return _norm(x, ord, tuple(dim) if isinstance(dim, list) else dim, keepdim)


@checked
@accepts_axis
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of the matrices in dims `dim`: "fro" (Frobenius), "nuc" (the sum of the singular values), 2 or -2 (the
    largest or smallest of them), 1 or -1 (the largest or smallest sum of a column's sizes), inf or -inf (of a row's).

    Raises ShapeError unless `dim` has two different dims, ValueError for another `ord`, DTypeError unless floating.
    """
    A = _converted(A, dtype, "matrix_norm")
    if A.ndim < 2 or len(dim) != 2:
        raise ShapeError(f"linalg.matrix_norm(): needs two dims, got {dim} of shape {tuple(A.shape)}")
    rows, columns = (wrap_dim(d, A.ndim, "matrix_norm") for d in dim)
    if rows == columns:
        raise ShapeError(f"linalg.matrix_norm(): needs two different dims, got {dim}")
    if (not A.shape[rows] or not A.shape[columns]) and (isinstance(ord, str) or ord > 0):
        return A.sum((rows, columns), keepdim)
    if ord == "fro":
        return _norm(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        values = svdvals(A.movedim((rows, columns), (-2, -1)))
        out = values.sum(-1) if ord == "nuc" else values.amax(-1) if ord == 2 else values.amin(-1)
    elif ord in (1, -1, math.inf, -math.inf):
        over, rest = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = A.abs().sum(over, True)
        return (sums.amax if ord > 0 else sums.amin)((over, rest), True) if keepdim else _flat(sums, over, rest, ord)
    else:
        raise ValueError(f"linalg.matrix_norm(): ord must be 'fro', 'nuc', inf, -inf, 1, -1, 2 or -2, got {ord!r}")
    if keepdim:
        for d in sorted((rows, columns)):
            out = out.unsqueeze(d)
    return out


def _flat(sums: Tensor, over: int, rest: int, ord: float) -> Tensor:
    return (sums.amax if ord > 0 else sums.amin)((over, rest))


@accepts_axis
def norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """`vector_norm` of all elements, or over one `dim`; `matrix_norm` over two, or of a matrix with `ord` given.

    Raises ShapeError and ValueError where `ord` does not go with the number of dims.
    """
    if dim is None and ord is not None and A.ndim == 2:
        return matrix_norm(A, ord, (0, 1), keepdim, dtype=dtype)
    if isinstance(dim, tuple | list) and len(dim) > 2 and ord is not None:
        raise ShapeError(f"linalg.norm(): with ord, dim must be of 1 or 2 dims, got {tuple(dim)}; see vector_norm")
    if isinstance(dim, tuple | list) and len(dim) == 2 and ord is not None:
        return matrix_norm(A, ord, dim, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise ValueError(f"linalg.norm(): ord {ord!r} is for matrices; got dim {dim} of shape {tuple(A.shape)}")
    if dim is None and ord is not None and A.ndim != 1:
        raise ShapeError(f"linalg.norm(): with ord, expected 1 or 2 dims, or dim given; got shape {tuple(A.shape)}")
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition numbers (...) of matrices A (..., m, n): by default the largest singular value over the smallest;
    else by `p`-norms. Infinite where A is singular, 0 of square matrices without elements.

    Raises what the two raise.
    """
    if not A.numel() and A.ndim > 1 and A.shape[-1] == A.shape[-2]:
        return A.new_zeros(A.shape[:-2])
    if p in (None, 2):
        return matrix_norm(A, 2) / matrix_norm(A, -2)
    if p == -2:
        return matrix_norm(A, -2) / matrix_norm(A, 2)
    inverse, info = inv_ex(A)
    inverse = where((info > 0)[..., None, None], 0.0, inverse)
    return where(info > 0, math.inf, matrix_norm(A, p) * matrix_norm(inverse, p))
