"""Reductions of the native kernels against NumPy in a wider type, on every layout and dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest
from reductions_harness import DTYPES, EPS, FLOATS, INTS, LAYOUTS, ids, numbers, placed

import norch
from norch.backend import Operand
from norch_cpu.backend import CpuBackend
from norch_cpu.native import native

BACKEND = CpuBackend()
SHAPES = [
    ((0,), (0,)),
    ((1,), (0,)),
    ((3, 0), (0,)),
    ((0, 3), (0,)),
    ((7,), (0,)),
    ((2051,), (0,)),
    ((300_001,), (0,)),
    ((5, 17), (1,)),
    ((5, 17), (0,)),
    ((300, 3), (0,)),
    ((1037, 33), (0,)),
    ((70, 2500), (0,)),
    ((3, 70_001), (1,)),
    ((4, 60, 31), (1,)),
    ((9, 5, 13), (0, 2)),
    ((9, 64, 4, 2), (0, 2)),
    ((6, 1, 5), (0, 1, 2)),
    ((40, 3, 70, 70), (0, 2, 3)),
]


@pytest.fixture(autouse=True)
def several_threads():
    before = native.num_threads()
    native.set_num_threads(3)
    yield
    native.set_num_threads(before)


def bits(x):
    return x.numpy().tobytes()


def kernel_call(op, out, inputs, attrs):
    """Runs a primitive into a strided output; gives the output's whole buffer."""
    buffers, operands = [], []
    for array, dtype, strides, size in (out, *inputs):
        buffer = BACKEND.allocate(size * dtype.itemsize, 0)
        flat = np.full(size, 77, dtype.numpy)
        np.lib.stride_tricks.as_strided(flat, array.shape, [s * dtype.itemsize for s in strides])[...] = array
        BACKEND.copy_in(buffer, 0, memoryview(flat.view(np.uint8)))
        buffers += [buffer, 0]
        operands.append(Operand(dtype, array.shape, strides))
    BACKEND.compile(op, tuple(operands), attrs)(*buffers)
    dtype, size = out[1], out[3]
    flat = np.empty(size, dtype.numpy)
    BACKEND.copy_out(buffers[0], 0, memoryview(flat.view(np.uint8)))
    return flat


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_sums_are_as_accurate_as_pairwise_ones(shape, dims, layout):
    for dtype in FLOATS if math.prod(shape) < 10_000 else FLOATS[1::2]:
        x, array = placed(numbers(shape, dtype), dtype, layout)
        got = x.sum(list(dims)).numpy().astype(np.float64)
        wide = array.astype(np.longdouble)
        exact = wide.sum(dims)
        # Each addition's error is at most half an eps of what there is so far; 50 of them follow one on the other.
        bound = 50 * EPS["float64" if dtype is norch.float64 else "float32"] * np.abs(wide).sum(dims)
        if dtype.itemsize == 2:
            bound = bound + EPS[dtype.name] * np.abs(exact) / 1.9 + 1e-6
        assert (np.abs(got - exact) <= bound).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_sums_of_squares(shape, dims, layout):
    for dtype in (norch.float32, norch.float64):
        x, array = placed(numbers(shape, dtype), dtype, layout)
        got = norch.linalg.vector_norm(x, dim=dims).double().numpy()
        exact = np.sqrt((array.astype(np.longdouble) ** 2).sum(dims))
        assert (np.abs(got - exact) <= 30 * EPS[dtype.name] * exact).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_integers_wrap_around(shape, dims, layout):
    for dtype in INTS if math.prod(shape) < 10_000 else [norch.int32, norch.int8]:
        x, array = placed(numbers(shape, dtype) * 3 + 1, dtype, layout)
        with np.errstate(all="ignore"):
            total, product = array.sum(dims, dtype.numpy), array.prod(dims, dtype.numpy)
        assert np.array_equal(x.sum(list(dims), dtype=dtype).numpy(), total)
        assert np.array_equal(x.prod(list(dims), dtype=dtype).numpy(), product)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_counts(shape, dims, layout):
    for dtype in DTYPES if math.prod(shape) < 10_000 else [norch.float32, norch.bool]:
        x, array = placed(numbers(shape, dtype) * (numbers(shape, norch.bool, 1)), dtype, layout)
        want = np.count_nonzero(array, axis=dims)
        np.testing.assert_array_equal(x.count_nonzero(list(dims)).numpy(), want)
        np.testing.assert_array_equal((x != 0).sum(list(dims)).numpy(), want)
    edges = norch.tensor([0.0, -0.0, math.nan, math.inf, 1e-45])
    assert edges.count_nonzero().item() == 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_extremes(shape, dims, layout):
    if 0 in [shape[d] for d in dims]:
        with pytest.raises(norch.ShapeError):
            norch.zeros(shape).amax(list(dims))
        return
    for dtype in DTYPES if math.prod(shape) < 10_000 else [norch.float32, norch.bfloat16, norch.int8]:
        x, array = placed(numbers(shape, dtype) - (50 if dtype.is_signed else 0), dtype, layout)
        wide = array.astype(np.float64)
        assert np.array_equal(x.amax(list(dims)).numpy().astype(np.float64), wide.max(dims))
        assert np.array_equal(x.amin(list(dims)).numpy().astype(np.float64), wide.min(dims))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "dims"), SHAPES, ids=str)
