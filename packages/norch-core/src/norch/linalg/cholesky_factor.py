"""Systems of equations and inverses by a Cholesky factor: `norch.cholesky_solve`, `norch.cholesky_inverse`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dispatch.arguments import check_functions
from ..ops import eye
from .solving import solve_triangular

if TYPE_CHECKING:
    from ..tensor import Tensor


def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """The X with A @ X = B, where `L` is the Cholesky factor of A: lower, or with `upper` an upper triangle.

    B is (..., n, k). Raises as `solve_triangular`.
    """
    lower = L.mT if upper else L
    return solve_triangular(lower.mT, solve_triangular(lower, B, upper=False), upper=True)


def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, where `L` is the Cholesky factor of A: lower, or with `upper` an upper triangle. Raises as
    `solve_triangular`.
    """
    identity = eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return cholesky_solve(identity.expand(L.shape), L, upper)


check_functions(globals())
