"""Routines that raise nothing for a matrix without an answer: they say in `info` which those are.

Results come with it, int32 of the batch's shape: 0 where a matrix has an answer; elsewhere which pivot is 0 first, or
which leading minor not positive, from 1 (where NumPy computes, 1), and the answer is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd import no_grad
from ..dtype import int32
from ..ops import eye, where, zeros
from . import routines
from .decompositions import cholesky
from .host import LinAlgError, check_info, check_matrices
from .lu import _factors
from .solving import inv, is_batch_of_vectors, solve

if TYPE_CHECKING:
    from ..tensor import Tensor


class CholeskyEx(NamedTuple):
    """What cholesky_ex returns."""

    L: Tensor
    info: Tensor


class InvEx(NamedTuple):
    """What inv_ex returns."""

    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """What solve_ex returns."""

    result: Tensor
    info: Tensor


class LUFactorEx(NamedTuple):
    """What lu_factor_ex returns."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


def _each(
    A: Tensor, check_errors: bool, routine: Callable[[Tensor], Tensor], unchecked: Callable[[Tensor], Any]
) -> tuple[Tensor, Tensor]:
    """What `routine` gives of A, NaN for a matrix that has no answer; and `info`, the second result of `unchecked`."""
    info: Any = zeros(A.shape[:-2], dtype=int32, device=A.device)
    try:
        return routine(A), info
    except LinAlgError:
        if check_errors:
            raise
    try:
        with no_grad():
            info = unchecked(A.detach())[1]
    except LinAlgError:  # of NumPy, which does not say which it is
        info.copy_(_tried(A.detach(), routine))
    good = (info == 0).unsqueeze(-1).unsqueeze(-1)
    identity = eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return where(good, routine(where(good, A, identity)), float("nan")), info


def _tried(A: Tensor, routine: Callable[[Tensor], Any]) -> Tensor:
    """Which matrices `routine` fails with, one by one."""
    failed = []
    for matrix in A.reshape(-1, *A.shape[-2:]):
        try:
            routine(matrix)
            failed.append(0)
        except LinAlgError:
            failed.append(1)
    return A.new_tensor(failed).reshape(A.shape[:-2])


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """`cholesky`, which raises nothing where A is not positive definite."""
    check_matrices("cholesky_ex", A)
    return CholeskyEx(*_each(A, check_errors, lambda a: cholesky(a, upper=upper), routines.linalg_cholesky))


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """`inv`, which raises nothing where A is singular."""
    check_matrices("inv_ex", A)
    return InvEx(*_each(A, check_errors, lambda a: inv(a), routines.linalg_inv))


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """`solve`, which raises nothing where A is singular."""
    check_matrices("solve_ex", A)
    is_vector = B.ndim == 1 or is_batch_of_vectors(A, B)
    try:
        return SolveEx(solve(A, B, left=left), zeros(A.shape[:-2], dtype=int32, device=A.device))
    except LinAlgError:
        if check_errors:
            raise
    inverse, info = inv_ex(A)
    if is_vector:
        return SolveEx((inverse @ B.unsqueeze(-1)).squeeze(-1), info)
    return SolveEx(inverse @ B if left else B @ inverse, info)


def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """`lu_factor`, which raises nothing where U is singular, and gives it."""
    factors, pivots, info = _factors("lu_factor_ex", A, pivot)
    if check_errors:
        check_info("lu_factor", info, A, None)
    return LUFactorEx(factors, pivots, zeros(A.shape[:-2], dtype=int32, device=A.device) if info is None else info)