def test_any_and_all(shape, dims, layout):
    for share in (0.001, 0.999):
        x, array = placed(np.random.default_rng(1).random(shape) < share, norch.bool, layout)
        for dim in dims:
            assert np.array_equal(x.any(dim).numpy(), array.any(dim))
            assert np.array_equal(x.all(dim).numpy(), array.all(dim))
        assert x.any().item() is bool(array.any())
        assert x.all().item() is bool(array.all())


@pytest.mark.parametrize("dtype", FLOATS, **ids)
@pytest.mark.parametrize("n", [1, 3, 16, 77, 5000, 140_000])
def test_a_nan_wins_wherever_it_is(n, dtype):
    for at in {0, n // 3, n - 1}:
        values = np.linspace(-1, 1, n)
        values[at] = np.nan
        if n > 5:
            values[at - 2] = np.inf
        for x in (norch.tensor(values, dtype=dtype), norch.tensor(np.stack([values] * 2), dtype=dtype).T[:, 0]):
            assert math.isnan(x.amax().item())
            assert math.isnan(x.amin().item())
            assert math.isnan(x.sum().item())
            assert x.argmax().item() == x.argmin().item() == at
        both = norch.tensor(np.stack([values, np.linspace(-1, 1, n)], 1), dtype=dtype)
        assert [math.isnan(v) for v in both.amax(0).tolist()] == [True, False]
        assert both.argmax(0).tolist()[0] == at


@pytest.mark.parametrize("dtype", FLOATS, **ids)
def test_infinities_and_signed_zeros(dtype):
    inf = math.inf
    assert norch.tensor([inf, 1.0, inf] * 50, dtype=dtype).sum().item() == inf
    assert math.isnan(norch.tensor([inf, 1.0, -inf] * 50, dtype=dtype).sum().item())
    assert norch.tensor([-inf] * 40, dtype=dtype).amax().item() == -inf
    assert norch.tensor([inf] * 40, dtype=dtype).amin().item() == inf
    assert math.isnan(norch.tensor([inf, 0.0] * 9, dtype=dtype).prod().item())
    for n in (1, 5, 16, 300):
        x = norch.full((n, 2), -0.0, dtype=dtype)
        assert [math.copysign(1, v) for v in x.sum(0).tolist()] == [-1, -1]
        assert math.copysign(1, x.sum().item()) == -1
    assert math.copysign(1, norch.zeros(0, dtype=dtype).sum().item()) == 1


@pytest.mark.parametrize("dtype", [norch.float16, norch.bfloat16], **ids)
def test_16_bit_floats_add_up_in_float32(dtype):
    ones = norch.ones(20_000, 2, dtype=dtype)
    expected = float(np.float64(20_000).astype(dtype.numpy))
    assert ones.sum(0).tolist() == ones.T.contiguous().sum(1).tolist() == [expected] * 2
    assert ones.cumsum(0)[-1].tolist() == [expected] * 2


def test_reductions_of_nothing():
    for dtype in DTYPES:
        x = norch.zeros((0, 3), dtype=dtype)
        assert x.sum(0, dtype=dtype).tolist() == [0] * 3
        assert x.prod(0, dtype=dtype).tolist() == [1] * 3
        assert x.any(0).tolist() == [False] * 3
        assert x.all(0).tolist() == [True] * 3
        assert x.amax(1).shape == (0,)
        assert x.argmin(1).shape == (0,)
    for op in (norch.argmax, norch.argmin, norch.amax, norch.amin):
        with pytest.raises(norch.ShapeError):
            op(norch.zeros(2, 0), 1)


def test_0d():
    for dtype in DTYPES:
        x = norch.tensor(1, dtype=dtype)
        for name in ("sum", "prod", "amax", "amin", "any", "all"):
            assert getattr(x, name)().item() == 1
        assert x.argmax().item() == x.argmin(0).item() == 0
        assert x.cumsum(0).item() == 1


@pytest.mark.parametrize("dtype", FLOATS[:2], **ids)
@pytest.mark.parametrize("shape", [(5,), (33, 7), (7, 33), (300, 20)])
def test_prod_of_floats(shape, dtype):
    values = np.random.default_rng(2).choice([0.5, -1.0, 2.0, 1.0], shape)
    x = norch.tensor(values, dtype=dtype)
    for dim in range(len(shape)):
        assert np.array_equal(x.prod(dim).numpy(), values.prod(dim))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64], **ids)
