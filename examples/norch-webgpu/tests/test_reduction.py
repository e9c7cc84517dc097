"""Reductions and scans of every shape that chooses another way through them, against NumPy in float64."""

import numpy as np
import pytest

import norch

SHAPES = ((3, 300), (5000, 40), (40, 5000), (2, 70_001), (70_001, 2), (1, 200_001))


def drawn(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dim", [0, 1, (0, 1)])
def test_rows_and_columns_long_and_short(shape, dim):
    a = drawn(shape)
    x, wide = norch.tensor(a, device="webgpu"), a.astype(np.float64)
    n = np.prod([shape[d] for d in np.atleast_1d(dim)])
    np.testing.assert_allclose(x.sum(dim).cpu().numpy(), wide.sum(dim), rtol=1e-5, atol=2e-7 * n)
    assert (x.amax(dim).cpu().numpy() == a.max(dim)).all()
    assert (x.T.amin(0 if dim == 1 else 1 if dim == 0 else dim).cpu().numpy() == a.min(dim)).all()
    if isinstance(dim, int):
        assert (x.argmax(dim).cpu().numpy() == a.argmax(dim)).all()
        assert (x.T.argmin(1 - dim).cpu().numpy() == a.argmin(dim)).all()
        np.testing.assert_allclose(x.cumsum(dim).cpu().numpy(), wide.cumsum(dim), rtol=1e-5, atol=2e-7 * n)


def test_a_nan_wins_wherever_it_is():
    for n in (1, 7, 1000, 100_000):
        for at in {0, n // 2, n - 1}:
            a = drawn((n,))
            a[at:] = np.nan
            x = norch.tensor(a, device="webgpu")
            assert np.isnan([x.max().item(), x.min().item(), x.sum().item()]).all()
            assert (x.argmax().item(), x.argmin().item()) == (at, at)


def test_the_first_of_equals():
    x = norch.zeros(100_000, device="webgpu")
    assert (x.argmax().item(), x.argmin().item()) == (0, 0)
    x[70_000:] = 1
    assert x.argmax().item() == 70_000


def test_the_same_bits_every_time():
    x = norch.tensor(drawn((3, 100_000)), device="webgpu")
    assert len({tuple(x.sum(1).tolist()) for _ in range(5)}) == 1


@pytest.mark.parametrize("dtype", [norch.int64, norch.int32, norch.int8, norch.bool, norch.float16, norch.bfloat16])
def test_other_dtypes(dtype):
    a = np.random.default_rng(0).integers(0, 2, (3, 3000))
    x = norch.tensor(a, device="webgpu").to(dtype)
    assert x.sum(1, dtype=norch.int64).tolist() == a.sum(1).tolist()
    assert x.any(0).tolist() == a.any(0).tolist()
    assert x.amax(0).tolist() == a.max(0).tolist()


def test_sums_of_int64_are_exact():
    a = np.random.default_rng(0).integers(-(1 << 40), 1 << 40, (2, 100_000))
    x = norch.tensor(a, device="webgpu")
    assert x.sum(1).tolist() == a.sum(1).tolist()
    assert x.cumsum(1).tolist() == a.cumsum(1).tolist()


def test_more_rows_than_workgroups_in_a_dim():
    a = drawn((65_537, 3))
    x = norch.tensor(a, device="webgpu")
    beside = [norch.full((300,), 7.0, device="webgpu") for _ in range(20)]
    assert (x.sort(1)[0].cpu().numpy() == np.sort(a, 1)).all()
    np.testing.assert_allclose(x.cumsum(1).cpu().numpy(), a.astype(float).cumsum(1), atol=1e-5)
    np.testing.assert_allclose(x.softmax(1).sum(1).cpu().numpy(), 1, atol=1e-5)
    assert all(b.amin().item() == b.amax().item() == 7 for b in beside)
