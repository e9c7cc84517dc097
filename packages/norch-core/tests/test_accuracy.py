"""float32 against float64 where rounding errors grow; functions at infinities, NaN, zeros and the largest numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import norch

INF, NAN = math.inf, math.nan


def near(got: Any, want: Any, rtol: float) -> None:
    np.testing.assert_allclose(got.detach().double().numpy(), want, rtol)


# --- A mean that is large next to the deviations ----------------------------------------------------------------------

FEW = np.array([1e6, 1e6 + 0.0625])  # their mean is no float32


@pytest.mark.parametrize("x", [FEW, 1e6 + np.random.default_rng(0).standard_normal(10_000)], ids=["few", "many"])
def test_spread_about_a_large_mean(x):
    x = x.astype(np.float32).astype(np.float64)
    t = norch.tensor(x, dtype=norch.float32)
    near(t.var(), x.var(ddof=1), 1e-6)
    near(t.std(correction=0), x.std(), 1e-6)
    near(norch.var_mean(t)[0], x.var(ddof=1), 1e-6)
    near(t.cov(), x.var(ddof=1), 1e-5)
    near(t.cov(fweights=norch.ones(x.size, dtype=norch.int64)), x.var(ddof=1), 1e-5)
    for dims in ((1,), (0, 1)):
        near(norch.stack([t, t]).var(dims, correction=0), np.stack([x, x]).var(dims), 1e-6)


@pytest.mark.parametrize("shape", [(2, 8, 4, 4), (4, 8), (3, 4, 100), (2, 4, 4096)], ids=str)
def test_normalisation_about_a_large_mean(shape):
    rng = np.random.default_rng(0)
    x, g = 1e4 + rng.standard_normal(shape), rng.standard_normal(shape)
    w = rng.uniform(0.5, 1, shape[1])
    functions = {
        "batch_norm": lambda x, w: norch.batch_norm(x, None, None, w, w, training=True),
        "layer_norm": lambda x, w: norch.layer_norm(x, shape[1:]) * w.sum(),
        "layer_norm of weights": lambda x, w: norch.layer_norm(x.movedim(1, -1), shape[1], w, w).movedim(-1, 1),
        "group_norm": lambda x, w: norch.group_norm(x, 2, w, w),
    }

    def found(function, dtype):
        leaves = [norch.tensor(v.astype(np.float32), dtype=dtype, requires_grad=True) for v in (x, w)]
        y = function(*leaves)
        y.backward(norch.tensor(g, dtype=dtype))
        return [t.double().numpy() for t in (y.detach(), *[leaf.grad for leaf in leaves])]

    for name, function in functions.items():
        for got, want in zip(found(function, norch.float32), found(function, norch.float64), strict=True):
            np.testing.assert_allclose(got, want, 0, 5e-6 * np.abs(want).max(), err_msg=name)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (0.75, 0.22531205501217810473),
        (0.25, 0.81341984759761854169),
        (2.0**-26, 4.0041318851144752947),
        (2.0**-34, 4.6303256750299635238),
        (2.0**-40, 5.0512540852493899671),
        (2.0**-53, 5.8635847487551679272),
    ],
)
def test_erfinv_of_float64_up_to_1(left: float, expected: float) -> None:
    found = norch.tensor([1 - left, left - 1], dtype=norch.float64).erfinv().numpy()
    np.testing.assert_allclose(found, [expected, -expected], 2e-15)


# --- Functions at infinities, NaN, zeros and the largest numbers ------------------------------------------------------

# A function, the values of x, and the results: the limits, as PyTorch 2.13 has them.
SPECIAL: list[Any] = [
    ("erf", lambda x: x.erf(), [10, -10, INF, -INF, NAN, -0.0], [1, -1, 1, -1, NAN, -0.0]),
    ("gelu", norch.ops.gelu, [10, -10, 1e30, -1e30, INF, NAN, -0.0], [10, -0.0, 1e30, -0.0, INF, NAN, -0.0]),
    ("gelu, tanh", lambda x: norch.ops.gelu(x, "tanh"), [3e38, -3e38, -0.0], [3e38, -0.0, -0.0]),
    ("sign", lambda x: x.sign(), [-0.0, 0.0, -INF, 2, NAN], [0.0, 0.0, -1, 1, NAN]),
    ("erfinv", lambda x: x.erfinv(), [-0.0, 1e-30, -1, 1, 2], [-0.0, 8.862269254527580e-31, -INF, INF, NAN]),
    ("sinc", lambda x: x.sinc(), [0.0, 0.25], [1.0, 0.900316316157106]),
    ("digamma", lambda x: x.digamma(), [0.0, -0.0, -1e-20, -3, INF], [-INF, INF, 1e20, NAN, INF]),
    ("lgamma", lambda x: x.lgamma(), [1, 2, -1e-20, 0, -3, INF], [0.0, 0.0, 46.05170185988092, INF, INF, INF]),
    ("polygamma", lambda x: norch.polygamma(1, x), [-2, 1e-10], [INF, 1e20]),
    ("ldexp", lambda x: x.ldexp(norch.full_like(x, 200)), [1e-30, -1e-30, INF], [1.60693804e30, -1.60693804e30, INF]),
    ("fmod", lambda x: x.fmod(3), [5, -5, -0.0, -3, INF], [2, -2, -0.0, -0.0, NAN]),
    ("lerp", lambda x: norch.lerp(x * 0 + 1e30, x, 1.0), [1, -3, 0.0], [1, -3, 0.0]),
    ("lerp to a tensor's weight", lambda x: x.lerp(x * 0 + 7, x * 0 + 1.0), [1e30, -3], [7, 7]),
    ("logaddexp2", lambda x: norch.logaddexp2(x, x * 0), [-100.0, 100], [1.13808572e-30, 100]),
    ("ndtr", lambda x: norch.special.ndtr(x), [-10, 0, 10], [7.6198530e-24, 0.5, 1]),
    ("xlog1py", lambda x: norch.special.xlog1py(norch.zeros_like(x), x), [-1, NAN, INF], [0.0, NAN, 0.0]),
    ("norms of large numbers", lambda x: norch.linalg.vector_norm(x, 3, 1), [[3e20, 4e20, 5e20]], [6e20]),
    ("norms of small numbers", lambda x: norch.norm(x, 1.5, 1), [[1e-30, 0.0, 0.0]], [1e-30]),
    ("a norm of one", lambda x: norch.linalg.vector_norm(x.unsqueeze(1), 3, 1), [1e30, -1e-30], [1e30, 1e-30]),
    ("cosine", lambda x: norch.cosine_similarity(x, x, 0, 1e-30), [1e18, 1e18], 1.0),
]


def identical(got: Any, want: Any, rtol: float = 1e-6) -> None:
    """Equal to rounding, with the same signs of zeros."""
    found = got.detach().double().numpy()
    np.testing.assert_allclose(found, want, rtol)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(np.asarray(want, float)[found == 0]))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.bfloat16], ids=str)
@pytest.mark.parametrize("case", SPECIAL, ids=[case[0] for case in SPECIAL])
def test_special_values(case, dtype):
    _, function, x, want = case
    for copies in (1, 8):  # a few elements, and whole vectors of them
        t = norch.tensor(x * copies, dtype=dtype)
        identical(function(t), want * copies if isinstance(want, list) else want, 2e-2 if dtype.itemsize == 2 else 1e-6)


def test_silu_of_float16_has_the_digits_of_float32():
    x = norch.tensor([-20.0, -15.0], dtype=norch.float16)
    near(norch.ops.silu(x), [-5.9604644775390625e-08, -4.589557647705078e-06], 0)


# Derivatives of log gamma, by the number of differentiations, with 50 digits (mpmath).
DERIVATIVES_OF_LGAMMA = {
    0: {1.0: 0.0, 2.0: 0.0, 1 + 2.0**-40: -5.2497458900760178e-13, 2 - 2.0**-40: -3.8452011276437939e-13,
        0.7: 0.26086724653166654, 2.4: 0.21685932244884157},
    2: {0.1: 101.43329915079276, 2.5: 0.49035775610023486, -2.5: 9.5392466449891243, -0.25: 18.541879647671604},
    3: {0.1: -2001.8614573783439, 2.5: -0.23620405164172736, -2.5: -0.1082040516417274, 40.0: -0.00064082027183529859},
    4: {0.1: 60004.512876790234, 2.5: 0.2239058488172521, -2.5: 194.74787621918755, 40.0: 3.2441400151563500e-05},
}  # fmt: skip


@pytest.mark.parametrize(("order", "x"), [(n, x) for n, values in DERIVATIVES_OF_LGAMMA.items() for x in values])
def test_derivatives_of_lgamma(order, x):
    operand = norch.tensor([x], dtype=norch.float64)
    found = norch.polygamma(order - 1, operand) if order else norch.lgamma(operand)
    assert found.item() == pytest.approx(DERIVATIVES_OF_LGAMMA[order][x], rel=1e-12, abs=0)


@pytest.mark.parametrize("op", [norch.logaddexp, norch.logaddexp2])
def test_second_derivative_of_logaddexp_where_both_are_equal(op):
    scale = 1 if op is norch.logaddexp else math.log(2)
    x = norch.tensor([0.5, -3.0], dtype=norch.float64, requires_grad=True)
    (slope,) = norch.autograd.grad(op(x, norch.tensor([0.5, -3.0], dtype=norch.float64)).sum(), x, create_graph=True)
    (found,) = norch.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(found.numpy(), 0.25 * scale, rtol=1e-12)


def test_tails_of_ndtri():
    # To 15 digits, by mpmath.
    x = norch.tensor([1e-300, 1e-30, 1e-10, 1e-4], dtype=norch.float64)
    expected = [-37.0470962993612, -11.4640246884436, -6.36134090240406, -3.71901648545568]
    np.testing.assert_allclose(norch.special.ndtri(x).numpy(), expected, rtol=1e-13)


def _erfcx(x):
    """By Laplace's continued fraction; below 2 by its definition."""
    if x < 2:
        return math.exp(x * x) * math.erfc(x)
    value = x
    for k in range(200, 0, -1):
        value = x + k / 2 / value
    return 1 / (value * math.sqrt(math.pi))