@pytest.mark.parametrize("n", range(1, 18))
def test_rows_of_few_elements(n, dtype):
    values = np.random.default_rng(n).normal(size=(150, n))
    values[3, 0], values[4, -1], values[5] = np.nan, np.inf, -0.0
    for x in (norch.tensor(values, dtype=dtype), norch.tensor(np.repeat(values, 2, 1), dtype=dtype)[:, ::2]):
        wide, room = x.numpy().astype(np.float64), 1e-15 if dtype is norch.float64 else 1e-6
        assert np.array_equal(x.amax(1).numpy(), wide.max(1), equal_nan=True)
        assert np.array_equal(x.amin(1).numpy(), wide.min(1), equal_nan=True)
        near = np.abs(wide).sum(1) * room
        for found, want in ((x.sum(1), wide.sum(1)), (x.norm(dim=1), np.sqrt((wide**2).sum(1)))):
            known = np.isfinite(want)
            assert np.all(np.abs(found.double().numpy()[known] - want[known]) <= near[known])
            assert np.array_equal(found.double().numpy()[~known], want[~known], equal_nan=True)
        np.testing.assert_allclose(x.prod(1).double().numpy(), wide.prod(1), n * room)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "shape", [(1,), (5, 17), (17, 5), (64, 10), (3, 2051), (2051, 3), (4, 60, 31), (2, 140_001)], ids=str
)
def test_argmax_takes_the_first_of_equals(shape, layout):
    for dtype in DTYPES if math.prod(shape) < 10_000 else [norch.float32, norch.int16]:
        x, array = placed(np.random.default_rng(3).integers(0, 2 if dtype is norch.bool else 90, shape), dtype, layout)
        wide = array.astype(np.float64)
        for dim in range(len(shape)):
            assert np.array_equal(x.argmax(dim).numpy(), wide.argmax(dim))
            assert np.array_equal(x.argmin(dim, keepdim=True).numpy(), wide.argmin(dim, keepdims=True))
        assert x.argmax().item() == wide.argmax()


