"""resample: the kernel beside the decomposition."""

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.nn.resampling import Neighbours, neighbours, parts, resample, resampled
from norch.testing import assert_close

RNG = np.random.default_rng(0)
DECOMPOSED = by_name()["resample"].decompose


def drawn(dtype, *shape):
    return norch.tensor(RNG.standard_normal(shape), dtype=dtype)


def tables(n, count, taps, dtype):
    places = np.sort(RNG.integers(-2, n + 2, count))[:, None] + np.arange(taps)
    return neighbours(places, RNG.standard_normal((count, taps)), n, dtype, norch.device("cpu"))


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("shape", [(5, 3, 7, 6), (1, 1, 9, 65), (2, 19, 130, 5), (1, 2, 1, 33), (1, 1, 1, 1)])
@pytest.mark.parametrize(("count", "taps"), [(1, 4), (7, 3), (70, 2), (200, 9)])
def test_kernel_agrees_with_the_decomposition(dtype, shape, count, taps):
    tolerance = 1e-5 if dtype is norch.float32 else 1e-12
    for dim in range(4):
        x, near = drawn(dtype, *shape), tables(shape[dim], count, taps, dtype)
        back = Neighbours(near.back_first, near.back_weights, near.first, near.weights)
        expected = DECOMPOSED(x, dim, *near)
        expected_grad = DECOMPOSED(expected, dim, *back)
        for given in (x, x.contiguous(memory_format=norch.channels_last), x.transpose(0, 3).clone().transpose(0, 3)):
            found = resampled(given, dim, near)
            assert_close(found, expected, rtol=tolerance, atol=tolerance * taps)
            assert_close(resampled(found, dim, back), expected_grad, rtol=tolerance, atol=tolerance * 100)


def test_what_has_no_weight_is_not_read():
    places, weights = np.array([[0, 1], [2, 3]]), np.array([[0.5, 0.5], [0.0, 1.0]])
    near = neighbours(places, weights, 4, norch.float32, norch.device("cpu"))
    for shape in ((2, 4), (40, 4), (4, 3), (4, 40)):
        dim = shape.index(4)
        x = norch.ones(shape)
        x.select(dim, 2).fill_(float("nan"))
        assert_close(resampled(x, dim, near), norch.ones(shape).narrow(dim, 0, 2))
        assert_close(DECOMPOSED(x, dim, *near), norch.ones(shape).narrow(dim, 0, 2))


def test_neighbours_outside_are_refused():
    near = parts(6, 3, norch.float32, norch.device("cpu"))
    for first in (-1, 5):
        with pytest.raises(IndexError):
            resample(norch.ones(2, 6), 1, norch.full((3,), first), *near[1:])


def test_bits_do_not_depend_on_the_number_of_threads():
    x, before, found = drawn(norch.float32, 3, 40, 120, 130), norch.get_num_threads(), []
    try:
        for threads in (1, 2):
            norch.set_num_threads(threads)
            near = [parts(n, 77, x.dtype, x.device) for n in (120, 130)]
            found.append([resampled(x, dim, near[dim - 2]).numpy().tobytes() for dim in (2, 3)])
    finally:
        norch.set_num_threads(before)
    assert found[0] == found[1]
