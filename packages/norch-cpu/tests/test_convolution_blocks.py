"""conv2d and its gradients in products of blocks: bfloat16, and float32 at lower precisions, tap by tap in NumPy."""

import ml_dtypes
import numpy as np
import pytest
from convolution_harness import conv2d, draw, gradients, tensor

import norch

CASES = {
    "second layer": ((2, 32, 12, 14), (48, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "channels that fill no block": ((2, 27, 9, 11), (19, 27, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "one block and a bit": ((1, 46, 10, 10), (33, 46, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    "strided": ((2, 32, 15, 17), (32, 32, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1),
    "strided by 3 and 2, dilated": ((2, 24, 21, 20), (16, 24, 3, 2), (3, 2), (2, 2, 3, 3), (2, 3), 1),
    "strided pointwise": ((3, 64, 14, 14), (32, 64, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1),
    "groups": ((2, 96, 9, 8), (60, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3),
    "more padding than image": ((2, 32, 3, 2), (16, 32, 3, 3), (1, 1), (4, 4, 5, 5), (1, 1), 1),
    "large kernel": ((1, 22, 18, 40), (24, 22, 5, 7), (1, 1), (2, 2, 3, 3), (1, 1), 1),
    "many channels": ((1, 256, 7, 7), (130, 256, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "long rows": ((1, 32, 4, 700), (32, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "many tiles": ((1, 64, 70, 66), (32, 64, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    "many small images": ((40, 32, 5, 5), (32, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
}


@pytest.fixture(autouse=True)
def restored():
    yield
    norch.set_float32_matmul_precision("highest")


def as_it_is(x):
    return x


def channels_last(x):
    return x.to(memory_format=norch.channels_last)


def stepped_over(x):
    return norch.stack([x, x + 1], -1)[..., 0]


def run(arrays, how, dtype, change=as_it_is):
    """The result and the gradients of it."""
    x, w, b = (tensor(a, dtype) for a in arrays[:3])
    x, w, b = change(x).detach().requires_grad_(), change(w).detach().requires_grad_(), b.requires_grad_()
    stride, pads, dilation, groups = how
    y = norch.conv2d(x, w, b, stride, (pads[0], pads[2]), dilation, groups)
    y.backward(change(tensor(arrays[3], dtype)))
    return [v.detach().double().numpy() for v in (y, x.grad, w.grad, b.grad)]


def drawn(name):
    """Numbers of few bits: float32 sums of their products are exact."""
    x_shape, w_shape, *how = CASES[name]
    arrays = [draw(*shape, seed=i) for i, shape in enumerate((x_shape, w_shape, w_shape[:1]))]
    y = conv2d(*arrays, *how)
    g = draw(*y.shape, seed=4)
    return [*arrays, g], how, [y, *gradients(g, *arrays[:2], *how)]


@pytest.mark.parametrize("change", [as_it_is, channels_last, stepped_over])
@pytest.mark.parametrize("name", CASES)
def test_bfloat16_is_rounded_once(name, change):
    arrays, how, exact = drawn(name)
    for got, wanted in zip(run(arrays, how, "bfloat16", change), exact, strict=True):
        np.testing.assert_array_equal(got, wanted.astype(ml_dtypes.bfloat16).astype(np.float64))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("precision", ["high", "medium"])
@pytest.mark.parametrize("name", CASES)
def test_others_where_their_numbers_have_few_bits(name, precision, dtype):
    norch.set_float32_matmul_precision(precision)
    arrays, how, exact = drawn(name)
    for got, wanted in zip(run(arrays, how, dtype), exact, strict=True):
        np.testing.assert_array_equal(got, wanted.astype(dtype).astype(np.float64))


def test_images_of_one_column_whose_stride_says_nothing():
    x, w, g = draw(2, 32, 60, 1, seed=1), draw(16, 32, 3, 1, seed=2), draw(2, 16, 60, 1, seed=3)
    how = ((1, 1), (1, 1, 0, 0), (1, 1), 1)

    def permuted(array):  # channels last, the step to a next column as long as an image
        return tensor(array.transpose(0, 3, 2, 1), "bfloat16").permute(0, 3, 2, 1)

    for change in (permuted, lambda array: tensor(array, "bfloat16")):
        t, u = change(x).detach().requires_grad_(), tensor(w, "bfloat16").requires_grad_()
        norch.conv2d(t, u, None, 1, (1, 0)).backward(permuted(g))
        for got, wanted in zip((t.grad, u.grad), gradients(g, x, w, *how), strict=False):
            np.testing.assert_array_equal(got.double().numpy(), wanted.astype(ml_dtypes.bfloat16).astype(np.float64))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["strided", "groups", "large kernel", "many tiles"])
def test_the_bits_do_not_depend_on_threads(name, threads):
    x_shape, w_shape, *how = CASES[name]
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in (x_shape, w_shape, w_shape[:1])]
    arrays.append(np.ones_like(conv2d(*(a.astype(np.float64) for a in arrays), *how)))
    before = norch.get_num_threads()
    wanted = run(arrays, how, "bfloat16")
    norch.set_num_threads(threads)
    try:
        got = run(arrays, how, "bfloat16")
    finally:
        norch.set_num_threads(before)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "name", ["second layer", "strided", "strided pointwise", "large kernel", "one block and a bit"]
)
def test_float32_at_high(name):
    """An element's error is below 2^-15 of the sum of its products' magnitudes."""
    norch.set_float32_matmul_precision("high")
    x_shape, w_shape, *how = CASES[name]
    rng = np.random.default_rng(4)
    arrays = [rng.standard_normal(s).astype(np.float32).astype(np.float64) for s in (x_shape, w_shape, w_shape[:1])]
    y = conv2d(*arrays, *how)
    arrays.append(rng.standard_normal(y.shape).astype(np.float32).astype(np.float64))
    exact = [y, *gradients(arrays[3], *arrays[:2], *how)]
    sizes = [np.abs(a) for a in arrays]
    room = [conv2d(*sizes[:3], *how), *gradients(sizes[3], *sizes[:2], *how)]
    for got, wanted, most in zip(run(arrays, how, "float32"), exact, room, strict=True):
        assert (np.abs(got - wanted) <= most * 2.0**-15).all()


def test_float32_at_high_of_numbers_that_have_no_two_parts():
    norch.set_float32_matmul_precision("high")
    x, w = norch.full((1, 32, 8, 8), 3.4e38), norch.full((32, 32, 3, 3), 1e-4)
    for got in (norch.conv2d(x, w, None, 1, 1), norch.conv2d(x, w, None, 2, 1)):
        assert norch.isfinite(got).all()
        assert abs(got[0, 0, 1, 1].item() / (288 * 3.4e34) - 1) < 1e-3
