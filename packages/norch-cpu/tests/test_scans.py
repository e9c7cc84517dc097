"""Scans of the native kernels against NumPy in a wider type, on every layout and dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reductions_harness import DTYPES, EPS, INTS, LAYOUTS, numbers, placed

import norch
from norch_cpu.native import native


@pytest.fixture(autouse=True)
def several_threads():
    before = native.num_threads()
    native.set_num_threads(3)
    yield
    native.set_num_threads(before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (65, 9), (4, 30, 31), (3, 20_001), (301, 700)], ids=str)
def test_cumsum(shape, layout):
    for dtype in DTYPES if math.prod(shape) < 10_000 else [norch.float32, norch.bfloat16, norch.int8]:
        x, array = placed(numbers(shape, dtype), dtype, layout)
        for dim in range(len(shape)):
            if dtype is norch.bool:
                assert np.array_equal(x.cumsum(dim).numpy(), array.cumsum(dim, np.int64))
            elif dtype.is_floating_point:
                exact = array.astype(np.longdouble).cumsum(dim)
                bound = EPS[dtype.name] * (np.abs(exact) + np.abs(array.astype(np.float64)).cumsum(dim) * 1e-6)
                if dtype is norch.float64:
                    bound = bound + 1e-14 * shape[dim]
                assert (np.abs(x.cumsum(dim).numpy().astype(np.float64) - exact) <= bound + 1e-30).all()
            else:
                assert np.array_equal(x.cumsum(dim, dtype=dtype).numpy(), array.cumsum(dim, dtype.numpy))


def test_cumsum_of_bools_and_of_nothing():
    x = norch.tensor([[False, True, False], [False, False, False]])
    assert x.cumsum(1, dtype=norch.bool).tolist() == [[False, True, True], [False] * 3]
    assert norch.zeros(2, 0).cumsum(1).shape == norch.zeros(2, 0).cumsum(0).shape == (2, 0)
    assert math.isnan(norch.tensor([1.0, math.nan, 2.0] + [0.0] * 30).cumsum(0)[-1].item())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1,), (9,), (17, 5), (4, 30, 31), (3, 700), (301, 300)], ids=str)
def test_cumprod(shape, layout):
    for dtype in DTYPES if math.prod(shape) < 10_000 else [norch.float32, norch.bfloat16, norch.int8]:
        factors = [0.5, -1.0, 2.0, 1.0] if dtype.is_floating_point else [1, 3, 5, 7]
        x, array = placed(np.random.default_rng(6).choice(factors, shape), dtype, layout)
        for dim in range(len(shape)):
            kind = np.longdouble if dtype.is_floating_point else np.int64
            with np.errstate(over="ignore"):  # some of float16
                exact = array.astype(kind).cumprod(dim)
                exact = exact.astype(dtype.numpy if dtype.is_floating_point else kind)
            assert np.array_equal(x.cumprod(dim).numpy(), exact)
            if dtype in INTS:
                assert np.array_equal(x.cumprod(dim, dtype=dtype).numpy(), array.cumprod(dim, dtype.numpy))


def test_cumprod_at_edges():
    assert norch.tensor([[True, True, False], [True] * 3]).cumprod(1, dtype=norch.bool).tolist() == [
        [True, True, False],
        [True] * 3,
    ]
    assert norch.zeros(2, 0).cumprod(1).shape == norch.zeros(0, 2).cumprod(1).shape[::-1] == (2, 0)
    # Partial products beyond float32 and below it come back.
    assert norch.tensor([1e30, 1e30, 1e-30, 1e-30]).cumprod(0)[-1].item() == pytest.approx(1)
    assert math.isnan(norch.tensor([math.nan] + [0.0] * 30).cumprod(0)[-1].item())
    assert math.copysign(1, norch.tensor([-0.0, 2.0]).cumprod(0)[-1].item()) == -1


def running(array, dim, largest):
    """The running extremes and their last indices, one element after the other."""
    rows = np.moveaxis(array, dim, 0)
    values, indices = rows.copy(), np.zeros(rows.shape, np.int64)
    for i in range(1, len(rows)):
        ahead = rows[i] >= values[i - 1] if largest else rows[i] <= values[i - 1]
        wins = ahead | (rows[i] != rows[i])
        values[i] = np.where(wins, rows[i], values[i - 1])
        indices[i] = np.where(wins, i, indices[i - 1])
    return np.moveaxis(values, 0, dim), np.moveaxis(indices, 0, dim)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1,), (9,), (17, 5), (4, 30, 31), (3, 700), (301, 300)], ids=str)
def test_cummax_and_cummin(shape, layout):
    rng = np.random.default_rng(7)
    for dtype in DTYPES if math.prod(shape) < 10_000 else [norch.float32, norch.bfloat16, norch.int8]:
        values = rng.integers(0, 2 if dtype is norch.bool else 90, shape).astype(np.float64)
        if dtype.is_floating_point:
            values[rng.random(shape) < 0.05] = -math.inf
            values[rng.random(shape) < 0.01] = math.nan
        x, array = placed(values, dtype, layout)
        for dim in range(len(shape)):
            for op, largest in ((norch.cummax, True), (norch.cummin, False)):
                found, indices = op(x, dim)
                expected, places = running(array.astype(np.float64), dim, largest)
                assert found.dtype is dtype
                assert np.array_equal(found.numpy().astype(np.float64), expected, equal_nan=dtype.is_floating_point)
                assert np.array_equal(indices.numpy(), places)


def test_running_extremes_at_edges():
    values, indices = norch.tensor([0.0, -0.0, 0.0, -0.0]).cummax(0)
    assert np.signbit(values.numpy()).tolist() == [False, True, False, True]
    assert indices.tolist() == [0, 1, 2, 3]
    low, high = -(2**63), 2**63 - 1
    assert norch.tensor([low, low, high]).cummax(0)[1].tolist() == [0, 1, 2]
    assert norch.tensor([high, high, low]).cummin(0)[1].tolist() == [0, 1, 2]
    assert norch.zeros(2, 0).cummax(1)[1].shape == norch.zeros(2, 0).cummin(0)[0].shape == (2, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1,), (9,), (17, 5), (4, 30, 31), (3, 700), (131, 300)], ids=str)
@pytest.mark.parametrize("scale", [1, 3000])
def test_logcumsumexp(shape, layout, scale):
    """Near one another, and so far apart that the exponentials of most are nothing beside the largest."""
    for dtype in (norch.float64, norch.float32, norch.bfloat16):
        x, array = placed(np.random.default_rng(8).standard_normal(shape) * scale, dtype, layout)
        for dim in range(len(shape)):
            exact = np.logaddexp.accumulate(array.astype(np.longdouble), dim)
            found = x.logcumsumexp(dim).numpy().astype(np.longdouble)
            bound = EPS[dtype.name] * np.abs(exact) + (1e-14 if dtype is norch.float64 else 1e-12) * scale
            assert (np.abs(found - exact) <= bound).all()


@pytest.mark.parametrize("across", [False, True])
def test_logcumsumexp_at_edges(across):
    inf, nan = math.inf, math.nan
    lines = [
        [-inf, -inf, 1, -inf],
        [1, inf, inf, -inf],
        [1, nan, inf, 2],
        [-900, 900, -900, 0],
        [-inf] * 4,
        [800, 1, 2, 3],
    ]
    for line in lines:
        x = np.array(line + line[-1:] * 70, np.float64)
        with np.errstate(invalid="ignore"):
            expected = np.logaddexp.accumulate(x)
        given = norch.tensor(np.stack([x, x], 1)) if across else norch.tensor(x)
        found = given.logcumsumexp(0).numpy()
        np.testing.assert_allclose(found[:, 0] if across else found, expected, rtol=1e-14, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(300, 2), (70, 3), (5, 7, 33), (40, 50), (2, 300)])
def test_scans_of_short_rows_and_of_what_is_transposed(dtype, shape):
    values = np.random.default_rng(0).integers(-3, 4, shape).astype("float64")
    x = norch.tensor(values).to(getattr(norch, dtype))
    for given, want in (
        (x, values),
        (x.transpose(0, -1), values.swapaxes(0, -1)),
        (x[..., :1].expand(shape), values[..., :1]),
    ):
        want = np.broadcast_to(want, given.shape)
        for dim in range(len(shape)):
            bound = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(dtype, 0)
            np.testing.assert_allclose(given.cumsum(dim).double().numpy(), want.cumsum(dim), rtol=bound)
            signs = given.sign()
            np.testing.assert_array_equal(signs.cumprod(dim).double().numpy(), np.sign(want).cumprod(dim))
            most, places = given.cummax(dim)
            np.testing.assert_array_equal(most.double().numpy(), np.maximum.accumulate(want, dim))
            np.testing.assert_array_equal(given.gather(dim, places).double().numpy(), most.double().numpy())
            sums = np.logaddexp.accumulate(want, dim)
            close = {"bfloat16": 2.0**-7, "float16": 2.0**-10}.get(dtype, 1e-6)
            np.testing.assert_allclose(given.logcumsumexp(dim).double().numpy(), sums, rtol=close, atol=close)
