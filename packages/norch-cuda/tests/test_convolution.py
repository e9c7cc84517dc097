"""Convolution and pooling on the GPU, against what norch computes on the CPU in float64."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import norch
from norch.ops.nn.convolution import conv2d, conv2d_input_grad, conv2d_weight_grad, conv_transpose2d
from norch.ops.nn.pooling import avg_pool2d, max_pool2d

LIMITS = {norch.float64: 1e-13, norch.float32: 3e-6, norch.float16: 3e-3, norch.bfloat16: 2e-2}
DTYPES = list(LIMITS)


def random(shape, dtype, seed):
    return norch.tensor(np.random.default_rng(seed).standard_normal(shape)).to(dtype)


def close(got, wanted, dtype):
    got, wanted = (x.to("cpu").to(norch.float64).numpy() for x in (got, wanted))
    assert got.shape == wanted.shape
    assert np.linalg.norm(got - wanted) <= LIMITS[dtype] * max(np.linalg.norm(wanted), 1)


# input, weight, then stride, padding, dilation, groups
CASES = [
    ((2, 1, 9, 8), (4, 1, 3, 3), 1, 0, 1, 1),
    ((3, 3, 12, 11), (10, 3, 3, 5), (2, 1), (1, 2), 1, 1),
    ((2, 16, 13, 13), (20, 16, 3, 3), 1, 1, 1, 1),
    ((5, 16, 10, 9), (33, 16, 3, 3), 2, 0, 2, 1),
    ((2, 64, 7, 7), (130, 64, 1, 1), 1, 0, 1, 1),
    ((2, 64, 7, 7), (24, 64, 1, 1), 2, 0, 1, 1),
    ((2, 64, 6, 6), (200, 64, 3, 3), 1, 1, 1, 1),
    ((2, 12, 9, 9), (12, 1, 3, 3), 1, 1, 1, 12),
    ((2, 12, 9, 9), (24, 1, 3, 3), 2, 1, 1, 12),
    ((2, 32, 8, 8), (48, 16, 3, 3), 1, 1, 1, 2),
    ((2, 40, 8, 8), (40, 4, 3, 3), 1, 1, 1, 10),
    ((1, 8, 1, 30), (6, 8, 1, 5), (1, 3), (0, 2), (1, 2), 1),
    ((300, 1, 28, 28), (32, 1, 3, 3), 1, 0, 1, 1),
    ((160, 32, 13, 13), (64, 32, 3, 3), 1, 0, 1, 1),
    ((100, 16, 30, 30), (128, 16, 3, 3), 1, 0, 1, 1),
    ((70, 17, 20, 20), (32, 17, 2, 3), 1, 1, 1, 1),
    ((200, 32, 8, 8), (48, 16, 3, 3), 1, 1, 1, 2),
    ((256, 16, 20, 19), (33, 16, 3, 3), 2, 0, 2, 1),
    ((60, 24, 20, 19), (20, 24, 3, 2), 1, (2, 0), (1, 2), 1),
    ((1, 3, 40, 40), (8, 3, 31, 31), 1, 0, 1, 1),
    ((2, 5, 3, 3), (4, 5, 3, 3), 1, 0, 1, 1),
    ((3, 3, 60, 71), (70, 3, 3, 3), 1, (2, 1), 1, 1),
    ((40, 4, 9, 12), (24, 4, 3, 3), 1, (0, 1), 1, 1),
    ((9, 2, 5, 200), (3, 2, 3, 3), 1, 1, 1, 1),
    ((40, 40, 19, 14), (70, 40, 3, 3), 1, 2, 2, 1),
    ((30, 70, 12, 30), (40, 70, 3, 3), 1, (0, 4), 1, 1),
    ((20, 3, 17, 30), (40, 3, 3, 3), 1, (0, 2), 1, 1),
    ((8, 1, 20, 20), (70, 1, 5, 5), 1, 2, (1, 2), 1),
    ((3, 40, 14, 14), (40, 1, 7, 7), 1, 3, 1, 40),
    ((70, 6, 7, 7), (6, 1, 7, 7), 1, (3, 1), 1, 6),
    ((2, 12, 33, 17), (12, 1, 5, 5), 2, 2, 1, 12),
    ((5, 6, 9, 70), (6, 1, 3, 3), 1, (0, 2), 1, 6),
    ((400, 3, 20, 10), (3, 1, 5, 5), 1, 2, 1, 3),
    ((2, 7, 19, 20), (7, 1, 3, 3), 2, 1, 1, 7),
    ((2, 12, 9, 14), (12, 1, 1, 1), 1, 0, 1, 12),
    ((3, 12, 9, 14), (12, 1, 1, 1), 2, (1, 0), 1, 12),
    ((3, 6, 20, 9), (12, 1, 7, 7), 2, 3, 1, 6),
    ((2, 6, 11, 30), (18, 1, 3, 3), 1, 1, 1, 6),
    ((2, 6, 11, 13), (24, 1, 1, 1), 2, 0, 1, 6),
    ((3, 9, 30, 31), (20, 9, 1, 1), 1, 0, 1, 1),
    ((2, 7, 15, 9), (40, 7, 1, 1), 1, 0, 1, 1),
    ((4, 64, 32, 32), (96, 64, 5, 5), 1, 2, 1, 1),
    ((4, 3, 64, 64), (64, 3, 5, 5), 1, 2, 1, 1),
    ((3, 16, 1, 300), (24, 16, 1, 16), (1, 8), (0, 4), 1, 1),
    ((2, 32, 1, 99), (32, 8, 1, 128), 1, (0, 64), 1, 4),
    ((3, 40, 1, 201), (64, 40, 1, 3), (1, 2), (0, 1), 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution(cuda, case, dtype):
    shape, weight_shape, stride, padding, dilation, groups = case
    x, w, b = random(shape, dtype, 1), random(weight_shape, dtype, 2), random(weight_shape[:1], dtype, 3)
    how = (stride, padding, dilation, groups)
    wide = [t.to(norch.float64) for t in (x, w, b)]
    wanted = conv2d(*wide, *how)
    close(conv2d(x.to(cuda), w.to(cuda), b.to(cuda), *how), wanted, dtype)
    close(conv2d(x.to(cuda), w.to(cuda), None, *how), wanted - wide[2].reshape(-1, 1, 1), dtype)

    def two(value):
        return value if isinstance(value, tuple) else (value, value)

    last = [t.to(cuda).to(memory_format=norch.channels_last) for t in (x, w)]
    close(conv2d(*last, b.to(cuda), *how), wanted, dtype)

    p = two(padding)
    plain = (two(stride), (p[0], p[0], p[1], p[1]), two(dilation), groups)
    g = random(wanted.shape, dtype, 4)
    got = conv2d_input_grad(g.to(cuda), w.to(cuda), shape, *plain)
    close(got, conv2d_input_grad(g.to(norch.float64), wide[1], shape, *plain), dtype)
    got = conv2d_input_grad(g.to(cuda).to(memory_format=norch.channels_last), last[1], shape, *plain)
    close(got, conv2d_input_grad(g.to(norch.float64), wide[1], shape, *plain), dtype)
    got = conv2d_weight_grad(g.to(cuda), x.to(cuda), weight_shape, *plain)
    close(got, conv2d_weight_grad(g.to(norch.float64), wide[0], weight_shape, *plain), dtype)
    again = conv2d_weight_grad(g.to(cuda), x.to(cuda), weight_shape, *plain)
    assert np.array_equal(*(t.to("cpu").double().numpy() for t in (got, again)))


FEW = [((3, 1, 5, 7), 9), ((2, 3, 40, 70), 20), ((5, 4, 9, 3), 8), ((300, 2, 4, 4), 33), ((1, 1, 33, 31), 100)]


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_many_planes_of_single_elements(cuda, dtype):
    """cuDNN's float32 engine for these gives other values from some tens of millions of elements on (FastViT)."""
    x, w = norch.randn(64, 48, 128, 128, device=cuda).to(dtype), norch.randn(48, 1, 1, 1, device=cuda).to(dtype)
    for step in (1, 2):
        got = conv2d(x, w, None, step, 0, 1, 48)
        wanted = x[:, :, ::step, ::step] * w.reshape(48, 1, 1)
        assert (got - wanted).abs().max().item() <= 0.01 * (dtype is norch.bfloat16)


