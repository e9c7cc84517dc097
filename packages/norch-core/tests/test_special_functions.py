"""Bessel, incomplete gamma and zeta functions, beside sums of many digits, integrals and identities."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

import norch
from norch import AutogradError, special

EPS = 2.0**-52


def values(function, *operands):
    return function(*[norch.tensor(o, dtype=norch.float64) for o in operands]).cpu().numpy()


def derivative_is_right(function, *operands):
    leaves = [norch.tensor(o, dtype=norch.float64, requires_grad=True) for o in operands]
    return norch.autograd.gradcheck(function, tuple(leaves)) and norch.autograd.gradgradcheck(
        function, tuple(leaves), fast_mode=True
    )


# --- Bessel functions -------------------------------------------------------------------------------------------------

SIZES = [1e-12, 1e-3, 0.3, 1.0, 1.99, 2.0, 2.4, 3.7, 5.009, 8.0, 12.5, 19.3, 24.9, 25.0, 25.1, 40.0, 77.7, 150.0, 500.0]


def modified(order, x, scaled):
    """The power series, to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        half = Decimal(x) / 2
        term = half**order if order else Decimal(1)
        total = Decimal(0)
        k = 0
        while k < x or term > total * Decimal("1e-50"):
            total += term
            k += 1
            term *= half * half / (k * (k + order))
        return float(total * (-Decimal(x)).exp() if scaled else total)


@pytest.mark.parametrize(("name", "order"), [("i0", 0), ("i1", 1)])
def test_modified_bessel_functions(name, order):
    expected = [modified(order, x, False) for x in SIZES]
    np.testing.assert_allclose(values(getattr(special, name), SIZES), expected, rtol=10 * EPS)
    np.testing.assert_allclose(
        values(getattr(special, name), np.negative(SIZES)), np.multiply((-1) ** order, expected), rtol=10 * EPS
    )
    scaled = getattr(special, f"{name}e")
    np.testing.assert_allclose(values(scaled, SIZES), [modified(order, x, True) for x in SIZES], rtol=10 * EPS)
    single = getattr(special, name)(norch.tensor(SIZES[:16]))
    assert single.dtype is norch.float32
    rounded = [modified(order, x, False) for x in norch.tensor(SIZES[:16]).double().tolist()]
    np.testing.assert_allclose(single.cpu().numpy(), rounded, rtol=2e-7)


def test_large_operands_of_modified_bessel_functions():
    assert np.isfinite(values(special.i0, [713.0, -713.0])).all()
    assert values(special.i0, [720.0])[0] == math.inf
    assert values(special.i1, [-720.0])[0] == -math.inf
    assert values(special.i0e, [math.inf, -math.inf]).tolist() == [0, 0]
    np.testing.assert_allclose(values(special.i0e, [1e200]), 1 / math.sqrt(2 * math.pi * 1e200))
    assert math.isnan(values(special.i1e, [math.nan])[0])
    assert special.i0(norch.tensor([0, 1])).dtype is norch.get_default_dtype()


def on_interval(function, end, parts=80):
    points, weights = np.polynomial.legendre.leggauss(20)
    step = end / parts
    at = (np.arange(parts)[:, None] + (points + 1) / 2) * step
    return math.fsum((weights * function(at)).ravel()) * step / 2


def first_kind(order, x):
    return on_interval(lambda t: np.cos(order * t - x * np.sin(t)), math.pi) / math.pi


def second_kind(order, x):
    """Abramowitz and Stegun, 9.1.22."""
    near = on_interval(lambda t: np.sin(x * np.sin(t) - order * t), math.pi)
    far = on_interval(
        lambda t: (np.exp(order * t) + (-1) ** order * np.exp(-order * t)) * np.exp(-x * np.sinh(t)),
        math.asinh(750 / x),
    )
    return (near - far) / math.pi


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_by_integrals(order):
    """The bound is that of the integrals, whose angles round too."""
    sizes = [x for x in SIZES if x > 0.1]
    bounds = [1e-14 * max(1, abs(second_kind(order, x))) for x in sizes]
    for kind, integral in (("j", first_kind), ("y", second_kind)):
        found = values(getattr(special, f"bessel_{kind}{order}"), sizes)
        expected = [integral(order, x) for x in sizes]
        assert (abs(found - expected) <= bounds).all(), (kind, found - expected)