@pytest.mark.parametrize("n", [*range(1, 70), 100, 127, 128, 129, 196, 257])
def test_short_rows(n):
    rng = np.random.default_rng(n)
    for dtype in DTYPES:
        values = rng.integers(0, 2 if dtype is norch.bool else 9, (9, n))
        if dtype.is_floating_point or dtype in (norch.int64, norch.int32):
            values = values - 4
        x = norch.tensor(values, dtype=dtype)
        assert np.array_equal(x.sum(1).numpy(), values.sum(1))
        assert np.array_equal(x.amax(1).numpy(), values.max(1))
        assert np.array_equal(x.amin(1).numpy(), values.min(1))
        assert np.array_equal(x.argmax(1).numpy(), values.argmax(1))
        signs = np.where(values > 2, -1, 1) if dtype.is_floating_point else np.ones_like(values)
        assert np.array_equal(norch.tensor(signs, dtype=dtype).prod(1).numpy(), signs.prod(1))
        if dtype.is_floating_point:
            odd = np.zeros((n, n))
            for special in (math.nan, math.inf, -math.inf):
                np.fill_diagonal(odd, special)
                y = norch.tensor(odd, dtype=dtype)
                for found in (y.sum(1), y.amin(1) if special < 0 else y.amax(1)):
                    assert np.array_equal(found.numpy().astype(np.float64), [special] * n, equal_nan=True)


def test_the_number_of_threads_changes_nothing():
    rng = np.random.default_rng(4)
    for shape, dim in [((700_001,), 0), ((3000, 300), 0), ((300, 3000), 1), ((2, 300_000), 1), ((90_000, 5), 0)]:
        x = norch.tensor(rng.normal(size=shape).astype(np.float32))
        results = set()
        for count in (1, 2, 5):
            native.set_num_threads(count)
            results.add(
                (bits(x.sum(dim)), bits(x.prod(dim)), bits(x.argmax(dim)), bits(x.cumsum(dim)))
                + (bits(x.cumprod(dim)), bits(x.cummax(dim)[1]))
            )
        assert len(results) == 1


@pytest.mark.parametrize("dtype", DTYPES, **ids)
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), ()])
def test_strided_outputs(dims, dtype):
    array = numbers((6, 5, 9), dtype, 5).astype(dtype.numpy)
    x = (array, dtype, (45, 9, 1), 270)
    kept = tuple(1 if d in dims else n for d, n in enumerate(array.shape))
    strides = (2, 13, 70)
    size = 1 + sum((n - 1) * s for n, s in zip(kept, strides)) + 3
    wide = array.astype(np.float64)
    for op, f in [("sum", np.add), ("amax", np.maximum), ("amin", np.minimum)]:
        flat = kernel_call(op, (np.zeros(kept, dtype.numpy), dtype, strides, size), [x], {"dims": dims})
        where = np.ndarray(kept, np.int64, np.arange(size), 0, [8 * s for s in strides])
        want = f.reduce(wide, dims, keepdims=True)
        got = flat[where].astype(np.float64)
        if dtype is norch.bool:
            want = want != 0
        elif not dtype.is_floating_point:
            want = want.astype(np.int64).astype(dtype.numpy).astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=EPS.get(dtype.name, 0), atol=1e-2 if dtype.itemsize == 2 else 1e-6)
        flat[where] = 77
        assert (flat.astype(np.float64) == np.full(size, 77, dtype.numpy).astype(np.float64)).all()


