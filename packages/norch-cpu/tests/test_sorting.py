"""sort of the native kernels against Python's own, on every layout and dtype."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch
from norch.backend import Operand
from norch_cpu.backend import CpuBackend
from norch_cpu.native import native

FLOATS = [norch.float64, norch.float32, norch.float16, norch.bfloat16]
DTYPES = [*FLOATS, norch.int64, norch.int32, norch.int16, norch.int8, norch.uint8, norch.bool]
SIZES = [1, 2, 7, 100, 192, 193, 1000]
ids = {"ids": lambda v: v.name if isinstance(v, norch.dtype) else None}


def numbers(shape, dtype, seed=0):
    """Few values, so that many are equal; among the floats NaN, infinities and both zeros."""
    rng = np.random.default_rng(seed)
    if dtype is norch.bool:
        return rng.integers(0, 2, shape).astype(bool)
    if not dtype.is_floating_point:
        info = np.iinfo(dtype.numpy)
        return rng.choice(np.array([info.min, info.max, 0, 1, 5, 100], dtype.numpy), shape)
    special = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-7, -1e-7, 3.0, -3.0])
    drawn = rng.integers(0, 40, shape)
    return np.where(drawn < 9, special[drawn % 9], rng.normal(size=shape).round(1))


def expected_order(line, descending):
    """Python's sort is stable, in reverse too."""
    keys = [(math.isnan(v), 0.0 if math.isnan(v) else v) for v in line]
    return sorted(range(len(line)), key=keys.__getitem__, reverse=descending)


def check(x, dim, descending):
    values, indices = x.sort(dim, descending)
    array, order = x.contiguous().numpy(), indices.numpy()
    assert indices.dtype is norch.int64
    assert values.numpy().tobytes() == np.take_along_axis(array, order, dim).tobytes()
    number = int if array.dtype == np.int64 else float
    lines = np.moveaxis(array, dim, -1).reshape(-1, array.shape[dim])
    orders = np.moveaxis(order, dim, -1).reshape(-1, array.shape[dim])
    for line, got in zip(lines, orders):
        assert got.tolist() == expected_order([number(v) for v in line], descending)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_sort_is_stable_and_nan_is_largest(dtype, descending):
    for n in SIZES:
        check(norch.tensor(numbers((n,), dtype, n), dtype=dtype), 0, descending)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_topk_takes_the_first_in_stable_order(dtype, largest):
    for n in (2, 5, 64, 65, 200, 1000):
        x = norch.tensor(numbers((3, n), dtype, n), dtype=dtype)
        array, number = x.numpy(), int if dtype is norch.int64 else float
        for k in sorted({1, 2, 3, 4, 5, 9, n // 2, n}):
            if k <= n:
                for given in (x, x.t().contiguous().t()):
                    values, indices = given.topk(k, 1, largest)
                    want = [expected_order([number(v) for v in line], largest)[:k] for line in array]
                    assert indices.tolist() == want
                    assert values.numpy().tobytes() == np.take_along_axis(array, np.array(want), 1).tobytes()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.int8], **ids)
def test_dims_and_layouts(dtype, descending):
    array = numbers((5, 7, 210), dtype)
    x = norch.tensor(array, dtype=dtype)
    views = [x, x.permute((2, 0, 1)), x[1:, ::2, 3:90], x[:, :1, :20].expand(5, 4, 20)]
    for view in views:
        for dim in range(3):
            check(view, dim, descending)


@pytest.mark.parametrize("dtype", [norch.float32, norch.int64, norch.float16, norch.uint8], **ids)
@pytest.mark.parametrize(("shape", "dim"), [((70, 1024), 0), ((2, 65, 1024), 1), ((3, 100, 8, 128), 1)])
def test_lines_whose_elements_fall_upon_few_places_of_the_cache(shape, dim, dtype):
    x = norch.tensor(numbers(shape, dtype), dtype=dtype)[..., :-3]
    lines = x.movedim(dim, -1).contiguous()
    for got, want in (
        (x.sort(dim), lines.sort(-1)),
        (x.topk(5, dim), lines.topk(5)),
        (x.median(dim), lines.median(-1)),
    ):
        wanted = [w.movedim(-1, dim) if w.ndim == x.ndim else w for w in want]
        assert got[0].numpy().tobytes() == wanted[0].contiguous().numpy().tobytes()
        assert norch.equal(got[1], wanted[1])
    assert norch.equal(x.argsort(dim, stable=True), lines.sort(-1, stable=True)[1].movedim(-1, dim))


def test_many_rows_in_several_threads():
    before = native.num_threads()
    for count in (1, 3):
        native.set_num_threads(count)
        check(norch.tensor(numbers((500, 40), norch.float32), dtype=norch.float32), 1, False)
        check(norch.tensor(numbers((200, 60), norch.float32), dtype=norch.float32), 0, True)
    native.set_num_threads(before)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.int64, norch.int16], **ids)