def test_wronskian_of_bessel_functions():
    x = np.concatenate([SIZES, np.linspace(0.5, 60, 500), [1e5, 1e7]])
    j0, j1, y0, y1 = (values(getattr(special, f"bessel_{n}"), x) for n in ("j0", "j1", "y0", "y1"))
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (math.pi * x), rtol=30 * EPS)


def test_small_and_special_operands_of_bessel_functions():
    small = [1e-12, 1e-5]
    np.testing.assert_allclose(values(special.bessel_j1, small), np.divide(small, 2), rtol=1e-10)
    np.testing.assert_allclose(values(special.bessel_y1, small), np.divide(-2 / math.pi, small), rtol=1e-8)
    euler = 0.5772156649015329
    np.testing.assert_allclose(
        values(special.bessel_y0, small), [2 / math.pi * (math.log(x / 2) + euler) for x in small]
    )
    operands = [0.0, -0.0, -1.0, math.nan, math.inf]
    for name, first in (("y0", -math.inf), ("y1", -math.inf)):
        found = values(getattr(special, f"bessel_{name}"), operands)
        assert str(found.tolist()) == str([first, first, math.nan, math.nan, math.nan])
    assert str(values(special.bessel_j1, [0.0, -0.0]).tolist()) == "[0.0, -0.0]"
    assert values(special.bessel_j1, [-3.0])[0] == -values(special.bessel_j1, [3.0])[0]
    assert values(special.bessel_j0, [-3.0, 0.0]).tolist() == [values(special.bessel_j0, [3.0])[0], 1]