POINTS = (-26.0, -5.0, -1.0, -0.1, 0.0, 0.5, 1.9, 2.5, 5.0, 7.99, 8.01, 12.0, 30.0, 1e5, 1e200)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32])
def test_scaled_erfc_and_the_logarithm_of_the_normal_distribution(dtype):
    rtol = 1e-13 if dtype is norch.float64 else 2e-7
    points = [x for x in POINTS if dtype is norch.float64 or -9 < x < 1e6]
    x = norch.tensor(points, dtype=dtype)
    exact = x.double().tolist()
    np.testing.assert_allclose(norch.special.erfcx(x).numpy(), [_erfcx(v) for v in exact], rtol=rtol)
    halves = [v / math.sqrt(2) for v in exact]
    low = [math.log(_erfcx(h) / 2) - h * h if h > 0.5 else math.log1p(-math.erfc(-h) / 2) for h in halves]
    np.testing.assert_allclose(norch.special.log_ndtr(-x).numpy(), low, rtol=4 * rtol)  # at -26 an ulp of x is 1e-13
    edges = norch.tensor([math.inf, -math.inf, math.nan], dtype=dtype)
    assert str(norch.special.erfcx(edges).tolist()) == "[0.0, inf, nan]"
    assert str(norch.special.log_ndtr(edges).tolist()) in ("[0.0, -inf, nan]", "[-0.0, -inf, nan]")


