"""The elementary functions of the CPU kernels against NumPy and the C library in float64."""

import itertools
import math

import numpy as np
import pytest

import norch


def _libm(function):
    return lambda x: np.array([function(value) for value in x.tolist()], np.float64)


def _sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _lgamma(x):
    return math.inf if math.isinf(x) or (x <= 0 and x == int(x)) else math.lgamma(x)


def _shifted(x, term, tail):
    """The sum of term(x + k), and the tail from 30 on, where two terms of Stirling's series are many."""
    return math.fsum(term(x + k) for k in range(30)) + tail(x + 30)


def _digamma(x):
    if math.isnan(x) or x == -math.inf or (x < 0 and x == int(x)):
        return math.nan
    if math.isinf(x) or x == 0:
        return math.copysign(math.inf, x) * (1 if x else -1)
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x - round(x)))
    if x > 1e8:
        return math.log(x) - 0.5 / x
    return _shifted(
        x, lambda t: -1 / t, lambda z: math.log(z) - 0.5 / z - 1 / (12 * z**2) + 1 / (120 * z**4) - 1 / (252 * z**6)
    )


def _trigamma(x):
    if x <= 0 and (math.isinf(x) or x == int(x)):
        return math.inf
    if x < 0:
        return (math.pi / math.sin(math.pi * (x - round(x)))) ** 2 - _trigamma(1 - x)
    if not x <= 1e8:
        return 1 / x + 0.5 / x / x
    return _shifted(
        x, lambda t: 1 / t / t, lambda z: 1 / z + 0.5 / z**2 + 1 / (6 * z**3) - 1 / (30 * z**5) + 1 / (42 * z**7)
    )


# The oracle in float64, and how many units in the last place of float32 a result may be off.
UNARY = {
    "exp": (np.exp, 2),
    "expm1": (np.expm1, 2),
    "log": (np.log, 2),
    "log1p": (np.log1p, 2),
    "log2": (np.log2, 3),
    "log10": (np.log10, 3),
    "sin": (np.sin, 2),
    "cos": (np.cos, 2),
    "tan": (np.tan, 2),
    "asin": (np.arcsin, 3),
    "acos": (np.arccos, 2),
    "atan": (np.arctan, 2),
    "sinh": (np.sinh, 2),
    "cosh": (np.cosh, 2),
    "tanh": (np.tanh, 2),
    "asinh": (np.arcsinh, 2),
    "acosh": (np.arccosh, 2),
    "atanh": (np.arctanh, 2),
    "sigmoid": (_sigmoid, 2),
    "erf": (_libm(math.erf), 2),
    "erfc": (_libm(math.erfc), 3),
    "exp2": (np.exp2, 2),
}
GAMMA = {
    "lgamma": (norch.lgamma, _libm(_lgamma)),
    "digamma": (norch.digamma, _libm(_digamma)),
    "trigamma": (lambda x: norch.polygamma(1, x), _libm(_trigamma)),
}

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1.5, -1.5]
SPECIAL += [1e-45, -1e-45, 1.17549421e-38, 1.17549435e-38, -1.17549435e-38, 3.4028235e38, -3.4028235e38]
SPECIAL += [16777215.0, -16777215.0, 16777216.0, 8388607.5, -8388607.5, 4e9, -4e9, 0.99999994, 1.0000001, 2097153.0]


def _every_exponent(mantissas, seed=0):
    """Float32 numbers of every sign and exponent, subnormals too, and the special ones."""
    generator = np.random.default_rng(seed)
    high = np.arange(512, dtype=np.uint32)[:, None] << np.uint32(23)
    bits = high | generator.integers(0, 1 << 23, (512, mantissas), dtype=np.uint32)
    return np.concatenate([bits.ravel().view(np.float32), np.array(SPECIAL, np.float32)])


def _ulps(result, exact):
    """How far float32 results are from float64 ones, in units in the last place; infinite where the kind differs."""
    rounded = exact.astype(np.float32)
    off = np.abs(result.astype(np.float64) - exact) / np.spacing(np.abs(rounded)).astype(np.float64)
    off = np.where(np.isinf(rounded) & (np.abs(result) == np.finfo(np.float32).max), 1, off)
    off = np.where((result == rounded) & ~np.isfinite(rounded), 0, off)
    off = np.where(np.signbit(result) != np.signbit(rounded), np.inf, off)
    off = np.where(np.isnan(rounded), np.where(np.isnan(result), 0, np.inf), off)
    return np.where(np.isnan(off), np.inf, off)


def _assert_close(result, exact, limit, *inputs):
    assert result.dtype == np.float32
    off = _ulps(result, exact)
    worst = int(off.argmax())
    assert off[worst] <= limit, (off[worst], [x[worst] for x in inputs], result[worst], exact[worst])


