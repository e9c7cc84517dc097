"""Pooling and its gradients, window by window in plain Python and in the decomposition."""

import itertools
import math

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import norch
from norch.autograd import grad
from norch.testing.gradcheck import gradcheck, gradgradcheck
from norch_cpu.native import native

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def draw(*shape, seed=0, low=-60, high=60):
    """Whole numbers, with ties, that every dtype holds."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.float64)


def tensor(array, dtype="float64", **how):
    return norch.tensor(np.asarray(array), dtype=getattr(norch, dtype), **how)


def seen(size, at, kernel, stride, padding, dilation):
    """Which elements along a dim window `at` sees."""
    first = at * stride - padding
    return [i for i in range(first, first + kernel * dilation, dilation) if 0 <= i < size]


def windows(x, counts, how):
    """For each window of each plane: where its result goes, and the places that it sees."""
    kernel, stride, padding, dilation = how
    for n, c, y, z in itertools.product(*map(range, (*x.shape[:2], *counts))):
        rows = seen(x.shape[2], y, kernel[0], stride[0], padding[0], dilation[0])
        columns = seen(x.shape[3], z, kernel[1], stride[1], padding[1], dilation[1])
        yield (n, c, y, z), [(n, c, i, j) for i in rows for j in columns]


def largest(x, places):
    """The first largest, or the first NaN."""
    best = places[0]
    for place in places[1:]:
        if x[place] > x[best] or (math.isnan(x[place]) and not math.isnan(x[best])):
            best = place
    return best


def max_oracle(x, g, how):
    """Values, indices, and the gradient of x."""
    out, indices, dx = np.zeros(g.shape), np.zeros(g.shape, int), np.zeros(x.shape)
    for at, places in windows(x, g.shape[2:], how):
        best = largest(x, places)
        out[at], indices[at] = x[best], best[2] * x.shape[3] + best[3]
        dx[best] += g[at]
    return out, indices, dx


TWO, ONE, NONE = (2, 2), (1, 1), (0, 0)
# shape; kernel, stride, padding, dilation; ceil_mode
CASES = {
    "halving": ((2, 3, 28, 28), (TWO, TWO, NONE, ONE), False),
    "halving 14": ((3, 5, 14, 14), (TWO, TWO, NONE, ONE), False),
    "halving, odd": ((2, 3, 9, 15), (TWO, TWO, NONE, ONE), False),
    "halving, wide": ((1, 2, 4, 75), (TWO, TWO, NONE, ONE), False),
    "halving, narrow": ((2, 2, 7, 5), (TWO, TWO, NONE, ONE), False),
    "halving, hanging over": ((1, 2, 5, 7), (TWO, TWO, NONE, ONE), True),
    "overlapping": ((2, 3, 13, 12), ((3, 3), TWO, ONE, ONE), False),
    "overlapping, hanging over": ((1, 3, 14, 12), ((3, 3), TWO, ONE, ONE), True),
    "step by step": ((2, 2, 8, 9), ((3, 2), ONE, ONE, ONE), False),
    "stepping over": ((1, 2, 10, 11), (TWO, (3, 4), NONE, ONE), False),
    "dilated": ((2, 2, 9, 10), (TWO, (1, 2), NONE, (2, 3)), False),
    "dilated with padding": ((1, 2, 9, 10), ((3, 4), TWO, (1, 2), (2, 3)), False),
    "large": ((1, 2, 9, 9), ((5, 7), (1, 2), (2, 3), ONE), False),
    "all of it": ((2, 2, 5, 6), ((5, 6), ONE, NONE, ONE), False),
    "one row": ((2, 3, 1, 301), ((1, 3), (1, 2), (0, 1), ONE), False),
    "one row, four by four": ((2, 3, 1, 301), ((1, 4), (1, 4), NONE, ONE), False),
    "rows, two by two": ((2, 3, 3, 101), ((1, 2), (1, 2), NONE, ONE), False),
    "rows, three by three": ((2, 1, 4, 32), ((1, 3), (1, 3), NONE, ONE), True),
    "every second row": ((1, 2, 9, 77), ((1, 8), (2, 8), NONE, ONE), False),
    "sixteens with padding": ((1, 2, 6, 140), ((2, 16), (2, 16), (1, 3), ONE), True),
    "twelves": ((1, 2, 5, 200), ((3, 12), (1, 12), NONE, ONE), False),
    "pairs": ((1, 2, 5, 40), (TWO, ONE, ONE, ONE), False),
    "threes, hanging over": ((1, 2, 6, 50), ((2, 5), (1, 3), (0, 2), ONE), True),
    "one element": ((1, 1, 1, 1), (ONE, ONE, NONE, ONE), False),
    "no samples": ((0, 3, 4, 4), (TWO, TWO, NONE, ONE), False),
    "no channels": ((2, 0, 5, 4), ((3, 3), ONE, ONE, ONE), False),
}


def test_is_native():
    pools = {"max_pool2d", "max_pool2d_indices", "max_pool2d_grad", "sum_pool2d", "sum_pool2d_grad"}
    assert pools <= set(native.ops())


def check_max(x, how, ceil, dtype, make=tensor):
    kernel, stride, padding, dilation = how
    leaf = make(x, dtype)
    if dtype in FLOATS:
        leaf = leaf.detach().requires_grad_()
    y, indices = norch.max_pool2d(leaf, kernel, stride, padding, dilation, ceil, return_indices=True)
    g = draw(*y.shape, seed=1, low=-9, high=9)
    out, where, dx = max_oracle(x, g, how)
    assert y.dtype is getattr(norch, dtype)
    np.testing.assert_array_equal(y.detach().double().numpy(), out)
    np.testing.assert_array_equal(indices.numpy(), where)
    if dtype in FLOATS:
        np.testing.assert_array_equal(grad(y, leaf, make(g, dtype))[0].double().numpy(), dx)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_max_pool2d(name, dtype):
    shape, how, ceil = CASES[name]
    check_max(draw(*shape), how, ceil, dtype)


@pytest.mark.parametrize("dtype", [*FLOATS[2:], *INTEGERS])
@pytest.mark.parametrize("name", ["halving, odd", "overlapping", "dilated with padding"])
def test_max_pool2d_of_other_dtypes(name, dtype):
    shape, how, ceil = CASES[name]
    check_max(draw(*shape, low=0 if dtype == "uint8" else -60), how, ceil, dtype)


LAYOUTS = {
    "channels last": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "transposed": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "channels stepped over": lambda x: norch.stack([x, x + 1], 2)[:, :, 0],
    "part of a row": lambda x: norch.cat([x + 1, x], 3)[..., x.shape[3] :],
    "part of the channels": lambda x: norch.cat([x + 1, x], 1)[:, x.shape[1] :],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["halving, odd", "overlapping", "rows, two by two", "every second row"])
def test_max_pool2d_of_layouts(name, layout):
    shape, how, ceil = CASES[name]
    for dtype in ("float32", "float16"):
        check_max(draw(*shape), how, ceil, dtype, lambda array, dtype: LAYOUTS[layout](tensor(array, dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["halving 14", "halving, narrow", "overlapping", "every second row", "twelves", "pairs"]
)
def test_max_pool2d_of_nan_and_infinities(name, dtype):
    shape, how, ceil = CASES[name]
    rng = np.random.default_rng(3)
    x = draw(*shape)
    for value, share in ((math.nan, 0.2), (math.inf, 0.1), (-math.inf, 0.3)):
        x[rng.random(shape) < share] = value
    check_max(x, how, ceil, dtype)
    check_max(np.full(shape, -math.inf), how, ceil, dtype)
    check_max(np.full(shape, math.nan), how, ceil, dtype)


def test_padding_is_never_the_largest():
    x = tensor([[[-5.0, -3.0], [-9.0, -4.0]]], "int32")
    assert norch.max_pool2d(x, 2, 2, 1).tolist() == [[[-5, -3], [-9, -4]]]
    lowest = norch.full((1, 2, 2), -128, dtype=norch.int8)
    assert norch.max_pool2d(lowest, 2, 2, 1).tolist() == [[[-128] * 2] * 2]


def sum_oracle(x, g, how):
    out, dx = np.zeros(g.shape), np.zeros(x.shape)
    for at, places in windows(x, g.shape[2:], how):
        out[at] = sum(x[place] for place in places)
        for place in places:
            dx[place] += g[at]
    return out, dx


def check_sum(x, how, ceil, dtype, make=tensor):
    kernel, stride, padding, _ = how
    leaf = make(x, dtype).detach().requires_grad_()
    # Divided by 1: the sums themselves, of whole numbers, which 16-bit floats round when they are large.
    y = norch.avg_pool2d(leaf, kernel, stride, padding, ceil, divisor_override=1)
    g = draw(*y.shape, seed=2, low=-9, high=9)
    out, dx = sum_oracle(x, g, how)
    bound = {"bfloat16": 2.0**-8, "float16": 2.0**-11}.get(dtype, 0)
    np.testing.assert_allclose(y.detach().double().numpy(), out, rtol=bound)
    np.testing.assert_allclose(grad(y, leaf, make(g, dtype))[0].double().numpy(), dx, rtol=bound)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [n for n, (_, how, _) in CASES.items() if how[3] == ONE])
def test_avg_pool2d(name, dtype):
    shape, how, ceil = CASES[name]
    check_sum(draw(*shape), how, ceil, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["halving, odd", "overlapping", "rows, two by two", "every second row"])
def test_avg_pool2d_of_layouts(name, layout):
    shape, how, ceil = CASES[name]
    for dtype in ("float32", "float16"):
        check_sum(draw(*shape), how, ceil, dtype, lambda array, dtype: LAYOUTS[layout](tensor(array, dtype)))


@pytest.mark.parametrize("name", ["halving", "overlapping, hanging over", "dilated", "large", "one row"])
def test_like_the_decomposition(name):
    from norch.testing.strict import strict_device

    device = strict_device()
    shape, (kernel, stride, padding, dilation), ceil = CASES[name]
    x = tensor(draw(*shape), "float32", requires_grad=True)
    other = x.detach().to(device).requires_grad_()

    def pools(v):
        yield norch.max_pool2d(v, kernel, stride, padding, dilation, ceil)
        if dilation == ONE:
            yield norch.avg_pool2d(v, kernel, stride, padding, ceil, count_include_pad=False)

    for y, z in zip(pools(x), pools(other), strict=True):
        np.testing.assert_allclose(y.detach().numpy(), z.detach().to("cpu").numpy(), rtol=1e-6, atol=1e-6)
        g = tensor(draw(*y.shape), "float32")
        got, expected = grad(y, x, g)[0], grad(z, other, g.to(device))[0]
        np.testing.assert_allclose(got.numpy(), expected.to("cpu").numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", [(TWO, TWO, NONE, ONE), ((3, 2), (2, 1), ONE, ONE), (TWO, ONE, NONE, TWO)])
def test_derivatives(how):
    kernel, stride, padding, dilation = how
    x = np.random.default_rng(4).permutation(2 * 5 * 6).reshape(1, 2, 5, 6) / 7.0  # no ties: max has kinks there

    def largest(v):
        return norch.max_pool2d(v, kernel, stride, padding, dilation)

    def average(v):
        return norch.avg_pool2d(v, kernel, stride, padding)

    for function in (largest, average):
        assert gradcheck(function, [tensor(x, requires_grad=True)])
        assert gradgradcheck(function, [tensor(x, requires_grad=True)], fast_mode=True)


def test_second_derivative_reaches_what_was_largest():
    x = tensor(draw(1, 1, 4, 4), requires_grad=True)
    (first,) = grad((norch.max_pool2d(x, 2) ** 3).sum(), x, create_graph=True)
    (second,) = grad(first.sum(), x)
    _, _, picked = max_oracle(x.detach().numpy(), np.ones((1, 1, 2, 2)), CASES["halving"][1])
    np.testing.assert_allclose(second.numpy(), 6 * x.detach().numpy() * picked)


@pytest.mark.parametrize("name", ["halving", "overlapping", "large"])
def test_many_planes_and_threads(name):
    _, (kernel, stride, padding, dilation), ceil = CASES[name]
    x = np.random.default_rng(5).random((6, 20, 28, 28))
    before, found = norch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            norch.set_num_threads(threads)
            leaf = tensor(x, "float32", requires_grad=True)
            largest = norch.max_pool2d(leaf, kernel, stride, padding, dilation, ceil)
            average = norch.avg_pool2d(leaf, kernel, stride, padding, ceil)
            g = grad((largest**2).sum() + (average**2).sum(), leaf)[0]
            found.append([v.detach().numpy() for v in (largest, average, g)])
    finally:
        norch.set_num_threads(before)
    for one, two, five in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, five)


def test_one_dim():
    x = draw(3, 2, 40)
    y, indices = norch.max_pool1d(tensor(x, "float32"), 3, 2, 1, return_indices=True)
    out, where, _ = max_oracle(x[:, :, None], np.zeros((3, 2, 1, y.shape[2])), ((1, 3), (1, 2), (0, 1), ONE))
    np.testing.assert_array_equal(y.numpy(), out[:, :, 0])
    np.testing.assert_array_equal(indices.numpy(), where[:, :, 0])


@pytest.mark.parametrize("stride", [1, 30, 512])
def test_tall_windows_take_little_memory(stride):
    """Rows are kept for the next windows where these are few."""
    values = draw(545, 2048)
    x = tensor(values[None, None], "float32", requires_grad=True)
    y = norch.max_pool2d(x, (512, 3), (stride, 2), (0, 1))
    before = norch.cpu.memory_stats()["allocated_bytes"]
    norch.cpu.reset_peak_memory_stats()
    (g,) = grad(y, x, norch.ones_like(y))
    assert norch.cpu.memory_stats()["peak_allocated_bytes"] - before < x.nbytes + y.nbytes + (1 << 20)
    along = sliding_window_view(np.pad(values, ((0, 0), (1, 1)), constant_values=-np.inf), 3, 1)[:, ::2]
    rows = sliding_window_view(along.max(-1), 512, 0)[::stride].argmax(-1) + stride * np.arange(y.shape[2])[:, None]
    places = np.arange(1024)
    expected = np.zeros_like(values)
    np.add.at(expected, (rows, 2 * places - 1 + along.argmax(-1)[rows, places]), 1)
    np.testing.assert_array_equal(g[0, 0].numpy(), expected)
