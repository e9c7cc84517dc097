"""Products of 16-bit floats, and of float32 at lower precision, against float64: with tile registers and without."""

import os
import subprocess
import sys

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(12)
UNIT = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half of the distance from 1 to the next number
# m, n, k: few rows of each kind, tiles of 16 and 32 and what is left beside them, steps that do not fill a block,
# several blocks of steps, several pieces; in the last line, rows of the larger factor that are those of tiles.
SIZES = [
    (1, 40, 64), (3, 50, 33), (4, 1, 300), (1, 300, 70), (70, 2, 130), (5, 9, 31), (16, 16, 16), (17, 33, 15),
    (33, 47, 65), (64, 64, 64), (9, 200, 96), (300, 17, 40), (40, 300, 1100), (270, 530, 70), (600, 90, 420),
    (8, 96, 64), (5, 160, 704), (100, 192, 96), (49, 49, 49), (23, 130, 161),
]  # fmt: skip
# How far an element may be from the product, of the sum of its products' magnitudes.
BOUND = {"highest": 2e-6, "high": 2.0**-15, "medium": 2.0**-7}


@pytest.fixture(autouse=True)
def highest():
    yield
    norch.set_float32_matmul_precision("highest")


@pytest.fixture(params=[1, 3])
def threads(request):
    before = norch.get_num_threads()
    norch.set_num_threads(request.param)
    yield request.param
    norch.set_num_threads(before)


def normal(dtype, *shape):
    return norch.tensor(RNG.standard_normal(shape)).to(getattr(norch, dtype))


def layouts(t):
    """The same matrices, differently in memory."""
    yield t
    yield t.mT.contiguous().mT
    yield norch.cat([t[..., :1, :], t], -2)[..., 1:, :]
    yield norch.stack([t, t], -1)[..., 0]


def expected(a, b, unit, bound, bias=0.0):
    """The product, and room for one rounding to a number of `unit` and `bound` of what the products are made of."""
    a, b = a.double().numpy(), b.double().numpy()
    want = a @ b + bias
    return want, unit * np.abs(want) + (np.abs(a) @ np.abs(b)) * bound + 1e-30


def assert_close(got, *of, **more):
    assert_near(got, *expected(*of, **more))


def assert_near(got, want, room):
    assert tuple(got.shape) == want.shape
    assert np.all(np.abs(got.double().numpy() - want) <= room)


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_16_bit_floats_are_summed_in_float32_and_rounded_once(size, dtype, threads):
    m, n, k = size
    a, b = normal(dtype, m, k), normal(dtype, k, n)
    want, room = expected(a, b, UNIT[dtype] * 1.01, 2.0**-16)
    for x in layouts(a):
        for y in layouts(b):
            assert_near(x @ y, want, room)


@pytest.mark.parametrize("precision", ["high", "medium"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_float32_at_lower_precision(size, precision, threads):
    m, n, k = size
    a, b = normal("float32", m, k), normal("float32", k, n)
    norch.set_float32_matmul_precision(precision)
    want, room = expected(a, b, 0, BOUND[precision])
    for x in layouts(a):
        for y in layouts(b):
            assert_near(x @ y, want, room)


def test_highest_is_the_default_and_comes_back():
    a, b = normal("float32", 100, 200), normal("float32", 200, 150)
    exact = (a @ b).numpy()
    assert_close(a @ b, a, b, 0, BOUND["highest"])
    for precision in ("high", "medium"):
        norch.set_float32_matmul_precision(precision)
        assert_close(a @ b, a, b, 0, BOUND[precision])
        norch.set_float32_matmul_precision("highest")
        np.testing.assert_array_equal((a @ b).numpy(), exact)


@pytest.mark.parametrize("order", [False, True])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3.4e38])
def test_numbers_that_have_no_two_parts(value, order):
    a, b = RNG.random((70, 130), np.float32) + 1, RNG.random((130, 300), np.float32) * 1e-3
    a[40, 100] = value
    if order:
        a, b = b.T.copy(), a.T.copy()
    norch.set_float32_matmul_precision("high")
    got = (norch.tensor(a) @ norch.tensor(b)).numpy()
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, want, 3e-5)


