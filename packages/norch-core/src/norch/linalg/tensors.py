"""Systems of equations whose unknowns are tensors; and matrices made of few numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..errors import ShapeError
from ..ops import arange, eye
from .host import check_matrices
from .solving import inv, solve

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tensor import Tensor


def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of the map that `tensordot(A, x, x.ndim)` is, of x's dims to the first `ind` dims of A.

    Raises ShapeError unless both have as many elements and `ind` is from 1 to A's dims, and as `inv`.
    """
    found: Tensor = tensorinv_by(inv, A, ind)
    return found


def tensorinv_by(invert: Callable[[Any], Any], A: Any, ind: int) -> Any:
    """`tensorinv`, given what inverts matrices."""
    if not 0 < ind <= A.ndim:
        raise ShapeError(f"linalg.tensorinv(): ind must be from 1 to {A.ndim}, the dims of A, got {ind}")
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ShapeError(f"linalg.tensorinv(): {tuple(rows)} and {tuple(columns)} differ in elements")
    return invert(A.reshape(math.prod(rows), math.prod(columns))).reshape(*columns, *rows)


def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """The X with `tensordot(A, X, X.ndim)` = B. dims: those of A to be moved behind its others, first.

    Raises ShapeError where the rest of A's shape has another number of elements than B, and as `solve`.
    """
    found: Tensor = tensorsolve_by(solve, A, B, dims)
    return found


def tensorsolve_by(solve_system: Callable[[Any, Any], Any], A: Any, B: Any, dims: Any) -> Any:
    """`tensorsolve`, given what solves systems."""
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    shape = A.shape[B.ndim :]
    if math.prod(shape) != B.numel() or A.numel() != B.numel() ** 2:
        raise ShapeError(f"linalg.tensorsolve(): shapes {tuple(A.shape)} and {tuple(B.shape)} do not match")
    return solve_system(A.reshape(B.numel(), B.numel()), B.flatten()).reshape(shape)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element of vectors x (..., n), or of a number: (..., n, N). N: n by default.

    Raises ValueError for a negative N.
    """
    x = x if x.ndim else x.unsqueeze(0)
    count = x.shape[-1] if N is None else N
    if count < 0:
        raise ValueError(f"linalg.vander(): N must not be negative, got {N}")
    values = x if x.dtype.is_floating_point else x.long()
    return values.unsqueeze(-1) ** arange(count, device=x.device).to(values.dtype)


def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of the product of the reflections 1 - tau[i] * v @ v.T, where v is 0 above A's column i, 1 on
    the diagonal, and below it that column. A is (..., m, n), tau (..., k).

    Raises ShapeError unless m >= n >= k, DTypeError unless floating.
    """
    check_matrices("householder_product", A, square=False)
    m, n = A.shape[-2:]
    if not m >= n >= tau.shape[-1] or A.shape[:-2] != tau.shape[:-1]:
        raise ShapeError(f"linalg.householder_product(): shapes {tuple(A.shape)} and {tuple(tau.shape)} do not match")
    vectors = A.tril(-1) + eye(m, n, dtype=A.dtype, device=A.device)
    out = eye(m, n, dtype=A.dtype, device=A.device).expand(A.shape)
    for i in reversed(range(tau.shape[-1])):
        v = vectors[..., i : i + 1]
        out = out - tau[..., i, None, None] * v @ (v.mT @ out)
    return out
