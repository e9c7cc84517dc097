"""distances and their gradient: the kernels beside the decompositions."""

import numpy as np
import pytest

import norch
from norch.ops.families import by_name
from norch.ops.matrix.distances import distances, distances_grad, pairwise_distances, pairwise_distances_grad
from norch.testing import assert_close

RNG = np.random.default_rng(0)
FORWARD, BACKWARD = (by_name()[name].decompose for name in ("distances", "distances_grad"))


def drawn(dtype, *shape):
    return norch.tensor(RNG.standard_normal(shape), dtype=dtype)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 4), (1, 40, 70, 9), (3, 1, 1, 1), (1, 33, 64, 32), (2, 4, 3, 0), (0, 2, 2, 3), (1, 0, 3, 2)]
)
def test_kernels_agree_with_the_decompositions(dtype, p, shape):
    b, n, m, k = shape
    x1, x2 = drawn(dtype, b, n, k), drawn(dtype, b, m, k)
    if b and n and k:
        x1[0, 0] = x2[0, 0]
    tolerance = 1e-5 if dtype is norch.float32 else 1e-12
    found = distances(x1, x2, p)
    assert_close(found, FORWARD(x1, x2, p), rtol=tolerance, atol=tolerance)
    for grad in (drawn(dtype, b, n, m), drawn(dtype, m, n, b).permute(2, 1, 0), drawn(dtype, 1, 1, 1).expand(b, n, m)):
        tolerances = {"rtol": tolerance, "atol": tolerance * 50}
        assert_close(distances_grad(grad, x1, x2, found, p), BACKWARD(grad, x1, x2, found, p), **tolerances)
        turned = grad.mT, x2, x1, found.mT, p
        assert_close(distances_grad(*turned), BACKWARD(*turned), **tolerances)


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64])
@pytest.mark.parametrize("p", [1.0, 2.0])
@pytest.mark.parametrize("shape", [(1, 3), (2, 1), (9, 4), (33, 9), (70, 40), (129, 71), (5, 0)], ids=str)
def test_distances_of_pairs_are_numpys(dtype, p, shape):
    n, k = shape
    x = drawn(dtype, n, k)
    if n > 4:
        x[3] = x[1]
    wide = x.numpy().astype(np.float64)
    away = wide[:, None] - wide[None]
    whole = np.abs(away).sum(-1) if p == 1 else np.sqrt((away * away).sum(-1))
    above = np.triu_indices(n, 1)
    tolerance = 1e-5 if dtype is norch.float32 else 1e-12
    found = pairwise_distances(x, p)
    np.testing.assert_allclose(found.numpy(), whole[above], tolerance, tolerance)
    for grad in (drawn(dtype, len(above[0])), drawn(dtype, 1).expand(len(above[0]))):
        g = np.zeros((n, n))
        g[above] = grad.numpy()
        g += g.T
        factors = np.sign(away) if p == 1 else away / np.where(whole == 0, 1, whole)[..., None]
        expected = (g[..., None] * factors).sum(1)
        got = pairwise_distances_grad(grad, x, found, p)
        np.testing.assert_allclose(got.numpy(), expected, tolerance, tolerance * 50)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_nan_and_infinities(p):
    x1, x2 = drawn(norch.float32, 1, 4, 10), drawn(norch.float32, 1, 40, 10)
    x1[0, 1, 3], x1[0, 2, 5], x2[0, 7, 5] = float("nan"), float("inf"), float("inf")
    found, wanted = distances(x1, x2, p), FORWARD(x1, x2, p)
    assert_close(found, wanted, equal_nan=True)
    grad = drawn(norch.float32, 1, 4, 40)
    assert_close(
        distances_grad(grad, x1, x2, found, p), BACKWARD(grad, x1, x2, found, p), rtol=1e-4, atol=1e-4, equal_nan=True
    )


def test_bits_do_not_depend_on_the_number_of_threads():
    x1, x2, before, found = drawn(norch.float32, 3, 77, 9), drawn(norch.float32, 3, 90, 9), norch.get_num_threads(), []
    try:
        for threads in (1, 2):
            norch.set_num_threads(threads)
            away = distances(x1, x2, 2.0)
            pairs = pairwise_distances(x1[0], 2.0)
            grads = distances_grad(away, x1, x2, away, 2.0), pairwise_distances_grad(pairs, x1[0], pairs, 2.0)
            found.append([t.numpy().tobytes() for t in (away, pairs, *grads)])
    finally:
        norch.set_num_threads(before)
    assert found[0] == found[1]
