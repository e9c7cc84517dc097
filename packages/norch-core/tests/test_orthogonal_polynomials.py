"""Orthogonal polynomials beside NumPy's series of them and trigonometric formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev, hermite, hermite_e, laguerre, legendre

import norch
from norch import special

POINTS = [-3.0, -1.0, -0.7, 0.0, 0.3, 0.999, 1.0, 2.5]
SERIES = {
    "chebyshev_polynomial_t": chebyshev.chebval,
    "hermite_polynomial_h": hermite.hermval,
    "hermite_polynomial_he": hermite_e.hermeval,
    "laguerre_polynomial_l": laguerre.lagval,
    "legendre_polynomial_p": legendre.legval,
}
ANGLES = {  # of the Chebyshev polynomials of cos(t)
    "chebyshev_polynomial_u": lambda n, t: np.sin((n + 1) * t) / np.sin(t),
    "chebyshev_polynomial_v": lambda n, t: np.cos((n + 0.5) * t) / np.cos(0.5 * t),
    "chebyshev_polynomial_w": lambda n, t: np.sin((n + 0.5) * t) / np.sin(0.5 * t),
}


@pytest.mark.parametrize("name", SERIES)
def test_beside_series(name: str) -> None:
    function, x = getattr(special, name), norch.tensor(POINTS, dtype=norch.float64)
    degrees = norch.arange(-2, 12)
    table = function(x[:, None], degrees).numpy()
    for i, n in enumerate(degrees.tolist()):
        expected = SERIES[name](np.array(POINTS), [0.0] * n + [1.0]) if n >= 0 else np.zeros(len(POINTS))
        np.testing.assert_allclose(table[:, i], expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(function(x, n).numpy(), table[:, i])


@pytest.mark.parametrize("name", ANGLES)
def test_beside_trigonometry(name: str) -> None:
    angles = np.array([0.1, 0.8, 1.5, 2.3, 3.0])
    for n in (0, 1, 2, 7, 20):
        found = getattr(special, name)(norch.tensor(np.cos(angles)), n).numpy()
        np.testing.assert_allclose(found, ANGLES[name](n, angles), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", "tuvw")
def test_shifted(kind: str) -> None:
    x, n = norch.tensor(POINTS, dtype=norch.float64), norch.arange(6)[:, None]
    shifted = getattr(special, f"shifted_chebyshev_polynomial_{kind}")(x, n)
    assert norch.equal(shifted, getattr(special, f"chebyshev_polynomial_{kind}")(x * 2 - 1, n))


def test_degrees_are_bounded() -> None:
    assert special.chebyshev_polynomial_t(norch.tensor([1.0]), 10_000).item() == 1
    with pytest.raises(ValueError, match="at most 10000, got 1000000"):
        special.chebyshev_polynomial_t(norch.tensor([1.0]), norch.tensor(1_000_000))


def test_two_numbers_are_refused() -> None:
    with pytest.raises(norch.DTypeError, match="input or n must be a Tensor, got float 0.5 and int 3"):
        special.legendre_polynomial_p(0.5, 3)


def test_dtypes_numbers_and_gradients() -> None:
    assert special.legendre_polynomial_p(norch.tensor([1, 2]), 2).tolist() == [1.0, 5.5]
    assert special.legendre_polynomial_p(norch.tensor([1, 2]), 2).dtype is norch.float32
    assert special.laguerre_polynomial_l(norch.ones(2).half(), 3).dtype is norch.float16
    assert special.hermite_polynomial_h(0.5, norch.tensor([0.0, 1.9, 2.0])).tolist() == [1.0, 1.0, -1.0]
    assert special.chebyshev_polynomial_t(norch.tensor(math.nan), 3).isnan()
    x = norch.tensor([-0.4, 0.9], dtype=norch.float64, requires_grad=True)
    assert norch.autograd.gradcheck(lambda v: special.legendre_polynomial_p(v[:, None], norch.arange(5)), (x,))
    special.chebyshev_polynomial_t(x, 3).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 12 * np.array([0.16, 0.81]) - 3)