def test_long_rows(dtype):
    rng = np.random.default_rng(1)
    array = rng.integers(-30_000, 30_000, 50_000).astype(dtype.numpy)
    values, indices = norch.tensor(array).sort()
    order = np.argsort(array, kind="stable")
    assert np.array_equal(indices.numpy(), order)
    assert np.array_equal(values.numpy(), array[order])


def test_nothing_and_0d():
    for shape in ((0, 3), (3, 0)):
        for dim in (0, 1):
            values, indices = norch.zeros(shape).sort(dim)
            assert values.shape == indices.shape == shape
    values, indices = norch.tensor(2.5).sort(0)
    assert (values.item(), indices.item()) == (2.5, 0)
    with pytest.raises(norch.IndexError):
        norch.zeros(2, 3).sort(2)


@pytest.mark.parametrize("dim", [0, 1])
def test_strided_outputs(dim):
    backend = CpuBackend()
    array = np.random.default_rng(2).integers(0, 9, (6, 11)).astype(np.float32)
    strides, size = (3, 30), 340
    buffers = [backend.allocate(size * n, 0) for n in (4, 8)]
    x = backend.allocate(66 * 4, 0)
    backend.copy_in(x, 0, memoryview(array.view(np.uint8).ravel()))
    guard = memoryview(np.full(size * 8, 0x5A, np.uint8))
    for buffer, n in zip(buffers, (4, 8)):
        backend.copy_in(buffer, 0, guard[: size * n])
    outs = tuple(Operand(d, (6, 11), strides) for d in (norch.float32, norch.int64))
    kernel = backend.compile(
        "sort", (*outs, Operand(norch.float32, (6, 11), (11, 1))), {"dim": dim, "descending": False}
    )
    kernel(buffers[0], 0, buffers[1], 0, x, 0)
    order = np.argsort(array, dim, kind="stable")
    where = np.ndarray((6, 11), np.int64, np.arange(size), 0, (24, 240))
    for buffer, dtype, want in zip(buffers, (np.float32, np.int64), (np.take_along_axis(array, order, dim), order)):
        flat = np.empty(size, dtype)
        backend.copy_out(buffer, 0, memoryview(flat.view(np.uint8)))
        assert np.array_equal(flat[where], want)
        flat[where] = np.frombuffer(bytes(guard[:8]), dtype)[0]
        assert (flat.view(np.uint8) == 0x5A).all()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("runs", [1, 7, 90, 5000], ids=str)
def test_numbers_of_64_bits_that_differ_in_one_half(runs, descending):
    rng = np.random.default_rng(runs)
    upper, lower = rng.integers(-(2**31), 2**31, runs), rng.integers(0, 2**32, 40)
    array = (rng.choice(upper, (2, 5000)) << 32) | rng.choice(lower, (2, 5000))
    floats = 1 + (array & 0xFFFFFFFF) * 2.0**-52 + rng.integers(0, runs, array.shape)
    floats[:, ::700], floats[:, ::900], floats[:, ::1100] = np.nan, -0.0, 0.0
    for values in (array, floats):
        expected = np.argsort(
            -values if descending and values is floats else ~values if descending else values, 1, "stable"
        )
        if descending and values is floats:  # NaN comes first
            count = np.isnan(values).sum(1)
            expected = np.stack([np.roll(e, c) for e, c in zip(expected, count, strict=True)])
        for x in (norch.tensor(values), norch.tensor(values.T.copy()).T):
            found, indices = x.sort(1, descending=descending)
            assert np.array_equal(indices.numpy(), expected)
            assert np.array_equal(found.numpy(), np.take_along_axis(values, expected, 1), equal_nan=values is floats)


@pytest.mark.parametrize("bits", [20, 24, 31, 40, 62, 64])
@pytest.mark.parametrize("n", [1999, 5000, 140000])
def test_integers_that_are_spread_evenly(n, bits):
    rng = np.random.default_rng(n + bits)
    numbers = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), n, np.int64)
    numbers[rng.integers(0, n, n // 3)] = numbers[rng.integers(0, n, n // 3)]  # equals
    numbers[: n // 100] = numbers[0] + rng.integers(0, 3, n // 100)  # and many that are close
    for array in (numbers, numbers.astype(np.int32)):
        x = norch.tensor(array)
        for descending in (False, True):
            order = (
                n - 1 - np.argsort(array[::-1], kind="stable")[::-1] if descending else np.argsort(array, kind="stable")
            )
            values, indices = x.sort(descending=descending)
            np.testing.assert_array_equal(indices.numpy(), order)
            np.testing.assert_array_equal(values.numpy(), array[order])
            np.testing.assert_array_equal(x.argsort(descending=descending).numpy(), order)
