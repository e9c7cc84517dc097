"""Orthogonal polynomials under their names in `norch.special`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import polynomials as of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tensor import Tensor

_HOW = """

    `n`, a number or a tensor of them, is cut to an integer; of a negative one it is 0. The two broadcast. By the
    recurrence 22.7 of Abramowitz and Stegun (1964), in float64, in as many steps as the largest degree, which a
    tensor of degrees is read for. Differentiable by input. Raises ValueError for a degree above 10,000, DTypeError
    where neither is a tensor.
    """


def _named(name: str, which: str, family: of.Family, shifted: bool = False) -> Callable[[Any, Any], Tensor]:
    def call(input: Any, n: Any) -> Tensor:
        return of.polynomial(name, family, input, n, shifted)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The {which} of degree `n` at {'2 * input - 1' if shifted else 'input'}.{_HOW}"
    return call


def _shifted(name: str, which: str, family: of.Family) -> Callable[[Any, Any], Tensor]:
    return _named(f"shifted_{name}", which, family, shifted=True)


_T = "chebyshev_polynomial_t", "Chebyshev polynomial of the first kind", of.CHEBYSHEV_T
_U = "chebyshev_polynomial_u", "Chebyshev polynomial of the second kind", of.CHEBYSHEV_U
_V = "chebyshev_polynomial_v", "Chebyshev polynomial of the third kind", of.CHEBYSHEV_V
_W = "chebyshev_polynomial_w", "Chebyshev polynomial of the fourth kind", of.CHEBYSHEV_W

chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _named(*_T), _shifted(*_T)
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _named(*_U), _shifted(*_U)
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _named(*_V), _shifted(*_V)
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _named(*_W), _shifted(*_W)
hermite_polynomial_h = _named("hermite_polynomial_h", "physicists' Hermite polynomial", of.HERMITE_H)
hermite_polynomial_he = _named("hermite_polynomial_he", "probabilists' Hermite polynomial", of.HERMITE_HE)
laguerre_polynomial_l = _named("laguerre_polynomial_l", "Laguerre polynomial", of.LAGUERRE_L)
legendre_polynomial_p = _named("legendre_polynomial_p", "Legendre polynomial", of.LEGENDRE_P)
