"""Work for more threads than there are images, tiles or blocks: each has its share, and not a bit is another."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(0)
MANY = 16


@pytest.fixture(autouse=True)
def threads():
    before = norch.get_num_threads()
    yield
    norch.set_num_threads(before)


def drawn(*shape):
    return RNG.standard_normal(shape, dtype=np.float32)


def check(call, expected, tolerance):
    """What one thread and many give."""
    norch.set_num_threads(1)
    alone = call()
    norch.set_num_threads(MANY)
    many = call()
    assert alone.equal(many)
    np.testing.assert_allclose(many.double().numpy(), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def convolution(x, w, stride, pad):
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(norch.float32, 1e-5), (norch.bfloat16, 1e-2), (norch.float64, 1e-6)], ids=str
)
@pytest.mark.parametrize(
    ("image", "weight", "stride"),
    [
        ((1, 64, 7, 7), (192, 64, 3, 3), 1),
        ((1, 40, 14, 14), (136, 40, 3, 3), 1),
        ((1, 64, 14, 14), (200, 64, 3, 3), 2),
        ((2, 32, 9, 5), (72, 32, 1, 1), 2),
        ((1, 24, 6, 6), (130, 24, 5, 3), 1),
    ],
)
def test_channels_of_a_small_image(image, weight, stride, dtype, tolerance, last):
    x = norch.tensor(drawn(*image), dtype=dtype)
    w = norch.tensor(drawn(*weight) / weight[1], dtype=dtype)
    x = x.contiguous(memory_format=norch.channels_last) if last else x
    pad = weight[2] // 2
    expected = convolution(x.double().numpy(), w.double().numpy(), stride, pad)
    check(lambda: norch.conv2d(x, w, None, stride, pad), expected, tolerance)


@pytest.mark.parametrize("shape", [(300, 700), (8, 9000), (2, 200, 130), (600, 65)])
@pytest.mark.parametrize("op", ["sum", "amax", "amin"])
def test_columns_of_a_few_rows(shape, op):
    x = drawn(*shape)
    check(lambda: getattr(norch.tensor(x), op)(-2), getattr(np, op)(x.astype(np.float64), -2), 1e-5)


@pytest.mark.parametrize("dtype", [norch.float32, norch.int16], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_places_that_rows_are_added_to(dim, dtype):
    index = RNG.integers(0, 37, 5000)
    rows = np.moveaxis(RNG.integers(-9, 9, (5000, 24)), 0, dim)
    expected = np.moveaxis(np.zeros_like(rows, shape=(37, 24)), 0, dim)
    np.add.at(np.moveaxis(expected, dim, 0), index, np.moveaxis(rows, dim, 0))
    source = norch.tensor(rows, dtype=dtype)
    check(lambda: norch.zeros(expected.shape, dtype=dtype).index_add_(dim, norch.tensor(index), source), expected, 0)


@pytest.mark.parametrize("dtype", [norch.float32, norch.bfloat16], ids=str)
def test_products_whose_scratch_memory_is_the_threads_own(dtype):
    a, b = (norch.tensor(drawn(*shape), dtype=dtype) for shape in ((200, 49, 40), (200, 40, 33)))
    expected = a.double().numpy() @ b.double().numpy()
    before = norch.cpu.memory_stats()["allocated_bytes"]
    check(lambda: a @ b, expected, 1e-5 if dtype is norch.float32 else 1e-2)
    assert norch.cpu.memory_stats()["allocated_bytes"] == before