@pytest.mark.parametrize("dtype", UNIT)
def test_special_16_bit_numbers(dtype):
    small = 2.0**-24 if dtype == "float16" else 2.0**-126  # the least of float16, subnormal there
    a = np.ones((40, 64))
    a[0, 3], a[1, 5], a[2, 7], a[3] = np.inf, -np.inf, np.nan, small
    x = norch.tensor(a).to(getattr(norch, dtype))
    got = (x @ norch.ones(64, 40, dtype=x.dtype)).double().numpy()
    np.testing.assert_array_equal(got[:3, 0], [np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(got[3], np.full(40, 64 * small))
    np.testing.assert_array_equal(got[4:], np.full((36, 40), 64.0))


@pytest.mark.parametrize("shapes", [((3, 5, 20, 40), (3, 5, 40, 24)), ((6, 50, 40), (40, 70)), ((50, 40), (4, 40, 70))])
@pytest.mark.parametrize("dtype", ["float32", *UNIT])
def test_batches(dtype, shapes):
    norch.set_float32_matmul_precision("high")
    a, b = (normal(dtype, *shape) for shape in shapes)
    unit = UNIT.get(dtype, 0)
    assert_close(a @ b, a, b, unit * 1.01, BOUND["high"])
    x, y = a.transpose(0, -2).contiguous().transpose(0, -2), b.mT.contiguous().mT
    assert_close(x @ y, a, b, unit * 1.01, BOUND["high"])


@pytest.mark.parametrize("dtype", ["float32", *UNIT])
@pytest.mark.parametrize("shape", [(1, 64), (3, 64), (2, 30, 40), (100, 130)], ids=str)
def test_linear_with_bias_and_activation(dtype, shape):
    norch.set_float32_matmul_precision("high")
    x, w, b = normal(dtype, *shape), normal(dtype, 90, shape[-1]), normal(dtype, 90)
    got = norch.linear(x, w, b)
    assert_close(got, x, w.mT, UNIT.get(dtype, 0) * 1.01, BOUND["high"], b.double().numpy())
    for weight in (w, w.mT.contiguous().mT):
        relu = norch.linear(x, weight, b, activation="relu")
        np.testing.assert_allclose(relu.double().numpy(), np.maximum(got.double().numpy(), 0), 1e-2, 1e-2)


def test_gradients_of_linear_at_lower_precision():
    x, w = (normal("float32", *shape).requires_grad_() for shape in ((4, 40, 100), (70, 100)))
    g = normal("float32", 4, 40, 70)
    norch.set_float32_matmul_precision("high")
    norch.linear(x, w).backward(g)
    assert_close(x.grad, g, w.detach(), 0, BOUND["high"])
    rows, grads = x.detach().reshape(160, 100), g.reshape(160, 70)
    assert_close(w.grad, grads.mT, rows, 0, BOUND["high"])


def test_any_number_of_threads_gives_the_same_bits():
    norch.set_float32_matmul_precision("high")
    before = norch.get_num_threads()
    pairs = [(normal(d, 300, 700), normal(d, 700, 300)) for d in ("float32", *UNIT)]
    pairs += [(normal(d, 2, 900), normal(d, 800, 900).mT) for d in UNIT]
    pairs += [(normal(d, 1, 900), normal(d, 900, 800)) for d in UNIT]
    try:
        found = []
        for count in (1, 2, 5):
            norch.set_num_threads(count)
            found.append([(a @ b).float().numpy() for a, b in pairs])
    finally:
        norch.set_num_threads(before)
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("dtype", "precision"), [("float32", "highest"), ("float32", "high"), ("bfloat16", "highest")])
@pytest.mark.parametrize("transposed", [False, True])
def test_large_matrices_are_packed_in_parts(dtype, precision, transposed, threads):
    norch.set_float32_matmul_precision(precision)
    row, b = RNG.integers(-2, 3, (1, 1024)), RNG.integers(-1, 2, (1024, 9000), np.int8)
    scale = 2.0 ** (np.arange(300)[:, None] % 4)
    b = b.astype(np.float32)
    wanted = norch.tensor((row.astype(np.float32) @ b) * scale).to(getattr(norch, dtype))  # exact but for this rounding
    x, y = (norch.from_numpy(v).to(getattr(norch, dtype)) for v in ((row * scale).astype(np.float32), b))
    got = x @ (y.mT.contiguous().mT if transposed else y)
    assert (got == wanted).all().item()


def test_no_memory_is_taken_for_converted_weights(threads):
    w = norch.ones(2000, 3000, dtype=norch.bfloat16)
    x = norch.ones(1, 3000, dtype=norch.bfloat16)
    norch.linear(x, w)
    norch.cpu.reset_peak_memory_stats()
    before = norch.cpu.memory_stats()["allocated_bytes"]
    assert norch.linear(x, w)[0, 0].item() == 3008  # 3000 rounded to 8 bits
    assert norch.cpu.memory_stats()["peak_allocated_bytes"] - before < 100_000


WITHOUT_TILES = """
import numpy as np, norch
rng = np.random.default_rng(0)
for precision in ("highest", "high"):
    norch.set_float32_matmul_precision(precision)
    for dtype, bound in (("float32", 3e-6), ("float16", 2.0**-10), ("bfloat16", 2.0**-7)):
        for m, k, n in ((33, 65, 47), (100, 300, 70), (8, 70, 40), (1, 40, 90)):
            a, b = (norch.tensor(rng.standard_normal(s)).to(getattr(norch, dtype)) for s in ((m, k), (k, n)))
            for x in (a, a.mT.contiguous().mT):
                for y in (b, b.mT.contiguous().mT):
                    wanted, room = a.double().numpy() @ b.double().numpy(), bound * np.abs(a.double().numpy()).sum()
                    assert np.abs((x @ y).double().numpy() - wanted).max() <= bound * k
assert not norch.cpu.has_tiles()
"""


@pytest.mark.parametrize("dots", ["0", "1"])
def test_without_tile_registers(dots):
    env = {**os.environ, "NORCH_CPU_TILES": "0", "NORCH_CPU_DPBF16": dots}
    done = subprocess.run([sys.executable, "-c", WITHOUT_TILES], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
