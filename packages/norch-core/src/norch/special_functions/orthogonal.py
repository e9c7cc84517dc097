"""Orthogonal polynomials under their names in `norch.special`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import polynomials as of

if TYPE_CHECKING:
    from ..tensor import Tensor


def chebyshev_polynomial_t(input: Any, n: Any) -> Tensor:
    """The Chebyshev polynomial of the first kind of degree `n` at input.

    `n`, a number or a tensor of them, is cut to an integer; of a negative one it is 0. The two broadcast. By the
    recurrence 22.7 of Abramowitz and Stegun (1964), in float64, in as many steps as the largest degree, which a
    tensor of degrees is read for. Differentiable by input. Raises ValueError for a degree above 10,000, DTypeError
    where neither is a tensor.
    """
    return of.polynomial("chebyshev_polynomial_t", of.CHEBYSHEV_T, input, n)


def chebyshev_polynomial_u(input: Any, n: Any) -> Tensor:
    """The Chebyshev polynomial of the second kind of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("chebyshev_polynomial_u", of.CHEBYSHEV_U, input, n)


def chebyshev_polynomial_v(input: Any, n: Any) -> Tensor:
    """The Chebyshev polynomial of the third kind of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("chebyshev_polynomial_v", of.CHEBYSHEV_V, input, n)


def chebyshev_polynomial_w(input: Any, n: Any) -> Tensor:
    """The Chebyshev polynomial of the fourth kind of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("chebyshev_polynomial_w", of.CHEBYSHEV_W, input, n)


def hermite_polynomial_h(input: Any, n: Any) -> Tensor:
    """The physicists' Hermite polynomial of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("hermite_polynomial_h", of.HERMITE_H, input, n)


def hermite_polynomial_he(input: Any, n: Any) -> Tensor:
    """The probabilists' Hermite polynomial of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("hermite_polynomial_he", of.HERMITE_HE, input, n)


def laguerre_polynomial_l(input: Any, n: Any) -> Tensor:
    """The Laguerre polynomial of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("laguerre_polynomial_l", of.LAGUERRE_L, input, n)


def legendre_polynomial_p(input: Any, n: Any) -> Tensor:
    """The Legendre polynomial of degree `n` at input. As `chebyshev_polynomial_t`."""
    return of.polynomial("legendre_polynomial_p", of.LEGENDRE_P, input, n)


def shifted_chebyshev_polynomial_t(input: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_t(2 * input - 1, n)`, of the interval from 0 to 1."""
    return of.polynomial("shifted_chebyshev_polynomial_t", of.CHEBYSHEV_T, input, n, shifted=True)


def shifted_chebyshev_polynomial_u(input: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_u(2 * input - 1, n)`, of the interval from 0 to 1."""
    return of.polynomial("shifted_chebyshev_polynomial_u", of.CHEBYSHEV_U, input, n, shifted=True)


def shifted_chebyshev_polynomial_v(input: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_v(2 * input - 1, n)`, of the interval from 0 to 1."""
    return of.polynomial("shifted_chebyshev_polynomial_v", of.CHEBYSHEV_V, input, n, shifted=True)


def shifted_chebyshev_polynomial_w(input: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_w(2 * input - 1, n)`, of the interval from 0 to 1."""
    return of.polynomial("shifted_chebyshev_polynomial_w", of.CHEBYSHEV_W, input, n, shifted=True)