@pytest.mark.parametrize("dim", [0, 1])
def test_strided_outputs_of_argmax_and_cumsum(dim):
    array = np.random.default_rng(6).integers(0, 9, (6, 11)).astype(np.float32)
    x = (array, norch.float32, (11, 1), 66)
    kept = tuple(1 if d == dim else n for d, n in enumerate(array.shape))
    flat = kernel_call("argmax", (np.zeros(kept, np.int64), norch.int64, (3, 30), 340), [x], {"dims": (dim,)})
    where = np.ndarray(kept, np.int64, np.arange(340), 0, (24, 240))
    assert np.array_equal(flat[where], array.argmax(dim, keepdims=True))
    flat = kernel_call("cumsum", (array, norch.float32, (3, 30), 340), [x], {"dim": dim})
    where = np.ndarray(array.shape, np.int64, np.arange(340), 0, (24, 240))
    assert np.array_equal(flat[where], array.cumsum(dim))


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32, norch.float16], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(1,), (3, 1), (7,), (3, 50), (2, 3, 20)])
def test_gradients_of_products_are_those_of_the_formula(shape, dtype):
    from norch.ops.families import by_name

    rng = np.random.default_rng(len(shape))
    values = rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1, 0], shape, p=[0.5, 0.45, 0.05])
    x = norch.tensor(values).to(dtype)
    g = norch.tensor(rng.normal(size=shape)).to(dtype)
    near = dict(rtol={2: 3e-3, 4: 3e-6, 8: 1e-12}[dtype.itemsize], atol={2: 1e-3, 4: 1e-6, 8: 1e-13}[dtype.itemsize])

    for given in (g, g[..., :1].expand(shape)):
        expected = by_name()["cumprod_grad"].decompose(given, x, x.ndim - 1).double().numpy()
        found = by_name()["cumprod_grad"].call(given, x, x.ndim - 1)
        np.testing.assert_allclose(found.double().numpy(), expected, **near)
        if x.ndim == 2:
            found = by_name()["cumprod_grad"].call(given.t(), x.t(), 0).t()
            np.testing.assert_allclose(found.double().numpy(), expected, **near)
    expected = by_name()["prod_of_others"].decompose(x).double().numpy()
    np.testing.assert_allclose(by_name()["prod_of_others"].call(x).double().numpy(), expected, **near)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((7, 33), -1), ((4, 3, 5, 9), (2, 3)), ((300,), None), ((5, 1), 1), ((3, 70_000), 1), ((6, 8), 0)],
)
def test_variance_beside_a_large_mean(shape, dim, dtype):
    x = np.random.default_rng(4).standard_normal(shape) * 0.5 + 300
    x = x.astype(dtype)
    exact, at = x.astype(np.longdouble), tuple(range(len(shape))) if dim is None else dim
    count = x.size // np.var(exact, axis=at, keepdims=True).size
    off = exact - exact.mean(at, keepdims=True)
    leaf = norch.tensor(x, requires_grad=True)
    found = leaf.var(dim, keepdim=True)
    g = np.random.default_rng(5).standard_normal(found.shape)
    slope = norch.autograd.grad(found, leaf, norch.tensor(g.astype(dtype)))[0]
    bound = 2e-6 if dtype is np.float32 else 4e-15
    with np.errstate(invalid="ignore"):
        degrees = np.float64(count - 1)
        np.testing.assert_allclose(found.detach().numpy(), (off**2).sum(at, keepdims=True) / degrees, bound)
        expected = off * 2 * g.astype(dtype) / degrees
    np.testing.assert_allclose(
        slope.numpy(), expected.astype(float), atol=bound * np.abs(np.nan_to_num(expected)).max()
    )


@pytest.mark.parametrize("rows", [999, 1000, 1007, 2063])
@pytest.mark.parametrize("columns", [2, 3, 5])
def test_sums_of_long_narrow_matrices_are_close_to_exact(rows: int, columns: int) -> None:
    """Rows beside those that are folded together were added to the total one by one, and rounded by its last digit:
    points in a plane did not lie in one when their mean was subtracted."""
    values = np.full((rows, columns), 0.02, np.float32)
    exact = values.astype(np.float64).sum(0)
    found = norch.tensor(values).sum(0).numpy()
    assert (np.abs(found - exact) <= 1.5e-7 * exact).all()
    least = norch.tensor(-values).amax(0)
    assert least.tolist() == [np.float32(-0.02)] * columns
