"""Convolution, pooling and padding of images whose channels lie together: kernels that take them as they lie."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.backend import Operand
from norch.device import CPU

LAST = norch.channels_last


def operand(*shape, last=True, dtype=norch.float32):
    x = norch.empty(shape, dtype=dtype)
    x = x.to(memory_format=LAST) if last else x
    return Operand(x.dtype, tuple(x.shape), x.stride())


CONV = {"stride": (1, 1), "pads": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "given": (True, True, False)}
POOL = {"windows": ((2, 2), (2, 2), (1, 1)), "pads": (0, 0, 0, 0)}
X, W, Y = operand(2, 8, 6, 6), operand(4, 8, 3, 3), operand(2, 4, 6, 6)
HALF = operand(2, 8, 3, 3)
KERNELS = {
    "cat": ([operand(2, 48, 6, 6), *[operand(2, 24, 6, 6)] * 2], {"dim": 1}),
    "conv2d": ([Y, X, W], CONV),
    "conv2d_input_grad": ([X, Y, W], CONV),
    "conv2d_weight_grad": ([W, Y, X], CONV),
    "max_pool2d": ([HALF, X], POOL),
    "max_pool2d_grad": ([X, HALF, X], POOL),
    "pad_edges": ([X, HALF], {"before": (0, 0, 1, 1), "after": (0, 0, 2, 2), "mode": "reflect"}),
    "sum_pool2d": ([HALF, X], POOL),
    "sum_pool2d_grad": ([X, HALF], POOL),
}


def test_the_backend_says_which():
    assert set(KERNELS) == CPU.backend.channels_last


@pytest.mark.parametrize("name", KERNELS)
def test_there_is_a_kernel(name):
    operands, attrs = KERNELS[name]
    assert CPU.backend.compile(name, tuple(operands), attrs) is not None


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.bfloat16], ids=str)
@pytest.mark.parametrize("channels", [1, 2, 3, 7, 8, 12, 28, 33, 64, 130])
def test_numbers_of_any_number_of_channels(channels, dtype):
    rng = np.random.default_rng(channels)
    x = norch.tensor(rng.standard_normal((2, channels, 7, 9)), dtype=dtype)
    weight = norch.tensor(rng.standard_normal((5, channels, 3, 2)), dtype=dtype)
    own = norch.tensor(rng.standard_normal((channels, 1, 3, 3)), dtype=dtype)
    tolerance = 2e-2 if dtype is norch.bfloat16 else 1e-4
    for call, parameter in (
        (lambda x, w: norch.conv2d(x, w, None, 2, (2, 1)), weight),
        (lambda x, w: norch.conv2d(x, w, x.new_ones(channels), (1, 2), 1, (2, 1), channels), own),
        (lambda x, w: norch.max_pool2d(x * w[0, 0, 0, 0], 3, 2, 1, 1, True), own),
        (lambda x, w: norch.avg_pool2d(x * w[0, 0, 0, 0], (2, 3), 1, 1), own),
    ):
        results = []
        for form in (LAST, norch.contiguous_format):
            a = x.to(memory_format=form).detach().clone().requires_grad_()
            w = parameter.to(memory_format=form).detach().clone().requires_grad_()
            out = call(a, w)
            (out.float() * norch.arange(float(out.numel())).reshape(out.shape).remainder(7)).sum().backward()
            results.append([v.detach().contiguous() for v in (out, a.grad, w.grad)])
        # A product that is added in one rounding or in two, as the compiler has it for the last few channels.
        ulp = norch.finfo(dtype).eps * results[0][0].abs().max().item()
        norch.testing.assert_close(results[0][0], results[1][0], rtol=0, atol=8 * ulp)
        for found, expected in zip(*results, strict=True):
            size = expected.abs().max().item()
            norch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * size)


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
@pytest.mark.parametrize(("each", "made"), [(1, 2), (2, 2), (4, 4), (4, 3), (8, 8)])
def test_few_channels_a_group(each, made, dtype):
    rng = np.random.default_rng(each)
    x = norch.tensor(rng.standard_normal((3, 6 * each, 9, 8)), dtype=dtype)
    weight = norch.tensor(rng.standard_normal((6 * made, each, 3, 2)), dtype=dtype)
    bias = norch.tensor(rng.standard_normal(6 * made), dtype=dtype)
    results = []
    for form in (LAST, norch.contiguous_format):
        leaves = [v.detach().clone().requires_grad_() for v in (x.to(memory_format=form), weight, bias)]
        out = norch.conv2d(*leaves, (1, 2), (1, 0), (2, 1), 6)
        assert out.is_contiguous(memory_format=form)
        factors = norch.arange(float(out.numel())).reshape(out.shape).remainder(7)
        out.backward(factors.to(dtype).contiguous(memory_format=form))
        assert leaves[0].grad.is_contiguous(memory_format=form)
        results.append([v.detach().contiguous() for v in (out, *[leaf.grad for leaf in leaves])])
    tolerance = 2e-2 if dtype is norch.bfloat16 else 1e-5
    for found, expected in zip(*results, strict=True):
        norch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_numbers_do_not_depend_on_threads(threads):
    before = norch.get_num_threads()
    x = norch.tensor(np.random.default_rng(0).standard_normal((3, 70, 9, 9)), dtype=norch.float32).to(
        memory_format=LAST
    )
    weight = norch.tensor(np.random.default_rng(1).standard_normal((70, 1, 3, 3)), dtype=norch.float32)

    def run():
        a, w = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = norch.conv2d(a, w, None, 1, 1, groups=70)
        out = norch.batch_norm(norch.max_pool2d(out, 3, 2), None, None, training=True)
        (out * out * out).sum().backward()
        return out.detach(), a.grad, w.grad

    norch.set_num_threads(1)
    try:
        expected = run()
        norch.set_num_threads(threads)
        assert all(norch.equal(a, b) for a, b in zip(run(), expected, strict=True))
    finally:
        norch.set_num_threads(before)
