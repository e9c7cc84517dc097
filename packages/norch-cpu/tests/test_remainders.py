"""Remainders and floored quotients of floats: exact, whatever the quotient."""

import math

import numpy as np
import pytest

import norch

SPECIAL = [
    0.0,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1.0,
    -1.0,
    3.0,
    -3.0,
    0.1,
    -0.1,
    1e-45,
    1e-38,
    3.4e38,
    -3.4e38,
    7.5,
]


def _python_remainder(a, b):
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    rest = math.fmod(a, b)
    if rest == 0:
        return math.copysign(0.0, b)
    return rest + b if (rest < 0) != (b < 0) else rest


def _fmod(a, b):
    return math.nan if math.isinf(a) or b == 0 else math.fmod(a, b)


def _floor_divide(a, b):
    if b == 0 or math.isnan(a) or math.isnan(b):
        return math.nan if a == 0 or a != a or b != b else math.copysign(math.inf, a) * math.copysign(1, b)
    if math.isinf(a):
        return math.nan
    return a // b


def _pairs(dtype):
    """Quotients of every size, those next to an integer, and special numbers by one another."""
    rng = np.random.default_rng(0)
    info = np.finfo(dtype)
    a = np.ldexp(rng.uniform(-1, 1, 6000), rng.integers(-60, 60, 6000)).astype(dtype)
    b = np.ldexp(rng.uniform(-1, 1, 6000), rng.integers(-60, 60, 6000)).astype(dtype)
    exact = (b * np.ldexp(1.0, rng.integers(0, 50, 6000)).astype(dtype)).astype(dtype)
    whole = rng.integers(1, 1 << 24, 6000).astype(dtype)
    multiple = (b * whole).astype(dtype)
    near = [np.nextafter(multiple, dtype(s) * info.max) for s in (-1, 1)]
    tiny = (info.smallest_subnormal * rng.integers(1, 5000, 6000)).astype(dtype)
    square = [v.ravel() for v in np.meshgrid(np.array(SPECIAL, dtype), np.array(SPECIAL, dtype))]
    firsts = [a, exact, multiple, *near, tiny, a, square[0]]
    seconds = [b, b, b, b, b, np.roll(tiny, 1), tiny, square[1]]
    return np.concatenate(firsts), np.concatenate(seconds)


def _same(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("limited", [False, True])
def test_remainders_are_exact(dtype, limited):
    with np.errstate(all="ignore"):
        a, b = _pairs(dtype)
        if limited:  # no block has a pair that another formula is for
            keep = np.abs(a) <= np.abs(b) * dtype(2.0**24)
            a, b = a[keep], b[keep]
        for name, oracle in (("remainder", _python_remainder), ("fmod", _fmod)):
            got = getattr(norch, name)(norch.from_numpy(a), norch.from_numpy(b)).numpy()
            _same(got, np.array([oracle(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]).astype(dtype))


def test_floored_quotients_of_float64():
    a, b = _pairs(np.float64)
    with np.errstate(all="ignore"):
        keep = np.isfinite(a) & np.isfinite(b) & (b != 0) & (np.abs(a) <= np.abs(b) * 2.0**40)
    a, b = a[keep], b[keep]
    got = (norch.from_numpy(a) // norch.from_numpy(b)).numpy()
    _same(got, np.array([_floor_divide(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]))


def test_floored_quotients_of_special_numbers():
    a, b = [v.ravel() for v in np.meshgrid(np.array(SPECIAL, np.float32), np.array(SPECIAL[:8], np.float32))]
    got = (norch.from_numpy(a) // norch.from_numpy(b)).numpy()
    want = np.array([_floor_divide(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], np.float32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["remainder", "fmod", "floor_divide"])
@pytest.mark.parametrize("divisor", [1.0, -0.3, 0.0, math.inf, 1e-30])
def test_numbers_and_layouts(name, divisor):
    op = getattr(norch, name)
    for dtype in (norch.float64, norch.float32, norch.float16, norch.bfloat16):
        x = norch.linspace(-50, 50, 3 * 700, dtype=norch.float64).to(dtype).reshape(3, 700)
        want = op(x, norch.full_like(x, divisor)).numpy()
        row = norch.full((700,), divisor, dtype=dtype)
        _same(op(x, row).numpy(), want)
        _same(op(x, row[0]).numpy(), want)
        _same(op(x.t().contiguous().t(), row).numpy(), want)
        _same(op(row.new_full((), 7.0), row).numpy(), op(norch.full_like(row, 7.0), row).numpy())
        if dtype.itemsize > 2:  # of 16 bits a number is not rounded to them
            _same(op(x, divisor).numpy(), want)
            _same(getattr(x, f"{name}_")(divisor).numpy(), want)


def test_fmod_of_integers():
    a, b = norch.tensor([7, -7, 7, -7]), norch.tensor([3, 3, -3, -3])
    assert norch.fmod(a, b).tolist() == [1, -1, 1, -1]
    assert norch.fmod(a, 2.5).tolist() == [2.0, -2.0, 2.0, -2.0]


DIVISIONS = {
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize(("bits", "edge"), [(32, 31), (64, 51), (64, 63)])  # 51: below it int64 is divided as float64
def test_integers_of_every_size(name, bits, edge):
    some = [0, 1, 2, 3, 5, 2**15, 2 ** (edge // 2), 2 ** (edge - 1), 2 ** (edge - 1) + 1, 2**edge - 2, 2**edge - 1]
    rng = np.random.default_rng(0)
    some += [int(v) for size in range(1, edge + 1, 3) for v in rng.integers(0, 2**size, 4)]
    numbers = sorted({*some, *(-v for v in some), -(2**edge)})
    pairs = [(a, b) for a in numbers for b in numbers if b]
    for of_pairs in (pairs, [p for p in pairs if p[1] != -1]):
        want = [DIVISIONS[name](a, b) for a, b in of_pairs]
        want = [(v + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) for v in want]  # the least number over -1 wraps
        a, b = (norch.tensor(v, dtype=getattr(norch, f"int{bits}")) for v in zip(*of_pairs, strict=True))
        assert getattr(norch, name)(a, b).tolist() == want
    op = getattr(norch, name)
    a = norch.tensor(numbers, dtype=getattr(norch, f"int{bits}"))
    for number in (1, -1, 7, -7, 2 ** (edge - 1), 2**edge - 1, -(2**edge)):
        assert op(a, number).tolist() == op(a, norch.full_like(a, number)).tolist()
        if number != -1:
            assert op(a, number).tolist() == [DIVISIONS[name](v, number) for v in numbers]
    with pytest.raises(ZeroDivisionError):
        op(a, norch.zeros_like(a))