def _apply(name, *arrays):
    return getattr(norch, name)(*(norch.from_numpy(array) for array in arrays)).numpy()


@pytest.mark.parametrize("name", UNARY)
def test_float32_is_within_a_few_ulp_over_the_whole_range(name):
    oracle, limit = UNARY[name]
    x = np.concatenate([_every_exponent(64), np.linspace(-12, 12, 20001, dtype=np.float32)])
    with np.errstate(all="ignore"):
        _assert_close(_apply(name, x), oracle(x.astype(np.float64)), limit, x)


@pytest.mark.parametrize("name", UNARY)
def test_vector_tails_and_alignment(name):
    """Results do not depend on where in a block an element lies."""
    x = np.random.default_rng(1).uniform(0.05, 0.95, 80).astype(np.float32) + np.float32(name == "acosh")
    whole = _apply(name, x)
    for length in range(1, 71):
        np.testing.assert_array_max_ulp(_apply(name, x[:length].copy()), whole[:length], maxulp=1)
    tensor = norch.from_numpy(x)
    for start in range(1, 9):
        np.testing.assert_array_max_ulp(getattr(norch, name)(tensor[start:]).numpy(), whole[start:], maxulp=1)


@pytest.mark.parametrize("name", UNARY)
def test_float64(name):
    oracle, _ = UNARY[name]
    x = np.concatenate([np.random.default_rng(2).uniform(-30, 30, 500), np.linspace(-1, 3, 401), SPECIAL])
    with np.errstate(all="ignore"):
        result, exact = _apply(name, x), oracle(x)
    assert result.dtype == np.float64
    np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
    number = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(result[number]), np.signbit(exact[number]))
    np.testing.assert_allclose(result, exact, rtol=1e-15, atol=5e-324)


# Units in the last place, against long double where that is wider. More than 2 where the C library's own is more.
FLOAT64 = dict.fromkeys(["exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sin", "cos", "tan"], 2.0)
FLOAT64 |= dict.fromkeys(["asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"], 2.0) | {"tanh": 2.5}
INVERSES = {name: name.replace("a", "arc", 1) for name in FLOAT64 if name.startswith("a")}


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="long double is no wider than double")
@pytest.mark.parametrize("name", FLOAT64)
def test_float64_to_units_in_the_last_place(name):
    generator = np.random.default_rng(6)
    x = [generator.uniform(-b, b, 20_000) for b in (1.0, 30.0, 700.0)] + [np.arange(-20_000, 20_000) * (np.pi / 2)]
    x = np.concatenate([*x, generator.standard_normal(2000) * 1e-300, [5e-324, 2.2e-308, 1.7e308]])
    x = np.abs(x) if name.startswith("log") else x[np.abs(x) < 709]
    with np.errstate(all="ignore"):
        exact = getattr(np, INVERSES.get(name, name))(x.astype(np.longdouble))
    result = _apply(name, x)
    finite = np.isfinite(result)
    off = np.abs(result[finite] - exact[finite]) / np.spacing(np.abs(result[finite]))
    assert off.max() <= FLOAT64[name]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="long double is no wider than double")
@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_two_of_float64_to_units_in_the_last_place(name):
    draw = np.random.default_rng(11).uniform
    a = np.concatenate(
        [draw(0.01, 10, 5000), 10 ** draw(-300, 300, 5000), 1 + draw(-1e-6, 1e-6, 5000), draw(0.5, 2, 5000)]
    )
    b = np.concatenate([draw(-10, 10, 5000), draw(-1, 1, 5000), draw(-1e8, 1e8, 5000), draw(-700, 700, 5000)])
    exact = getattr(np, {"pow": "power", "atan2": "arctan2"}[name])(a.astype(np.longdouble), b.astype(np.longdouble))
    result = _apply(name, a, b)
    finite = np.isfinite(result) & (result != 0)
    assert finite.mean() > 0.9
    assert (np.abs(result - exact)[finite] / np.spacing(np.abs(result[finite]))).max() <= 2


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16], ids=str)
def test_16_bit_floats_are_computed_in_float32(name, dtype):
    x = norch.from_numpy(np.random.default_rng(3).uniform(-4, 4, 300).astype(np.float32)).to(dtype)
    expected = getattr(norch, name)(x.to(norch.float32)).to(dtype)
    result = getattr(norch, name)(x)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result.to(norch.float32).numpy(), expected.to(norch.float32).numpy())


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_arguments_among_small_ones(name):
    """A block with arguments beyond the fast reduction, next to blocks without."""
    x = np.random.default_rng(4).uniform(-2e6, 2e6, 3000).astype(np.float32)
    x[[700, 1500, 1501, 2999]] = [1e30, -3.4e38, math.inf, 2.1e6]
    with np.errstate(all="ignore"):
        exact = UNARY[name][0](x.astype(np.float64))
    _assert_close(_apply(name, x), exact, 2, x)


