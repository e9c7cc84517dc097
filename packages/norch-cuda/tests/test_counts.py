"""histc, bincount and counts of a mask on the GPU against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("bins", [1, 7, 100, 8192, 8193])
def test_histc(cuda, bins, dtype):
    for n in (0, 1, 4097, 1_000_003):
        v = (RNG.standard_normal(n) * 2).astype(dtype)
        v[: min(n, 5)] = np.array([3.0, -3.0, np.nan, np.inf, 3.5], dtype)[: min(n, 5)]
        inside = v[(v >= -3) & (v <= 3)]
        low, span, count = (np.asarray(a, dtype) for a in (-3, 6, bins))
        wanted = np.bincount(np.minimum(((inside - low) * count / span).astype(np.int64), bins - 1), minlength=bins)
        got = norch.histc(norch.tensor(v, device=cuda), bins, -3, 3).to("cpu").numpy()
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("most", [1, 10, 8192, 100_000])
def test_bincount(cuda, most):
    for n in (1, 4097, 1_000_003):
        v = RNG.integers(0, most, n)
        got = norch.bincount(norch.tensor(v, device=cuda), minlength=3).to("cpu").numpy()
        np.testing.assert_array_equal(got, np.bincount(v, minlength=3))
    every = norch.tensor(v, device=cuda)[::2]
    np.testing.assert_array_equal(norch.bincount(every).to("cpu").numpy(), np.bincount(v[::2]))


def test_counts_of_masks(cuda):
    for shape in ((0,), (1,), (70001,), (300, 700), (1 << 23,)):
        v = RNG.random(shape) < 0.3
        t = norch.tensor(v, device=cuda)
        assert int(t.sum().item()) == int(norch.count_nonzero(t).item()) == v.sum()
        assert int(t[1:].sum().item()) == v[1:].sum()
        if v.ndim == 2:
            np.testing.assert_array_equal(t.sum(0).to("cpu").numpy(), v.sum(0))
            assert int(t.T.sum().item()) == v.sum()
            assert t.sum(keepdim=True).shape == (1, 1)


@pytest.mark.parametrize("share", [0, 0.1, 1])
@pytest.mark.parametrize("shape", [(70001,), (300, 700), (3, 4, 5, 600), (0, 4), (2, 3) * 4, (2,) * 9, (3000, 1500)])
def test_places_in_masks(cuda, shape, share):
    v = RNG.random(shape) < share
    t = norch.tensor(v, device=cuda)
    np.testing.assert_array_equal(t.nonzero().cpu().numpy(), np.argwhere(v))
    for found, wanted in zip(t.nonzero(as_tuple=True), np.nonzero(v), strict=True):
        assert found.is_contiguous()
        np.testing.assert_array_equal(found.cpu().numpy(), wanted)
    x = RNG.random((*shape, 2), np.float32)
    for y in (norch.tensor(x, device=cuda), norch.tensor(np.moveaxis(x, -1, 0).copy(), device=cuda).movedim(0, -1)):
        np.testing.assert_array_equal(y[t].cpu().numpy(), x[v])
        y[t] = 2.0
        assert (y[t] == 2).all()
        np.testing.assert_array_equal(y[~t].cpu().numpy(), x[~v])


@pytest.mark.parametrize(
    "ends", [(0, 100), (-5, 40000), (-(2**31), 2**31 - 1), (2**40, 2**40 + 9), (-(2**63), 2**63 - 1)]
)
def test_unique_of_many(cuda, ends):
    for dtype in (np.int64, np.int32, np.uint8):
        if not np.iinfo(dtype).min <= ends[0] <= ends[1] <= np.iinfo(dtype).max:
            continue
        v = RNG.integers(*ends, (2100, 2000), dtype, endpoint=True)
        found = norch.unique(norch.tensor(v, device=cuda), return_inverse=True, return_counts=True)
        wanted = np.unique(v, return_inverse=True, return_counts=True)
        for result, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(result.cpu().numpy(), expected.reshape(tuple(result.shape)))
        assert found[0].cpu().numpy().dtype == dtype
