"""Elementwise kernels on layouts larger than a tile, on every dtype, and where arithmetic has edges."""

import itertools
import math

import ml_dtypes
import numpy as np
import pytest

import norch

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
SHAPES = [(1,), (7,), (67, 131), (3, 5, 70), (2, 66, 33, 5), (70_001,)]


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(name, *shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0 if name in ("uint8", "bool") else -9, 2 if name == "bool" else 10, shape).astype(
        numpy_dtype(name)
    )


def tensor(array):
    exact = array if array.dtype.kind in "biu" else array.astype(float)
    return norch.tensor(exact, dtype=getattr(norch, array.dtype.name))


def as_float(t):
    found = t.numpy()
    return found if found.dtype.kind in "biu" else found.astype(float)


def layouts(array):
    """The array in several layouts: (name, ndarray, tensor), equal in value."""
    x = norch.from_numpy(array) if array.dtype != numpy_dtype("bfloat16") else tensor(array)
    yield "dense", array, x
    reverse = tuple(range(array.ndim))[::-1]
    yield "transposed", array, x.permute(reverse).contiguous().permute(reverse)
    if array.ndim > 1:
        yield "swapped", array, x.transpose(-1, -2).contiguous().transpose(-1, -2)
    doubled = norch.cat([x.unsqueeze(-1)] * 3, -1)
    yield "stepped", array, doubled[..., 1]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[1:5], ids=str)
def test_binary_in_every_layout(name, shape):
    a, b = values(name, *shape), values(name, *shape, seed=1)
    for _, an, at in layouts(a):
        for _, bn, bt in layouts(b):
            np.testing.assert_array_equal(as_float(at + bt), (an + bn).astype(float))
    np.testing.assert_array_equal(as_float(tensor(a) * tensor(b)[..., :1]), (a * b[..., :1]).astype(float))
    np.testing.assert_array_equal(as_float(tensor(a)[:1] * tensor(b)), (a[:1] * b).astype(float))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_every_cast(source, target):
    a = values(source, 35, 70)
    if target == "uint8":
        a = np.abs(a) if source not in ("bool", "uint8") else a
    want = a.astype(numpy_dtype(target)).astype(float)
    for name, _, t in layouts(a):
        np.testing.assert_array_equal(as_float(t.to(getattr(norch, target))), want, err_msg=name)