VOLUMES = [
    ((2, 6, 4, 7, 9), (6, 1, 3, 3, 3), 1, 1, 1),
    ((2, 6, 5, 8, 9), (12, 1, 3, 3, 3), (1, 2, 2), 1, 1),
    ((1, 5, 8, 20, 21), (5, 1, 3, 1, 5), (2, 1, 3), (1, 0, 2), 1),
    ((3, 4, 6, 9, 30), (4, 1, 2, 3, 3), 1, (0, 2, 3), (1, 2, 3)),
    ((2, 3, 7, 12, 13), (6, 1, 1, 2, 6), (3, 2, 1), (0, 1, 4), (1, 3, 2)),
    ((2, 4, 16, 40, 41), (4, 1, 3, 3, 3), 1, 1, 1),
]


@pytest.mark.parametrize("case", VOLUMES, ids=str)
def test_volumes_of_a_channel(cuda, case):
    shape, weight_shape, *how = case
    x, w, b = [random(s, norch.float32, i) for i, s in enumerate((shape, weight_shape, weight_shape[:1]))]
    for bias in (None, b):
        wide = [None if t is None else t.double() for t in (x, w, bias)]
        wanted = norch.conv3d(*wide, *how, shape[1])
        got = norch.conv3d(x.to(cuda), w.to(cuda), None if bias is None else bias.to(cuda), *how, shape[1])
        close(got, wanted, norch.float32)
    inputs = [t.double().requires_grad_() for t in (x, w)]
    wanted = norch.conv3d(*inputs, None, *how, shape[1])
    own = [t.to(cuda).requires_grad_() for t in (x, w)]
    g = random(wanted.shape, norch.float32, 7)
    wanted.backward(g.double())
    norch.conv3d(*own, None, *how, shape[1]).backward(g.to(cuda))
    for found, expected in zip(own, inputs, strict=True):
        close(found.grad, expected.grad, norch.float32)


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("case", FEW, ids=str)
def test_weight_gradient_of_few_channels(cuda, case, padding):
    """What is infinite is so in the sums that it belongs to, and in no other."""
    (n, c, h, w), o = case
    x = random((n, c, h, w), norch.float32, 5)
    g = random((n, o, h + 2 * padding - 2, w + 2 * padding - 2), norch.float32, 6)
    x[n - 1, 0, 0, 0] = norch.inf
    how = ((o, c, 3, 3), (1, 1), (padding,) * 4, (1, 1), 1)
    got = conv2d_weight_grad(g.to(cuda), x.to(cuda), *how).to("cpu").numpy()
    wanted = conv2d_weight_grad(g.double(), x.double(), *how).numpy()
    assert np.isinf(wanted).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * (n * h * w) ** 0.5)


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("windows", [(16, 8, 1), (10, 5, 1), (1, 1, 1), (33, 2, 2), (7, 1, 3)], ids=str)
@pytest.mark.parametrize("case", [((3, 1, 900), 20), ((2, 3, 150), 7), ((40, 4, 100), 33), ((1, 1, 5000), 64)], ids=str)
def test_weight_gradient_of_signals(cuda, case, windows, padding):
    (n, c, length), o = case
    kernel, stride, dilation = windows
    x = random((n, c, 1, length), norch.float32, 5)
    places = (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    g = random((n, o, 1, places), norch.float32, 6)
    x[n - 1, 0, 0, :2] = norch.inf
    how = ((o, c, 1, kernel), (1, stride), (0, 0, padding, padding), (1, dilation), 1)
    got = conv2d_weight_grad(g.to(cuda), x.to(cuda), *how).to("cpu").numpy()
    wanted = conv2d_weight_grad(g.double(), x.double(), *how).numpy()
    assert np.isinf(wanted).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * (n * places) ** 0.5)
    again = conv2d_weight_grad(g.to(cuda), x.to(cuda), *how).to("cpu").numpy()
    assert np.array_equal(again, got, equal_nan=True)


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("windows", [(16, 8), (10, 5), (1, 1), (33, 9), (3, 5), (4, 1)], ids=str)
@pytest.mark.parametrize("case", [((3, 1, 900), 20), ((2, 3, 150), 7), ((40, 4, 101), 33), ((1, 1, 5003), 64)], ids=str)
def test_input_gradient_of_signals(cuda, case, windows, padding):
    (n, c, length), o = case
    kernel, stride = windows
    w = random((o, c, 1, kernel), norch.float32, 5)
    places = (length + 2 * padding - kernel) // stride + 1
    g = random((n, o, 1, places), norch.float32, 6)
    g[n - 1, 0, 0, places // 2] = norch.inf
    how = ((n, c, 1, length), (1, stride), (0, 0, padding, padding), (1, 1), 1)
    got = conv2d_input_grad(g.to(cuda), w.to(cuda), *how).to("cpu").numpy()
    wanted = conv2d_input_grad(g.double(), w.double(), *how).numpy()
    assert np.isinf(wanted).any()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("how", [(1, 1, 1), (2, 1, 1), ((1, 3), (2, 0), (2, 1))], ids=str)
@pytest.mark.parametrize("case", FEW, ids=str)
def test_few_channels(cuda, case, how):
    shape, o = case
    x, w, b = (random(s, norch.float32, i) for i, s in enumerate((shape, (o, shape[1], 3, 3), (2 * o,))))
    b, x[0, 0, -1, -1] = b[::2], norch.inf
    got = conv2d(x.to(cuda), w.to(cuda), b.to(cuda), *how).to("cpu").numpy()
    wanted = conv2d(x.double(), w.double(), b.double(), *how).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


SHAPES = [((90, 32, 14, 14), (64, 32, 3, 3)), ((40, 1, 28, 28), (32, 1, 3, 3))]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_float32_is_float32(cuda, case):
    """Tensor cores or not: errors, of the sum of the products' sizes, are below a few roundings of float32."""
    shape, weight_shape = case
    x, w = random(shape, norch.float32, 16), random(weight_shape, norch.float32, 17)
    y = conv2d(x.double(), w.double(), None, 1, 1)
    g, plain = random(y.shape, norch.float32, 18), ((1, 1), (1, 1, 1, 1), (1, 1), 1)

    def results(x, w, g):
        return (
            conv2d(x, w, None, 1, 1),
            conv2d_input_grad(g, w, shape, *plain),
            conv2d_weight_grad(g, x, weight_shape, *plain),
        )

    wide = [t.double() for t in (x, w, g)]
    for got, wanted, sizes in zip(
        results(*(t.to(cuda) for t in (x, w, g))), results(*wide), results(*(t.abs() for t in wide)), strict=True
    ):
        errors = np.abs(got.to("cpu").double().numpy() - wanted.numpy())
        assert (errors <= 2e-6 * sizes.numpy()).all()
        assert np.sqrt(np.mean(errors**2)) <= 1e-7 * np.sqrt(np.mean(sizes.numpy() ** 2))


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_the_first_kernel_of_a_process(cuda, case):
    code = f"""
import norch
x, w = (norch.ones(shape).to("cuda") for shape in {case})
print(norch.nn.functional.conv2d(x, w, padding=1)[1, 2, 3, 4].item())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.split()) == (0, [f"{9.0 * case[0][1]}"]), ran.stderr


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_range_of_float32(cuda, case):
    """Numbers of all sizes from 2**-110 on, the largest and infinite ones too."""
    shape, weight_shape = case
    x, w = random(shape, norch.float32, 19), random(weight_shape, norch.float32, 20) * 0.01
    for number, factor in enumerate((1e-33, 1e-20, 1e20, 3e38)):
        x[number] = x[number].sign() * factor
    x[4, 0, 5, 5] = float("inf")
    x[5, 0, 5, 5] = np.finfo(np.float32).max
    x[6, 0, 5, 5] = float("nan")
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = conv2d(x.double(), w.double(), None, 1, 1).float().numpy()
        sizes = conv2d(x.double().abs(), w.double().abs(), None, 1, 1).numpy()
    got = conv2d(x.to(cuda), w.to(cuda), None, 1, 1).to("cpu").numpy()
    is_plain = np.isfinite(wanted) & (np.abs(sizes) < np.finfo(np.float32).max)
    assert is_plain.sum() > 0.9 * is_plain.size
    with np.errstate(over="ignore", invalid="ignore"):
        assert (np.abs(got - wanted.astype(float)) <= 2e-6 * sizes)[is_plain].all()
    assert np.array_equal(got[4:7][~is_plain[4:7]], wanted[4:7][~is_plain[4:7]], equal_nan=True)


@pytest.mark.parametrize(("images", "channels", "out"), [(3, 2, 7), (3, 24, 7), (200, 24, 20)])
def test_layouts(cuda, images, channels, out):
    x, w = random((images, 10, 11, channels), norch.float32, 5), random((3, 3, channels, out), norch.float32, 6)
    b = random((2 * out,), norch.float32, 7)[::2]
    g = random((images, 8, 9, out), norch.float32, 8)
    how = ((1, 1), (0, 0, 0, 0), (1, 1), 1)

    def results(x, w, b, g):
        x, w, g = x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), g.permute(0, 3, 1, 2)
        return (
            conv2d(x, w, b),
            conv2d_input_grad(g, w, tuple(x.shape), *how),
            conv2d_weight_grad(g, x, tuple(w.shape), *how),
            max_pool2d(x, 2),
            avg_pool2d(x, 3, 2, 1),
            conv2d(x, w[:, :, 1:2, 1:2], None),
        )

    there = results(*(t.to(cuda) for t in (x, w)), b.to(cuda), g.to(cuda))
    for got, wanted in zip(there, results(x, w, b, g), strict=True):
        close(got, wanted, norch.float32)
    close(max_pool2d(x.to(cuda)[1:, 1:], 2), max_pool2d(x[1:, 1:], 2), norch.float32)
    wide = random((2, 3, 8, 48), norch.float32, 5)
    for part in (wide[..., :32], wide[..., 1:33], wide[:, 1:, ::2, 4:36], wide[..., ::3]):
        for size in (2, (2, 1)):
            close(max_pool2d(part.to(cuda), size), max_pool2d(part, size), norch.float32)
            close(
                avg_pool2d(wide.to(cuda)[..., 16:][..., :16], size), avg_pool2d(wide[..., 16:32], size), norch.float32
            )


def test_transposed(cuda):
    x, w, b = (random(s, norch.float32, 9) for s in ((2, 6, 5, 7), (6, 4, 3, 3), (8,)))
    how = (2, 1, 1, 2)
    close(conv_transpose2d(*(t.to(cuda) for t in (x, w, b)), *how), conv_transpose2d(x, w, b, *how), norch.float32)


POOLS = [
    ((2, 3, 8, 8), 2, None, 0, 1, False), ((2, 3, 9, 7), 2, None, 0, 1, False), ((2, 3, 9, 7), 3, 2, 1, 1, False),
    ((1, 2, 10, 11), (3, 2), (1, 2), (1, 0), (2, 1), True), ((3, 1, 1, 17), (1, 4), (1, 3), 0, 1, True),
    ((64, 32, 26, 26), 2, None, 0, 1, False), ((2, 3, 16, 32), 2, None, 0, 1, False),
    ((3, 2, 13, 24), (3, 1), (2, 1), (1, 0), (2, 1), False), ((2, 2, 7, 48), (3, 2), (1, 2), (1, 0), 1, True),
    ((2, 3, 5, 5), 5, 1, 2, 1, False), ((1, 1, 1, 1), 2, 1, 1, 2, False),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [*DTYPES, norch.int64, norch.int8, norch.uint8], ids=str)
@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool(cuda, case, dtype):
    shape, *how = case
    x = (random(shape, norch.float64, 10) * 3).round().abs().to(dtype)  # has ties
    with norch.no_grad():  # where nothing is recorded the indices have a kernel of their own
        values, places = max_pool2d(x.to(cuda), *how, return_indices=True)
        wanted, wanted_places = max_pool2d(x, *how, return_indices=True)
    assert np.array_equal(*(t.to("cpu").to(norch.float64).numpy() for t in (values, wanted)))
    assert np.array_equal(places.to("cpu").numpy(), wanted_places.numpy())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", POOLS[:-1], ids=str)
def test_pool_gradients(cuda, case, dtype):
    from norch.ops.nn.pooling import _max_pool2d_grad, _plan, _sum_pool2d, _sum_pool2d_grad

    shape, *how = case
    x = (random(shape, norch.float64, 11) * 3).round().to(dtype)
    if dtype is norch.float32:
        x[0, 0, 0, 0] = float("nan")
    windows, pads = _plan("max_pool2d", x.spec, *how)
    g = random(max_pool2d(x, *how).shape, dtype, 12)
    close(
        _max_pool2d_grad(g.to(cuda), x.to(cuda), windows, pads),
        _max_pool2d_grad(g.to(norch.float64), x.to(norch.float64), windows, pads), dtype,
    )  # fmt: skip
    last = [t.to(cuda).to(memory_format=norch.channels_last) for t in (g, x)]
    close(
        _max_pool2d_grad(*last, windows, pads),
        _max_pool2d_grad(g.to(norch.float64), x.to(norch.float64), windows, pads), dtype,
    )  # fmt: skip
    got = _sum_pool2d_grad(g.to(cuda), shape, windows, pads)
    close(got, _sum_pool2d_grad(g.to(norch.float64), shape, windows, pads), dtype)
    y = random(shape, dtype, 13)
    close(_sum_pool2d(y.to(cuda), windows, pads), _sum_pool2d(y.to(norch.float64), windows, pads), dtype)


def test_nan_in_windows(cuda):
    x = random((1, 2, 8, 8), norch.float32, 14)
    x[0, 0, 3, 3] = float("nan")
    x[0, 1] = float("-inf")
    assert np.array_equal(*(t.to("cpu").numpy() for t in (max_pool2d(x.to(cuda), 2), max_pool2d(x, 2))), equal_nan=True)
    w = random((3, 2, 3, 3), norch.float32, 15)
    with np.errstate(invalid="ignore"):
        got, wanted = conv2d(x.to(cuda), w.to(cuda)).to("cpu").numpy(), conv2d(x, w).numpy()
    assert np.array_equal(np.isnan(got), np.isnan(wanted))


def test_no_images(cuda):
    x, w = norch.zeros(0, 3, 8, 8, device=cuda), norch.ones(4, 3, 3, 3, device=cuda)
    assert tuple(conv2d(x, w).shape) == (0, 4, 6, 6)
    assert tuple(max_pool2d(x, 2).shape) == (0, 3, 4, 4)
