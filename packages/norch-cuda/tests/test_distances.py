"""cdist by kernels of its own, and its gradient, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.matrix.distances import distances, distances_grad

RNG = np.random.default_rng(8)
SHAPES = [
    (1, 1, 1, 1),
    (2, 3, 5, 4),
    (1, 70, 65, 3),
    (3, 33, 130, 9),
    (1, 64, 64, 40),
    (2, 5, 0, 3),
    (1, 0, 4, 2),
    (1, 9, 7, 70),
]
TOLERANCE = {"float32": 2e-6, "float64": 1e-14}


def distances_of(a, b, p):
    return (np.abs(a[:, :, None] - b[:, None]) ** p).sum(-1) ** (1 / p)


def gradient_of(grad, a, b, p):
    away = a[:, :, None] - b[:, None]
    if p == 1:
        return (np.sign(away) * grad[..., None]).sum(2)
    far = distances_of(a, b, 2)
    return (away * (np.divide(grad, far, out=np.zeros_like(far), where=far != 0))[..., None]).sum(2)


def rows(shape, dtype):
    batch, n, m, k = shape
    a, b = (RNG.standard_normal((batch, size, k)).astype(dtype) for size in (n, m))
    if n and m:
        b[:, -1] = a[:, 0]  # of rows that are the same the gradient is 0
    return a, b


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_distances_and_their_gradient(cuda, shape, p, dtype):
    a, b = rows(shape, dtype)
    x, y = (norch.tensor(v, device=cuda) for v in (a, b))
    wide = a.astype(np.float64), b.astype(np.float64)
    expected, tolerance = distances_of(*wide, p), TOLERANCE[dtype]
    found = distances(x, y, p)
    np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=tolerance, atol=tolerance)
    grad = RNG.standard_normal(expected.shape)
    given = norch.tensor(grad.astype(dtype), device=cuda)
    scale = tolerance * max(1, shape[2]) * 10
    first = distances_grad(given, x, y, found, p).cpu().numpy()
    np.testing.assert_allclose(first, gradient_of(grad, *wide, p), rtol=scale, atol=scale)
    second = distances_grad(given.mT, y, x, found.mT, p).cpu().numpy()
    turned = gradient_of(np.swapaxes(grad, 1, 2), *wide[::-1], p)
    np.testing.assert_allclose(second, turned, rtol=scale * 10, atol=scale * 10)
    assert norch.equal(distances_grad(given, x, y, found, p).cpu(), norch.tensor(first))  # the same bits each time


def test_cdist_makes_no_differences(cuda):
    x, y = (norch.tensor(RNG.standard_normal((1500, 64)), dtype=norch.float32, device=cuda) for _ in range(2))
    x.requires_grad_()
    norch.cuda.reset_peak_memory_stats()
    before = norch.cuda.memory_allocated()
    norch.cdist(x, y, 1.0).sum().backward()
    assert norch.cuda.max_memory_allocated() - before < 5 * 1500 * 1500 * 4
    assert x.grad.shape == x.shape


def test_points_are_not_multiplied(cuda):
    near = np.array([[1e3, 1e3 + 1e-3 * i, 1e3] for i in range(30)])
    x = norch.tensor(near, dtype=norch.float32, device=cuda).requires_grad_()
    y = norch.tensor(near[None, 1:] + np.zeros((2, 1, 1)), dtype=norch.float32, device=cuda)
    exact = x.detach().double(), y.double()
    expected = norch.cdist(*exact, compute_mode="donot_use_mm_for_euclid_dist")
    found = norch.cdist(x, y)
    assert found.shape == (2, 30, 29)
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected.cpu().numpy(), rtol=1e-6)
    found.sum().backward()
    signs = np.sign(exact[0].cpu().numpy()[None, :, None, 1] - exact[1].cpu().numpy()[:, None, :, 1])
    np.testing.assert_allclose(x.grad.cpu().numpy()[:, 1], signs.sum((0, 2)), rtol=1e-5, atol=1e-5)
    (slope,) = norch.autograd.grad(norch.cdist(x, x).square().sum(), x, create_graph=True)
    (curved,) = norch.autograd.grad(slope.sum(), x)
    np.testing.assert_allclose(curved.cpu().numpy(), 0, atol=1e-3)  # all points move alike


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_what_is_not_finite(cuda, p):
    x = norch.tensor([[[0.0, float("nan")], [1.0, 2.0], [float("inf"), 0.0]]], device=cuda)
    found = distances(x, x[:, 1:], p).tolist()[0]
    assert np.isnan(found[0]).all()
    assert found[1] == [0.0, float("inf")]
    assert found[2][0] == float("inf")
    assert np.isnan(found[2][1])