@pytest.mark.parametrize("count", [1, 7, 1000, 1024, 5003])
def test_large_integers_are_rounded_once(count):
    """Few among small ones, at either side of what float32 and float64 have exactly."""
    edges = [2**n + d for n in (24, 25, 51, 52, 53, 54, 62) for d in (-3, -1, 0, 1, 3, 2**n // 2**24 + 1)]
    edges += [-x for x in edges] + [2**63 - 1, -(2**63), 2**53 + 2**29 + 1]
    rng = np.random.default_rng(0)
    for _ in range(10):
        a = rng.integers(-1000, 1000, count)
        a[rng.integers(0, count, 2)] = rng.choice(edges, 2)
        for name in ("float32", "float64"):
            np.testing.assert_array_equal(norch.from_numpy(a).to(getattr(norch, name)).numpy(), a.astype(name))
    all_of_them = np.array(edges)
    for name in ("float32", "float64"):
        np.testing.assert_array_equal(
            norch.from_numpy(all_of_them).to(getattr(norch, name)).numpy(), all_of_them.astype(name)
        )


@pytest.mark.parametrize("name", ["float32", "float64", "int16", "uint8"])
@pytest.mark.parametrize("shape", [(2048, 129), (129, 2048), (3, 100, 65, 4), (4, 4), (8, 16), (9, 15)], ids=str)
def test_transposed_copies(name, shape):
    a = np.arange(math.prod(shape)).astype(name).reshape(shape)
    x = norch.from_numpy(a)
    reverse = tuple(range(a.ndim))[::-1]
    np.testing.assert_array_equal(x.permute(reverse).contiguous().numpy(), a.transpose(reverse))
    out = norch.zeros(shape[::-1], dtype=getattr(norch, name))
    out.permute(reverse).copy_(x)
    np.testing.assert_array_equal(out.numpy(), a.transpose(reverse))


@pytest.mark.parametrize("count", [*range(1, 40), 63, 64, 65, 16384, 16385, 100_003])
def test_every_length(count):
    a = np.linspace(-5, 5, count, dtype=np.float32)
    x = norch.from_numpy(a)
    np.testing.assert_array_equal((x * 3 - 1).numpy(), a * np.float32(3) - np.float32(1))
    np.testing.assert_array_equal((1 - x).numpy(), np.float32(1) - a)
    np.testing.assert_array_equal((x > 0).numpy(), a > 0)
    np.testing.assert_array_equal(norch.where(x > 0, x, 0.5).numpy(), np.where(a > 0, a, np.float32(0.5)))
    pairs = np.stack([a, -a], 1)
    for part, values in enumerate((a, -a)):
        np.testing.assert_array_equal(norch.from_numpy(pairs)[:, part].contiguous().numpy(), values)


def test_nothing_beside_a_strided_output_is_written():
    whole = norch.full((80, 300), 7.0)
    part = whole[3:70:2, 5:290:3]
    part.copy_(norch.ones(part.shape))
    want = np.full((80, 300), 7.0, np.float32)
    want[3:70:2, 5:290:3] = 1
    np.testing.assert_array_equal(whole.numpy(), want)


@pytest.mark.parametrize("name", ["int64", "int32", "int16", "int8"])
def test_integers_wrap_around(name):
    info = np.iinfo(name)
    x = norch.tensor([info.min, info.max, -1], dtype=getattr(norch, name))
    assert (x + 1).tolist() == [info.min + 1, info.min, 0]
    assert (-x).tolist() == [info.min, -info.max, 1]
    assert norch.abs(x).tolist() == [info.min, info.max, 1]
    assert (x * x).tolist() == [0, 1, 1]
    assert (x // -1).tolist() == [info.min, -info.max, 1]
    assert (x % -1).tolist() == [0, 0, 0]


def test_division_follows_python():
    pairs = [(a, b) for a in (-7, -1, 0, 1, 7) for b in (-3, -1, 1, 2, 3)]
    a, b = norch.tensor([p[0] for p in pairs]), norch.tensor([p[1] for p in pairs])
    assert (a // b).tolist() == [x // y for x, y in pairs]
    assert (a % b).tolist() == [x % y for x, y in pairs]
    assert (a.float() // b.float()).tolist() == [float(x // y) for x, y in pairs]
    assert (a.float() % b.float()).tolist() == [float(x % y) for x, y in pairs]


def test_division_of_int64_by_one_number():
    rng = np.random.default_rng(5)
    info = np.iinfo(np.int64)
    edges = [0, 1, -1, 2, -2, info.max, info.min, info.max - 1, info.min + 1, 2**53 + 1, -(2**53) - 1]
    a = np.concatenate([edges, rng.integers(info.min, info.max, 300), rng.integers(-50, 50, 300)])
    powers = [2**k + d for k in range(1, 63) for d in (-1, 0, 1)]
    for divisor in [*powers, 3, 5, 6, 7, 10, 641, 10**9 + 7, info.max, info.max - 1, -1, -7, info.min]:
        want = [(x // divisor + 2**63) % 2**64 - 2**63 for x in a.tolist()], [x % divisor for x in a.tolist()]
        x = norch.from_numpy(a)
        assert (x // divisor).tolist() == want[0], divisor
        assert (x % divisor).tolist() == want[1], divisor


def test_division_of_integers_by_zero_raises():
    x = norch.arange(100_000)
    for op in (norch.floor_divide, norch.remainder):
        with pytest.raises(ZeroDivisionError):
            op(x, x)
        with pytest.raises(ZeroDivisionError):
            op(x, 0)


def test_integer_powers():
    bases, exponents = [-2, -1, 0, 1, 2, 3], [-3, -2, -1, 0, 1, 2, 5]
    a, b = norch.tensor(bases), norch.tensor(exponents)

    def power(x, n):
        return x**n if n >= 0 else (0 if abs(x) != 1 else (1 if x == 1 or n % 2 == 0 else -1))

    assert (a.unsqueeze(1) ** b).tolist() == [[power(x, n) for n in exponents] for x in bases]


def test_shifts_past_the_width():
    x = norch.tensor([5, -5], dtype=norch.int32)
    assert (x << norch.tensor([40, 40], dtype=norch.int32)).tolist() == [0, 0]
    assert (x >> norch.tensor([40, 40], dtype=norch.int32)).tolist() == [0, -1]
    assert (x >> 1).tolist() == [2, -3]


def test_nan_wins():
    nan = math.nan
    a, b = norch.tensor([nan, 1.0, nan, -0.0]), norch.tensor([1.0, nan, nan, 0.0])
    assert [math.isnan(v) for v in norch.maximum(a, b).tolist()] == [True, True, True, False]
    assert [math.isnan(v) for v in norch.minimum(a, b).tolist()] == [True, True, True, False]
    assert math.isnan(norch.sign(a)[0].item())


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_of_16_bit_floats(name):
    dtype = numpy_dtype(name)
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        steps = np.concatenate([every, np.nextafter(every, np.float32(np.inf)), every * np.float32(1.0003)])
        want = steps.astype(dtype).astype(np.float32)
    got = norch.from_numpy(steps).to(getattr(norch, name)).float().numpy()
    np.testing.assert_array_equal(got, want)


def test_many_operands_of_one_memory():
    x = norch.arange(50_000, dtype=norch.float32)
    x.add_(x)
    x.mul_(x)
    np.testing.assert_array_equal(x.numpy(), (np.arange(50_000, dtype=np.float32) * 2) ** 2)


@pytest.mark.parametrize("name", DTYPES[:-1])
@pytest.mark.parametrize("shape", [(7,), (67, 131), (70_001,)], ids=str)
def test_clamp_by_numbers(name, shape):
    a = values(name, *shape)
    for _, an, at in layouts(a):
        np.testing.assert_array_equal(as_float(at.clamp(1, 4)), np.clip(an.astype(float), 1, 4))
        np.testing.assert_array_equal(as_float(at.clamp(min=2)), np.maximum(an.astype(float), 2))
        np.testing.assert_array_equal(as_float(at.clamp(6, 3)), np.full(shape, 3.0))  # the upper bound wins
        np.testing.assert_array_equal(as_float(at.clone().clamp_(1, 4)), np.clip(an.astype(float), 1, 4))


def test_clamp_keeps_nan_and_takes_infinite_bounds():
    x = norch.tensor([math.nan, -math.inf, 5.0, math.inf])
    np.testing.assert_array_equal(x.clamp(-1, 1).numpy(), np.float32([math.nan, -1, 1, 1]))
    np.testing.assert_array_equal(x.clamp(max=0).numpy(), np.float32([math.nan, -math.inf, 0, 0]))
    assert all(math.isnan(v) for v in x.clamp(math.nan, 1).tolist() + x.clamp(0, math.nan).tolist())


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(1,), (67, 131), (70_001,)], ids=str)
def test_add_with_alpha(name, shape):
    a, b = values(name, *shape), values(name, *shape, seed=1)
    want = a.astype(float) + 0.5 * b.astype(float)
    for _, _, at in layouts(a):
        for _, _, bt in layouts(b):
            np.testing.assert_array_equal(as_float(at.add(bt, alpha=0.5)), want)
            np.testing.assert_array_equal(as_float(at.clone().sub_(bt, alpha=-0.5)), want)
    x, y = tensor(a), tensor(b)
    np.testing.assert_array_equal(as_float(x.add(y[:1], alpha=2)), a.astype(float) + 2 * b[:1].astype(float))
    np.testing.assert_array_equal(as_float(x[:1].add(y, alpha=2)), a[:1].astype(float) + 2 * b.astype(float))
    if a.itemsize > 2:  # 16-bit floats are computed in float32, tile by tile
        before = norch.cpu.memory_stats()["allocated_bytes"]
        norch.cpu.reset_peak_memory_stats()
        x.add_(y, alpha=3)
        assert norch.cpu.memory_stats()["peak_allocated_bytes"] == before


@pytest.mark.parametrize("name", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("columns", [5, 257, 1000])
def test_weighted_sums_round_each_step(name, columns):
    """Of three operands, each with all elements, one row, one column or one element; also over the first."""
    rng = np.random.default_rng(0)
    wide = np.float64 if name == "float64" else np.float32  # what 16 bits are computed in
    full, *others = forms = [(3, columns), (1, columns), (3, 1), (1, 1)]
    for shapes in [*itertools.product([full], forms, forms), *itertools.product(others, forms, [full])]:
        given = [rng.uniform(0.2, 2, shape).astype(numpy_dtype(name)) for shape in shapes]
        x, y, z = [norch.tensor(v.astype(float)).to(getattr(norch, name)) for v in given]
        a, b, c = [v.astype(wide) for v in given]
        step = b - a
        cases = [
            ("addcmul", a + b * wide(0.3) * c, (y, z), {"value": 0.3}),
            ("addcdiv", a + b * wide(0.3) / c, (y, z), {"value": 0.3}),
            ("lerp", np.where(c < 0.5, a + step * c, b - step * (1 - c)), (y, z), {}),
            ("lerp", a + step * wide(0.3), (y, 0.3), {}),
            ("lerp", b - step * wide(1 - 0.7), (y, 0.7), {}),
        ]
        for op, want, args, options in cases:
            want = want.astype(numpy_dtype(name)).astype(float)
            np.testing.assert_array_equal(as_float(getattr(x, op)(*args, **options)), want, err_msg=f"{op} {shapes}")
            if want.shape == a.shape:
                np.testing.assert_array_equal(as_float(getattr(x.clone(), op + "_")(*args, **options)), want)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_16_bit_arithmetic_rounds_float32_once(name, op):
    """Of every length and layout; a number is not rounded first."""
    rng = np.random.default_rng(3)
    f, dtype = getattr(norch, op), getattr(norch, name)
    for n in (1, 7, 8, 9, 16, 31, 4099):
        a, b = [norch.from_numpy(rng.normal(size=(3, n)).astype(np.float32)).to(dtype) for _ in "ab"]
        one = a[:, :1].expand(3, n)
        swapped = a.t().contiguous().t()
        for x, y in ((a, b), (a, b[:1]), (one, b), (swapped, b), (a, b[0, 0]), (a[:, ::2], b[:, ::2]), (one, one)):
            np.testing.assert_array_equal(as_float(f(x, y)), as_float(f(x.float(), y.float()).to(dtype)))
        for x in (a, one, swapped):
            np.testing.assert_array_equal(as_float(f(x, 0.1)), as_float(f(x.float(), 0.1).to(dtype)))
            np.testing.assert_array_equal(as_float(x.relu()), as_float(x.float().relu().to(dtype)))
        want = f(a.float(), b.float()).to(dtype)
        np.testing.assert_array_equal(as_float(getattr(a, f"{op}_")(b)), as_float(want))


def test_16_bit_arithmetic_at_edges():
    numbers = [0.0, -0.0, math.inf, -math.inf, math.nan, 65504.0, -65504.0, 6e-8, -6e-8, 1.0, 3.0e38, 1e-40]
    a, b = [v.ravel() for v in np.meshgrid(np.array(numbers, np.float32), np.array(numbers, np.float32))]
    for dtype in (norch.float16, norch.bfloat16):
        x, y = norch.from_numpy(a).to(dtype), norch.from_numpy(b).to(dtype)
        for f in (norch.add, norch.sub, norch.mul, norch.div):
            got, want = as_float(f(x, y)), as_float(f(x.float(), y.float()).to(dtype))
            np.testing.assert_array_equal(got, want)
            number = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))
