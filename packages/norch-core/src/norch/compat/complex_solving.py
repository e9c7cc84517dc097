"""Systems of complex equations: inverses, solutions, by factors, of least squares and of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import linalg
from ..autograd import no_grad
from ..linalg.least_squares import LeastSquares, relative_cutoff
from ..linalg.tensors import tensorinv_by, tensorsolve_by
from ..ops import cat, where
from ..tensor import Tensor
from .complex_linalg import check_pairs, one, recorded, singular_values, svd
from .complex_numbers import ComplexPair, joined, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable


def blocks(z: Any) -> Tensor:
    """The real matrix that does to (real; imaginary) what `z` does."""
    re, im = tensors_of(z)
    return cat([cat([re, -im], -1), cat([im, re], -1)], -2)


def _inv(z: ComplexPair) -> ComplexPair:
    n = z.shape[-1]
    found = linalg.inv(blocks(z))
    return joined(found[..., :n, :n], found[..., n:, :n])


def _solve(A: Any, B: Any, *, left: bool = True) -> ComplexPair:
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    if not left and not vector:
        return _solve(A.mT, B.mT).mT  # type: ignore[no-any-return]
    n = A.shape[-1]
    re, im = [part.unsqueeze(-1) if vector else part for part in tensors_of(B)]
    found = linalg.solve(blocks(A), cat([re, im], -2))
    found = found.squeeze(-1) if vector else found
    dim = -1 if vector else -2
    return joined(found.narrow(dim, 0, n), found.narrow(dim, n, n))


def _solve_triangular(A: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    triangle = A.triu() if upper else A.tril()
    if unitriangular:
        ones = one(A.shape[-1], A.real)
        triangle = where(ones == 1, ones, triangle) if isinstance(A, Tensor) else _with_diagonal(triangle, ones)
    inverse = triangle.inverse()
    return inverse @ B if left else B @ inverse


def _with_diagonal(z: ComplexPair, ones: Tensor) -> ComplexPair:
    return joined(where(ones == 1, ones, z.real), where(ones == 1, 0.0, z.imag))


def _cholesky_solve(B: Any, L: Any, upper: bool = False) -> Any:
    lower = L.mH if upper else L
    return _solve_triangular(lower.mH, _solve_triangular(lower, B, upper=False), upper=True)


def _cholesky_inverse(L: ComplexPair, upper: bool = False) -> Any:
    inverse = L.triu().inverse().mH if upper else L.tril().inverse()
    return inverse.mH @ inverse


# --- Pseudo-inverses --------------------------------------------------------------------------------------------------


def _of_lower(A: ComplexPair) -> ComplexPair:
    """The Hermitian matrices that the lower triangles of A stand for."""
    under = A.tril(-1)
    return under + under.mH + A.real * one(A.shape[-1], A.real)  # type: ignore[no-any-return]


def _pinv_gradient(a: Any, p: Any, g: Any) -> Any:
    """Golub and Pereyra, "The differentiation of pseudo-inverses" (1973)."""
    k = g.mH @ p
    along = k @ p.mH
    return along - (p @ k).mH - (a @ p) @ along + p.mH @ p @ (g.mH - k @ a)


def _pinv(A: ComplexPair, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None) -> Any:
    check_pairs("pinv", A, square=False)
    rtol = rcond if rtol is None else rtol

    def compute(a: ComplexPair) -> Any:
        with no_grad():
            u, s, vh = svd(a, False)
            inverse = where(s > relative_cutoff(s, a.shape, atol, rtol), 1 / s, 0.0)
            return (vh.mH * inverse.unsqueeze(-2)) @ u.mH

    return recorded("pinv", compute, _pinv_gradient)(_of_lower(A) if hermitian else A)


def _matrix_rank(
    A: ComplexPair, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    if tol is not None:
        atol, rtol = tol, 0.0
    values = singular_values(_of_lower(A.detach()) if hermitian else A.detach())
    return (values > relative_cutoff(values, A.shape, atol, rtol)).sum(-1)


def _lstsq(A: Any, B: Any, rcond: Any = None, *, driver: str | None = None) -> Any:
    """By the pseudo-inverse, which is that of every driver where the columns are independent."""
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and tuple(B.shape) == tuple(A.shape[:-1]))
    given = A if isinstance(A, ComplexPair) else joined(A, A * 0)
    right = B.unsqueeze(-1) if vector else B
    solution, rank = _pinv(given, rtol=rcond) @ right, _matrix_rank(given)
    full = A.shape[-2] > A.shape[-1] and bool((rank == A.shape[-1]).all())
    residuals = (given @ solution - right).abs().square().sum(-2) if full else given.pair.new_empty(0)
    values = singular_values(given.detach())
    return LeastSquares(solution.squeeze(-1) if vector else solution, residuals, rank, values)


# --- Others -----------------------------------------------------------------------------------------------------------


def _matrix_exp(A: ComplexPair) -> ComplexPair:
    n = A.shape[-1]
    found = linalg.matrix_exp(blocks(A))
    return joined(found[..., :n, :n], found[..., n:, :n])


def _tensorinv(A: ComplexPair, ind: int = 2) -> Any:
    return tensorinv_by(_inv, A, ind)


def _tensorsolve(A: Any, B: Any, dims: Any = None) -> Any:
    return tensorsolve_by(_solve, A, B, dims)


def _vander(x: ComplexPair, *, N: int | None = None) -> Any:
    x = x if x.ndim else x.unsqueeze(0)
    count = x.shape[-1] if N is None else N
    if count < 0:
        raise ValueError(f"linalg.vander(): N must not be negative, got {N}")
    if not count:
        return x.unsqueeze(-1)[..., :0]
    ones = (x * 0 + 1).unsqueeze(-1)
    return cat([ones, x.unsqueeze(-1).expand(*x.shape, count - 1)], -1).cumprod(-1)


SOLVING: dict[str, Callable[..., Any]] = {
    "inv": _inv, "inverse": _inv, "solve": _solve, "solve_triangular": _solve_triangular,
    "cholesky_solve": _cholesky_solve, "cholesky_inverse": _cholesky_inverse, "pinv": _pinv,
    "pinverse": lambda A, rcond=1e-15: _pinv(A, rtol=rcond), "matrix_rank": _matrix_rank, "lstsq": _lstsq,
    "matrix_exp": _matrix_exp, "vander": _vander, "tensorinv": _tensorinv, "tensorsolve": _tensorsolve,
}  # fmt: skip