def test_gradients_of_scaled_erfc_log_ndtr_and_multigammaln():
    x = norch.tensor([-3.0, -1.0, 0.3, 4.0, 7.5, 20.0], dtype=norch.float64, requires_grad=True)
    assert norch.autograd.gradcheck(norch.special.erfcx, (x,))
    assert norch.autograd.gradcheck(norch.special.log_ndtr, (x,))
    a = norch.tensor([1.7, 4.0], dtype=norch.float64, requires_grad=True)
    assert norch.autograd.gradcheck(lambda a: norch.special.multigammaln(a, 3), (a,))


def test_multigammaln_is_a_sum_of_lgamma():
    a = [1.7, 4.0, 20.5]
    found = norch.special.multigammaln(norch.tensor(a, dtype=norch.float64), 3)
    expected = [1.5 * math.log(math.pi) + sum(math.lgamma(v - j / 2) for j in range(3)) for v in a]
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)
    with pytest.raises(ValueError, match="p must be at least 1"):
        norch.special.multigammaln(norch.ones(2), 0)


def test_gradient_of_a_product_whose_parts_overflow_float16():
    x = norch.tensor([300.0, 300.0, 0.01, 0.01], dtype=norch.float16, requires_grad=True)
    x.prod().backward()
    values = x.detach().numpy().astype(np.float64)
    np.testing.assert_allclose(x.grad.numpy(), [values.prod() / v for v in values], rtol=1e-2)
    np.testing.assert_allclose(x.detach().flip(0).cumprod(0).numpy(), values[::-1].cumprod(), rtol=1e-2)


def test_products_scaled_into_the_range_of_float16():
    x, v = norch.full((2, 2), 200, dtype=norch.float16), norch.full((2,), 200, dtype=norch.float16)
    for scaled in (
        norch.addmm(x, x, x, alpha=0.5, beta=0), norch.baddbmm(x[None], x[None], x[None], alpha=0.5, beta=0)[0],
        norch.addbmm(x, x[None], x[None], alpha=0.5, beta=0), norch.addmv(v, x, v, alpha=0.5, beta=0)[None],
    ):  # fmt: skip
        assert scaled.dtype is norch.float16
        assert set(scaled.flatten().tolist()) == {40_000.0}
    small = norch.tensor([0.01], dtype=norch.float16, requires_grad=True)
    out = norch.addr(norch.zeros(1, 1, dtype=norch.float16), small.detach(), small, alpha=2)
    out.backward(norch.full((1, 1), 40_000, dtype=norch.float16))
    assert small.grad.item() == pytest.approx(800, rel=1e-3)


