"""Routines that raise nothing for a matrix without an answer: they say in `info` which those are.

Results come with it, int32 of the batch's shape: 0 where a matrix has an answer; elsewhere not, and the answer is NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..dtype import int32
from ..ops import stack, zeros
from .decompositions import cholesky
from .host import LinAlgError, check_info, check_matrices
from .lu import _factors
from .solving import inv, solve

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


def _each(A: Tensor, check_errors: bool, routine: Callable[[Tensor], Any]) -> tuple[Any, Tensor]:
    """What `routine` gives of A; where a matrix has no answer, a list of what it gives of each, or None. And `info`."""
    info = zeros(A.shape[:-2], dtype=int32, device=A.device)
    try:
        return routine(A), info
    except LinAlgError:
        if check_errors:
            raise
    flat = A.reshape(-1, *A.shape[-2:])
    found, failed = [], []
    for i in range(len(flat)):
        try:
            found.append(routine(flat[i]))
        except LinAlgError:
            failed.append(i)
            found.append(None)
    return found, info.reshape(-1).index_fill(0, info.new_tensor(failed).long(), 1).reshape(info.shape)


def _gathered(found: list[Tensor | None], A: Tensor) -> Tensor:
    """The answers of a batch's matrices as one tensor of A's shape, NaN where there is none."""
    nothing = A.detach().new_full(A.shape[-2:], float("nan"))
    return stack([nothing if x is None else x for x in found]).reshape(A.shape)


def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """`cholesky`, which raises nothing where A is not positive definite."""
    check_matrices("cholesky_ex", A)
    found, info = _each(A, check_errors, lambda a: cholesky(a, upper=upper))
    return CholeskyEx(_gathered(found, A) if isinstance(found, list) else found, info)


def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """`inv`, which raises nothing where A is singular."""
    check_matrices("inv_ex", A)
    found, info = _each(A, check_errors, lambda a: inv(a))
    return InvEx(_gathered(found, A) if isinstance(found, list) else found, info)


def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """`solve`, which raises nothing where A is singular."""
    check_matrices("solve_ex", A)
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
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
