"""Methods of linear algebra that take arguments: functions of norch, which are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..ops.registry import method


def _function(name: str) -> Any:
    return getattr(import_module("norch"), name)


@method("cholesky")
def cholesky(self: Any, upper: bool = False) -> Any:
    """`norch.cholesky` of this tensor: the lower factor, or with `upper` its transpose. Raises as that does."""
    return _function("cholesky")(self, upper)


@method("cholesky_inverse")
def cholesky_inverse(self: Any, upper: bool = False) -> Any:
    """`norch.cholesky_inverse` of this factor, lower or `upper`. Raises as that does."""
    return _function("cholesky_inverse")(self, upper)


@method("cholesky_solve")
def cholesky_solve(self: Any, L: Any, upper: bool = False) -> Any:
    """`norch.cholesky_solve` of this tensor by the factor `L`, lower or `upper`. Raises as that does."""
    return _function("cholesky_solve")(self, L, upper)


@method("lu_solve")
def lu_solve(self: Any, LU_data: Any, LU_pivots: Any) -> Any:
    """`norch.lu_solve` of this tensor by the factors `LU_data` and `LU_pivots`. Raises as that does."""
    return _function("lu_solve")(self, LU_data, LU_pivots)


@method("pinverse")
def pinverse(self: Any, rcond: float = 1e-15) -> Any:
    """`norch.pinverse` of this tensor; `rcond` times the largest singular value is the cutoff. Raises as that does."""
    return _function("pinverse")(self, rcond)


@method("qr")
def qr(self: Any, some: bool = True) -> Any:
    """`norch.qr` of this tensor, reduced where `some`. Raises as that does."""
    return _function("qr")(self, some)


@method("svd")
def svd(self: Any, some: bool = True, compute_uv: bool = True) -> Any:
    """`norch.svd` of this tensor, reduced where `some`; `compute_uv` changes nothing. Raises as that does."""
    return _function("svd")(self, some, compute_uv)


@method("triangular_solve")
def triangular_solve(
    self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """`norch.triangular_solve` of this tensor by A, of which `upper`, `transpose` and `unitriangular` say how it is
    read. Raises as that does.
    """
    return _function("triangular_solve")(self, A, upper, transpose, unitriangular)