def test_cosine_similarity_of_large_float16():
    a, b = (norch.tensor([v, 4000.0], dtype=norch.float16) for v in (3000.0, -3000.0))
    assert norch.cosine_similarity(a, b, dim=0).item() == pytest.approx(0.28, abs=1e-3)


def test_16_bit_floats_are_rounded_once():
    def half(*x):
        return norch.tensor(x, dtype=norch.float16)

    assert norch.hypot(half(300, 6e4), half(400, 0)).tolist() == [500, 60000]
    assert norch.hypot(norch.tensor([-128], dtype=norch.int8), half(1)).tolist() == [128]
    assert half(6e4).lerp(half(-6e4), 0.25).item() == 30000
    assert norch.addcmul(half(6e4), half(6e4), half(-1), value=2).item() == -60000
    assert norch.logaddexp(half(-1), half(-0.5)).item() == np.float16(-0.0259230)
    assert norch.sinc(norch.tensor([1.0, 3.0], dtype=norch.bfloat16)).abs().max().item() < 1e-7


def test_ldexp_of_float64():
    x = norch.tensor([1.0, 3.0], dtype=norch.float64)
    assert norch.ldexp(x, norch.tensor([200, -1000])).tolist() == [math.ldexp(1, 200), math.ldexp(3, -1000)]


# --- Integers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "expected"), [("trunc", -3), ("floor", -4), (None, -3.5)])
def test_numbers_are_divided_as_tensors_are(mode: Any, expected: float) -> None:
    assert norch.div(-7, 2, rounding_mode=mode).item() == expected


@pytest.mark.parametrize("dtype", [norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8], ids=str)
def test_division_of_integers_is_exact(dtype):
    limits = norch.iinfo(dtype)
    values = sorted({v for v in (limits.min, limits.min + 1, -10, -7, -1, 0, 1, 7, 10, 100000007, limits.max)
                     if limits.min <= v <= limits.max})  # fmt: skip
    pairs = [(a, b) for a in values for b in values if b and not (a == limits.min < 0 and b == -1)]
    a, b = (norch.tensor(column, dtype=dtype) for column in zip(*pairs))
    quotients = [abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) for a, b in pairs]
    assert norch.div(a, b, rounding_mode="trunc").tolist() == quotients
    assert norch.fmod(a, b).tolist() == [a - q * b for (a, b), q in zip(pairs, quotients)]
    assert norch.div(a, 7, rounding_mode="trunc").dtype is dtype
    if limits.min < 0:
        least = norch.tensor([limits.min], dtype=dtype)
        assert norch.div(least, -1, rounding_mode="trunc").item() == limits.min  # it wraps around
        assert norch.fmod(least, -1).item() == 0


@pytest.mark.parametrize("how", ["floor", "trunc"])
def test_integers_by_zero(how):
    with pytest.raises(ZeroDivisionError):
        norch.div(norch.tensor([1, 2]), norch.tensor([1, 0]), rounding_mode=how)
    with pytest.raises(ZeroDivisionError):
        norch.fmod(norch.tensor([1, 2]), 0)


def test_special_functions_of_bytes_and_bools():
    x = norch.tensor([0, 1], dtype=norch.uint8)
    for t in (x, x.bool()):
        near(norch.special.ndtr(t), [0.5, 0.841344746], 1e-6)
        near(norch.special.entr(t), [0, 0], 0)


# --- Sequences and order ----------------------------------------------------------------------------------------------


def test_linspace_to_the_last_bit():
    """From both ends, each a float32 plus a whole number of float32 steps, rounded once: as PyTorch 2.13 has it."""
    for start, end, steps in ((0.1, 1.0, 11), (-87.20719677930326, 6.434323387400966, 23), (1, 3, 8), (5, -5, 7)):
        first, last = np.float64(np.float32(start)), np.float64(np.float32(end))
        step = np.float64((np.float32(end) - np.float32(start)) / np.float32(steps - 1))
        i = np.arange(steps)
        want = np.where(i < steps // 2, first + step * i, last - step * (steps - 1 - i)).astype(np.float32)
        assert norch.linspace(start, end, steps).tolist() == want.tolist()
    assert norch.linspace(0, -100, 45, dtype=norch.int64)[[22, 33]].tolist() == [-49, -75]


def test_quantiles_beside_infinity():
    x = norch.tensor([-INF, 1.0])
    for how, want in (("midpoint", -INF), ("lower", -INF), ("higher", 1.0)):
        assert norch.quantile(x, 0.5, interpolation=how).item() == want
    assert math.isnan(norch.quantile(norch.tensor([1.0, INF]), 0.5, interpolation="midpoint").item())


def test_rounding_to_places_does_not_overflow_in_float16() -> None:
    x = norch.tensor([-65504.0, 1.26], dtype=norch.float16)
    assert norch.round(x, decimals=1).tolist() == [-65504, norch.tensor(1.3, dtype=norch.float16).item()]