@pytest.mark.parametrize("name", ["i0", "i1", "i0e", "i1e", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_derivatives_of_bessel_functions(name):
    signed = [0.4, 3.0, 9.0, 26.0] + ([] if "y" in name else [-2.5, -30.0])
    assert derivative_is_right(getattr(special, name), signed[:2] if name in ("i0", "i1") else signed)
    if "y" not in name:
        zero = norch.zeros(1, dtype=norch.float64, requires_grad=True)
        getattr(special, name)(zero).backward()
        assert zero.grad.item() == (0.5 if "1" in name else 0)


AIRY = {  # by mpmath, with 25 digits
    -60.0: 0.0777878244771155838,
    -12.5: -0.276274561381160248,
    -5.0: 0.35076100902411432,
    -2.5: -0.112325067692966089,
    -1.5: 0.464256577748869406,
    -0.25: 0.418724614275452924,
    0.0: 0.355028053887817239,
    0.75: 0.179336305478645234,
    1.9: 0.040594420031529502,
    2.1: 0.0299526021158665225,
    4.0: 0.000951563851204801874,
    9.0: 2.47116843087248984e-9,
    40.0: 6.36574265855291491e-75,
}


SECOND = {  # x: K0 and K1, of 30 digits
    1e-8: (18.536612259610777, 99999999.9999999),
    0.5: (0.9244190712276659, 1.656441120003301),
    0.999: (0.42162685730813515, 0.602931276323012),
    1.001: (0.42042304210549164, 0.6008854108196824),
    3.0: (0.03473950438627925, 0.040156431128194184),
    30.0: (2.1324774964630563e-14, 2.1677320018915495e-14),
}


@pytest.mark.parametrize("order", [0, 1])
def test_modified_bessel_functions_of_the_second_kind(order):
    function = getattr(special, f"modified_bessel_k{order}")
    scaled = getattr(special, f"scaled_modified_bessel_k{order}")
    expected = [both[order] for both in SECOND.values()]
    np.testing.assert_allclose(values(function, list(SECOND)), expected, rtol=20 * EPS)
    np.testing.assert_allclose(values(scaled, list(SECOND)), expected * np.exp(list(SECOND)), rtol=20 * EPS)
    assert values(scaled, [1e6])[0] == pytest.approx(math.sqrt(math.pi / 2e6), rel=1e-6)
    for f in (function, scaled):
        np.testing.assert_array_equal(values(f, [0.0, math.inf, -1.0, math.nan]), [math.inf, 0, math.nan, math.nan])
        assert derivative_is_right(f, [0.2, 0.9, 1.5, 6.0])


def test_spherical_bessel_j0():
    x = [0.0, 1e-4, 0.3, 0.499, 0.501, -2.0, 50.0]
    expected = [1.0, *(math.sin(v) / v for v in x[1:])]
    np.testing.assert_allclose(values(special.spherical_bessel_j0, x), expected, rtol=4 * EPS)
    np.testing.assert_array_equal(
        values(special.spherical_bessel_j0, [math.inf, -math.inf, math.nan]), [0, 0, math.nan]
    )
    assert derivative_is_right(special.spherical_bessel_j0, [0.0, 0.3, 2.0])


def test_airy_ai():
    x = np.array(list(AIRY))
    size = np.where(x < 0, 1 / (math.sqrt(math.pi) * np.maximum(-x, 1) ** 0.25), list(AIRY.values()))
    assert (abs(values(special.airy_ai, list(AIRY)) - list(AIRY.values())) <= 1e-13 * size).all()
    assert values(special.airy_ai, [math.inf, -math.inf, math.nan])[:2].tolist() == [0, 0]
    assert special.airy_ai(norch.tensor([1, 0])).dtype is norch.float32
    assert derivative_is_right(special.airy_ai, [-7.0, -1.0, 1.0, 3.0])


# --- Incomplete gamma functions ---------------------------------------------------------------------------------------


def lower_sum(a, x):
    """x**a exp(-x) sum x**n / (a ... (a + n))."""
    term = 1 / a
    total = Decimal(0)
    n = 0
    while term > total * Decimal("1e-350"):
        total += term
        n += 1
        term *= x / (a + n)
    return total * (x.ln() * a - x).exp()


def regularised(a, x):
    """Both, to many digits: gamma(a) is the lower one of an operand that leaves nothing."""
    with localcontext() as context:
        context.prec = 400
        a, x = Decimal(a), Decimal(x)
        share = lower_sum(a, x) / lower_sum(a, a * 2 + 900)
        return float(share), float(1 - share)


EDGES = [(0.01, 0.5), (0.01, 1.4), (0.01, 1.6), (0.5, 20.0), (5.0, 0.001), (1e-8, 1e-8), (20.0, 45.0), (200.0, 30.0)]
EDGES += [(1014.0, 260.0), (1e4, 9.7e3), (1e4, 1.05e4), (120.0, 1000.0)]
FIRST = (1e-3, 0.3, 0.999, 1.0, 3.5, 9.99, 10.01, 30.0, 99.0, 101.0, 400.0)
PAIRS = [(a, a * r) for a in FIRST for r in (0.2, 0.7, 0.97, 1.0, 1.05, 1.5, 3.0)] + EDGES


def test_incomplete_gamma_functions():
    a, x = zip(*PAIRS, strict=True)
    lower, upper = zip(*[regularised(*pair) for pair in PAIRS], strict=True)
    # Where the exponent is large, its last place counts as often.
    np.testing.assert_allclose(values(special.gammainc, a, x), lower, rtol=3e-13)
    np.testing.assert_allclose(values(special.gammaincc, a, x), upper, rtol=3e-13)
    central = [i for i, (p, q) in enumerate(zip(lower, upper, strict=True)) if min(p, q) > 1e-3]
    assert len(central) > 40
    np.testing.assert_allclose(values(special.gammainc, a, x)[central], np.array(lower)[central], rtol=2e-14)
    np.testing.assert_allclose(values(special.gammaincc, a, x)[central], np.array(upper)[central], rtol=2e-14)


def test_special_operands_of_incomplete_gamma_functions():
    inf, nan = math.inf, math.nan
    a = [0, 0, 0, 1, 1, inf, inf, inf, -1, 1, nan, 1, 0, -0.5]
    x = [0, 1, inf, 0, inf, 0, 1, inf, 1, -1, 1, nan, -1, 0]
    lower = [nan, 1, 1, 0, 1, 0, 0, nan, nan, nan, nan, nan, nan, nan]
    np.testing.assert_array_equal(values(special.gammainc, a, x), lower)
    np.testing.assert_array_equal(values(special.gammaincc, a, x), 1 - np.array(lower))
    single = special.gammainc(norch.tensor([0.5]), norch.tensor([[1.0], [2.0]]))
    np.testing.assert_allclose(single.cpu().numpy(), [[math.erf(1)], [math.erf(math.sqrt(2))]], rtol=2e-7)
    assert norch.igamma is special.gammainc
    np.testing.assert_array_equal(
        norch.igammac(norch.tensor([0.5]), 1.0).cpu().numpy(), special.gammaincc(0.5, norch.tensor([1.0])).cpu().numpy()
    )


def test_derivatives_of_incomplete_gamma_functions():
    a = norch.tensor([0.4, 3.0, 120.0], dtype=norch.float64)
    assert derivative_is_right(lambda x: special.gammainc(a, x), [0.7, 4.0, 110.0])
    assert derivative_is_right(lambda x: special.gammaincc(a, x), [0.7, 4.0, 110.0])
    with pytest.raises(AutogradError, match="no derivative by operand 0"):
        special.gammainc(a.requires_grad_(), 1.0).sum().backward()


# --- The zeta function ------------------------------------------------------------------------------------------------


def test_values_of_the_zeta_function():
    x, q = [2, 4, 6, 2, 3, 50, 60], [1, 1, 1, 0.5, 0.5, 2, 1]
    apery = 1.2020569031595942854
    expected = [
        math.pi**2 / 6,
        math.pi**4 / 90,
        math.pi**6 / 945,
        math.pi**2 / 2,
        7 * apery,
        2.0**-50 * (1 + 1.5**-50),
        1,
    ]
    np.testing.assert_allclose(values(special.zeta, x, q), expected, rtol=4 * EPS)
    inf, nan = math.inf, math.nan
    x = [1, 0.5, 2, 2, 2.5, inf, nan, 2, inf, 1, 2]
    q = [1, 1, 0, -1, -1.5, 1, 1, nan, 0.5, -1.5, 1e300]
    np.testing.assert_array_equal(values(special.zeta, x, q), [inf, nan, inf, inf, nan, 1, nan, nan, inf, inf, 0])
    near_one = values(special.zeta, [1 + 1e-9], [1.0])[0]  # 1 / (x - 1), and Euler's constant
    np.testing.assert_allclose(near_one, 1 / (1 + 1e-9 - 1) + 0.5772156649015329, rtol=4 * EPS)


def test_the_zeta_function_shifted_and_multiplied():
    rng = np.random.default_rng(3)
    x, q = 1 + np.exp(rng.uniform(-3, 3, 200)), np.exp(rng.uniform(-3, 5, 200))
    found = values(special.zeta, x, q)
    np.testing.assert_allclose(found, values(special.zeta, x, q + 1) + q**-x, rtol=8 * EPS)
    thirds = sum(values(special.zeta, x, (q + k) / 3) for k in range(3))
    np.testing.assert_allclose(found, thirds * 3**-x, rtol=16 * EPS)
    below = rng.uniform(-9, 0, 50)
    for order in (2.0, 3.0, 5.0, 8.0):
        steps = sum((below + k) ** -order for k in range(10))
        found = values(special.zeta, np.full(50, order), below)
        np.testing.assert_allclose(found, steps + values(special.zeta, np.full(50, order), below + 10), rtol=1e-12)


def test_derivatives_of_the_zeta_function():
    assert derivative_is_right(lambda q: special.zeta(3.0, q), [0.4, 2.0, 30.0, -1.3])
    with pytest.raises(AutogradError, match="no derivative by operand 0"):
        special.zeta(norch.tensor([2.0], requires_grad=True), 1.0).backward()


def test_methods():
    x = norch.tensor([0.5, 3.0], dtype=norch.float64)
    for name, rest in (("i0", ()), ("igamma", (x,)), ("igammac", (x,))):
        found = getattr(x, name)(*rest)
        np.testing.assert_array_equal(found.cpu().numpy(), getattr(norch, name)(x, *rest).cpu().numpy())
    np.testing.assert_array_equal(x.polygamma(2).cpu().numpy(), norch.polygamma(2, x).cpu().numpy())
    np.testing.assert_array_equal((x + 1).mvlgamma(2).cpu().numpy(), special.multigammaln(x + 1, 2).cpu().numpy())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("i0", ()), ("igamma", (2.0,)), ("igammac", (2.0,)), ("mvlgamma", (1,)), ("polygamma", (2,))],
)
def test_methods_in_place(name, arguments):
    x = norch.tensor([0.5, 3.0], dtype=norch.float64)
    expected = getattr(x, name)(*arguments).cpu().numpy()
    assert getattr(x, f"{name}_")(*arguments) is x
    np.testing.assert_array_equal(x.cpu().numpy(), expected)
    with pytest.raises(norch.DTypeError, match="cannot hold"):
        getattr(norch.tensor([1, 2]), f"{name}_")(*arguments)