def test_exp_has_the_same_bits_beside_numbers_of_any_size():
    """Blocks of moderate numbers are computed by a shorter formula."""
    edges = [87.0, -87.0, 87.1, -87.1, 88.72, 88.73, -87.34, -100.0, -103.97, -104.0, math.inf, -math.inf, math.nan]
    x = np.concatenate([np.linspace(-87, 87, 5000), edges]).astype(np.float32)
    among_large = np.full((x.size, 2), 500.0, np.float32)
    among_large[:, 0] = x
    with np.errstate(all="ignore"):
        _assert_close(_apply("exp", x), np.exp(x.astype(np.float64)), 2, x)
    np.testing.assert_array_equal(_apply("exp", among_large)[:, 0].view(np.uint32), _apply("exp", x).view(np.uint32))


def _libm_pow(a, b):
    """pow of C99 with Python's exceptions turned back into values."""
    if a == 0.0 and b < 0.0:
        return math.copysign(math.inf, a) if b % 2 == 1 else math.inf
    if a < 0.0 and math.isfinite(a) and math.isfinite(b) and b != math.floor(b):
        return math.nan
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0.0 and b % 2 == 1 else math.inf


def test_pow_of_special_values():
    a, b = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32).T.copy()
    exact = np.array([_libm_pow(*pair) for pair in zip(a.tolist(), b.tolist(), strict=True)])
    with np.errstate(all="ignore"):
        _assert_close(_apply("pow", a, b), exact, 2, a, b)


@pytest.mark.parametrize("exponent", [0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0, 2.5, -2.0, math.inf, -math.inf, math.nan])
def test_pow_with_a_scalar_exponent(exponent):
    a = _every_exponent(16)
    exact = np.array([_libm_pow(value, exponent) for value in a.tolist()])
    with np.errstate(all="ignore"):
        _assert_close(norch.pow(norch.from_numpy(a), exponent).numpy(), exact, 2, a)
        result = norch.pow(norch.from_numpy(a.astype(np.float64)), exponent).numpy()
        np.testing.assert_allclose(result, exact, rtol=1e-15, atol=0)


@pytest.mark.parametrize("base", [0.0, -0.0, 1.0, -1.0, 2.0, -2.5, math.inf, -math.inf, math.nan])
def test_pow_with_a_scalar_base(base):
    b = np.concatenate([_every_exponent(16), np.arange(-40, 40, dtype=np.float32)])
    exact = np.array([_libm_pow(base, value) for value in b.tolist()])
    with np.errstate(all="ignore"):
        _assert_close(norch.pow(norch.from_numpy(np.array(base, np.float32)), norch.from_numpy(b)).numpy(), exact, 2, b)


def test_pow_over_all_of_the_results_range():
    generator = np.random.default_rng(5)
    a = generator.integers(1, 0x7F800000, 20000, dtype=np.uint32).view(np.float32)
    a[::2] = generator.uniform(0.5, 2, 10000)
    b = (generator.uniform(-150, 129, 20000) / np.log2(a.astype(np.float64))).astype(np.float32)
    with np.errstate(all="ignore"):
        _assert_close(_apply("pow", a, b), np.power(a.astype(np.float64), b.astype(np.float64)), 2, a, b)


def test_atan2():
    special = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32)
    random = np.random.default_rng(6).integers(0, 1 << 32, (20000, 2), dtype=np.uint32).view(np.float32)
    near = np.random.default_rng(7).uniform(-3, 3, (20000, 2)).astype(np.float32)
    y, x = np.concatenate([special, random, near]).T.copy()
    with np.errstate(all="ignore"):
        exact = np.arctan2(y.astype(np.float64), x.astype(np.float64))
        _assert_close(_apply("atan2", y, x), exact, 2, y, x)
        result = _apply("atan2", y.astype(np.float64), x.astype(np.float64))
        np.testing.assert_allclose(result, exact, rtol=1e-15, atol=0)
        assert_equal = np.testing.assert_array_equal
        assert_equal(np.signbit(result[~np.isnan(exact)]), np.signbit(exact[~np.isnan(exact)]))


@pytest.mark.parametrize("name", GAMMA)
def test_the_gamma_function_s_family_in_float32(name):
    """Blocks of positive numbers alone have a formula of their own."""
    function, oracle = GAMMA[name]
    x = np.concatenate([_every_exponent(24), np.linspace(-40, 40, 20001, dtype=np.float32)])
    with np.errstate(all="ignore"):
        for numbers in (x, x[x > 0], x[x < 0], x[:77]):
            _assert_close(function(norch.from_numpy(numbers)).numpy(), oracle(numbers.astype(np.float64)), 2, numbers)


