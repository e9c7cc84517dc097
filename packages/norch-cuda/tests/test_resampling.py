"""resample beside NumPy, and what is made of it."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.nn.interpolation import interpolate
from norch.ops.nn.resampling import Neighbours, neighbours, resample, resampled
from norch.testing import assert_close

RNG = np.random.default_rng(0)


def near_of(n, count, taps, device, dtype):
    start = np.sort(RNG.integers(0, n - taps + 1, count))
    weights = RNG.standard_normal((count, taps))
    weights[RNG.random((count, taps)) < 0.2] = 0
    return neighbours(start[:, None] + np.arange(taps), weights, n, dtype, device)


def by_numpy(x, dim, near):
    first, weights = near.first.cpu().numpy(), near.weights.cpu().numpy()
    x = np.moveaxis(x, dim, -1)
    out = np.zeros((*x.shape[:-1], len(first)))
    for i, (start, row) in enumerate(zip(first, weights, strict=True)):
        for t, weight in enumerate(row):
            if weight != 0:
                out[..., i] += weight * x[..., start + t]
    return np.moveaxis(out, -1, dim)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize(
    ("shape", "dim", "count", "taps"),
    [
        ((2, 3, 9, 8), 2, 17, 2),
        ((2, 3, 9, 8), 3, 5, 3),
        ((1, 3, 9, 7), 3, 20, 4),
        ((1, 1, 9), 2, 4, 1),
        ((5, 3, 700), 2, 301, 7),
        ((2, 2, 5, 6, 7), 2, 11, 2),
        ((2, 2, 5, 6, 7), 3, 2, 5),
        ((0, 3, 4, 5), 2, 8, 2),
        ((2, 3, 40, 33), 2, 1, 40),
    ],
)
def test_it_is_the_sum_of_neighbours(cuda, dtype, shape, dim, count, taps):
    near = near_of(shape[dim], count, taps, norch.device(cuda), dtype)
    x = RNG.standard_normal(shape)
    given = norch.tensor(x, dtype=dtype, device=cuda, requires_grad=True)
    out = resampled(given, dim, near)
    tolerance = 1e-5 if dtype is norch.float32 else 1e-12
    assert_close(out.detach().cpu().double().numpy(), by_numpy(x, dim, near), rtol=tolerance, atol=tolerance)
    g = RNG.standard_normal(out.shape)
    out.backward(norch.tensor(g, dtype=dtype, device=cuda))
    back = Neighbours(near.back_first, near.back_weights, near.first, near.weights)
    assert_close(given.grad.cpu().double().numpy(), by_numpy(g, dim, back), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("channels", [3, 8])
def test_images_whose_channels_vary_fastest(cuda, dim, channels):
    x = RNG.standard_normal((2, 9, 6, channels))
    given = norch.tensor(x, dtype=norch.float32, device=cuda).permute(0, 3, 1, 2)
    near = near_of(given.shape[dim], 13, 3, norch.device(cuda), norch.float32)
    out = resampled(given, dim, near)
    assert out.permute(0, 2, 3, 1).is_contiguous()
    assert_close(out.cpu().double().numpy(), by_numpy(x.transpose(0, 3, 1, 2), dim, near), rtol=1e-5, atol=1e-5)


def test_what_has_weight_0_is_left_out_even_nan(cuda):
    x = norch.tensor([[1.0, float("nan"), 3.0, float("inf")]], device=cuda)
    first = norch.tensor([0, 1, 2], device=cuda)
    weights = norch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], device=cuda)
    back = norch.zeros(4, dtype=norch.int64, device=cuda), norch.zeros(4, 1, device=cuda)
    assert resample(x, 1, first, weights, *back).cpu().tolist() == [[2.0, 3.0, 3.0]]
    columns = resample(x.t().expand(4, 8).contiguous(), 0, first, weights, *back)
    assert columns.cpu().tolist() == [[2.0] * 8, [3.0] * 8, [3.0] * 8]


def test_neighbours_outside_are_reported(cuda):
    x, weights = norch.ones(2, 4, device=cuda), norch.ones(2, 2, device=cuda)
    back = norch.zeros(4, dtype=norch.int64, device=cuda), norch.zeros(4, 1, device=cuda)
    with pytest.raises(IndexError):
        resample(x, 1, norch.tensor([0, 3], device=cuda), weights, *back)
        norch.cuda.synchronize()


@pytest.mark.parametrize(
    ("shape", "mode", "size"),
    [((3, 5, 37), "linear", 80), ((2, 3, 17, 12), "bilinear", (40, 7)), ((2, 3, 17, 12), "bicubic", (9, 25)),
     ((1, 2, 5, 6, 7), "trilinear", (10, 3, 9)), ((2, 3, 17, 12), "area", (7, 5))],
)  # fmt: skip
def test_interpolation_is_that_of_the_cpu(cuda, shape, mode, size):
    x = norch.tensor(RNG.standard_normal(shape), dtype=norch.float32)
    results = []
    for device in ("cpu", cuda):
        given = x.to(device).detach().requires_grad_()
        out = interpolate(given, size, mode=mode)
        (out * out).sum().backward()
        results.append((out.detach().cpu(), given.grad.cpu()))
    for here, there in zip(*results, strict=True):
        assert_close(there, here, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float16, norch.bfloat16])
@pytest.mark.parametrize("is_last", [False, True])
def test_nearest_at_twice_the_size(cuda, dtype, is_last):
    x = RNG.integers(-8, 9, (2, 5, 7, 6))
    given = norch.tensor(x, dtype=dtype, device=cuda)
    if is_last:
        given = given.to(memory_format=norch.channels_last)
    given = given.detach().requires_grad_()
    out = interpolate(given, scale_factor=2)
    assert np.array_equal(out.detach().cpu().double().numpy(), x.repeat(2, 2).repeat(2, 3))
    g = RNG.integers(-8, 9, out.shape)
    out.backward(norch.tensor(g, dtype=dtype, device=cuda))
    assert np.array_equal(given.grad.cpu().double().numpy(), g.reshape(2, 5, 7, 2, 6, 2).sum((3, 5)))