@pytest.mark.parametrize("name", GAMMA)
def test_the_gamma_function_s_family_in_float64(name):
    function, oracle = GAMMA[name]
    generator = np.random.default_rng(8)
    x = np.concatenate([generator.uniform(-30, 30, 2000), np.exp(generator.uniform(-20, 20, 500)), SPECIAL])
    for numbers in (x, x[x > 0]):
        got, exact = function(norch.from_numpy(numbers)).numpy(), oracle(numbers)
        number = np.isfinite(exact)
        np.testing.assert_array_equal(got[~number], exact[~number])
        off = np.abs(got[number] - exact[number]) / np.maximum(1, np.abs(exact[number]))
        assert off.max() < (2e-14 if name == "digamma" else 4e-15)


def _modified_bessel(order, scaled, x):
    """By Bessel's integral, of which the trapezoidal rule is exact."""
    angle, size = (np.arange(256) + 0.5) * (np.pi / 256), np.abs(x)
    mean = (np.exp(size[:, None] * (np.cos(angle) - 1)) * np.cos(order * angle)).mean(1)
    return mean * np.where(x < 0, (-1) ** order, 1) * (1 if scaled else np.exp(size))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_modified_bessel_functions(order, scaled, dtype):
    """Blocks of numbers up to 25 have a formula of their own."""
    function = getattr(norch.special, f"i{order}" + "e" * scaled)
    x = np.concatenate([np.linspace(-80, -0.1, 3001), np.linspace(0.1, 25, 1000), np.linspace(25, 80, 1001)]).astype(
        dtype
    )
    for numbers in (x, x[np.abs(x) <= 25], x[:77]):
        got, exact = (
            function(norch.from_numpy(numbers)).numpy(),
            _modified_bessel(order, scaled, numbers.astype(np.float64)),
        )
        if dtype is np.float32:
            _assert_close(got, exact, 1, numbers)
        else:
            np.testing.assert_allclose(got, exact, rtol=1e-13)


def test_hypot():
    x = _every_exponent(12)
    y = np.random.default_rng(7).permutation(x)
    with np.errstate(all="ignore"):
        exact = np.hypot(x.astype(np.float64), y.astype(np.float64))
        _assert_close(_apply("hypot", x, y), exact, 1, x, y)
    a, b = (v.ravel() for v in np.meshgrid(np.array(SPECIAL, np.float32), np.array(SPECIAL, np.float32)))
    with np.errstate(all="ignore"):
        _assert_close(_apply("hypot", a, b), np.hypot(a.astype(np.float64), b.astype(np.float64)), 1, a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copysign(dtype):
    """NumPy's, of every pair of special numbers."""
    a, b = (v.ravel() for v in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype)))
    got, exact = _apply("copysign", a, b), np.copysign(a, b)
    number = ~np.isnan(exact)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(got[number], exact[number])
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(exact[number]))


def test_erfinv():
    """Within 3 ulp; beyond 1 there is nothing."""
    y = np.concatenate([np.linspace(-3.6, 3.6, 20001), np.exp(np.linspace(-87, 0, 2001))])
    x = _libm(math.erf)(y).astype(np.float32)
    x = x[np.abs(x) < 0.999]
    got = norch.erfinv(norch.from_numpy(x)).double()
    # One of Newton's steps from there is exact enough where erf is not flat.
    slope = (2 / math.sqrt(math.pi)) * norch.exp(-(got * got))
    off = ((norch.erf(got) - norch.from_numpy(x.astype(np.float64))) / slope).abs().numpy()
    assert (off <= 3 * np.spacing(np.abs(got.numpy().astype(np.float32)))).all()
    flat = norch.from_numpy(np.linspace(0.999, 1, 2001).astype(np.float32))
    assert norch.erfinv(flat).isclose(norch.erfinv(flat.double()).float(), 3.6e-7, 0).all()
    ends = norch.erfinv(norch.tensor([-1.0, 1.0, 1.5, -2.0, math.inf, math.nan, -0.0, 0.0])).numpy()
    np.testing.assert_array_equal(ends, np.array([-np.inf, np.inf, *[np.nan] * 4, -0.0, 0.0], np.float32))
    np.testing.assert_array_equal(np.signbit(ends[6:]), [True, False])


def test_erfinv_of_float64_is_the_formula():
    from norch.ops.families import by_name

    tail = 1 - 10.0 ** -np.linspace(0.1, 15.95, 3001)
    x = norch.from_numpy(
        np.concatenate([np.linspace(-1.5, 1.5, 6001), tail, 10.0 ** -np.linspace(1, 308, 500), [-0.0]])
    )
    got, expected = norch.erfinv(x).numpy(), by_name()["erfinv"].decompose(x).numpy()
    np.testing.assert_allclose(got, expected, 1e-15)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
