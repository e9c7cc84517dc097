"""Ranks, medians, modes and binary search of the native kernels against what norch computes them by elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch
from norch.ops.families import by_name

DTYPES = [norch.float64, norch.float32, norch.float16, norch.int64, norch.int32, norch.uint8]
ids = {"ids": lambda v: v.name if isinstance(v, norch.dtype) else None}


def numbers(shape, dtype, seed):
    """All sorts of numbers, among the floats zeros of both signs and, for odd seeds, NaN."""
    rng = np.random.default_rng(seed)
    if not dtype.is_floating_point:
        info = np.iinfo(dtype.numpy)
        drawn = rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
        return norch.tensor(drawn if seed % 2 else drawn % 7)
    special = np.array([0.0, -0.0, math.inf, -math.inf, math.nan if seed % 2 else 1e-7])
    drawn = rng.integers(0, 50, shape)
    return norch.tensor(np.where(drawn < 5, special[drawn % 5], rng.normal(size=shape).round(2))).to(dtype)


def same(got, expected):
    assert got.dtype is expected.dtype
    assert got.contiguous().cpu().numpy().tobytes() == expected.contiguous().cpu().numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, **ids)
@pytest.mark.parametrize("kind", ["kth", "median", "nanmedian", "mode"])
def test_select_along_is_what_a_sort_gives(kind, dtype):
    from norch.ops.reduction.selection import select_along

    formula = by_name()["select_along"].decompose
    for n in (1, 2, 63, 64, 65, 66, 1000, 5001):
        for seed in (0, 1):
            x = numbers((3, n), dtype, n + seed)
            for tensor, dim in ((x, 1), (x.t(), 0), (x.t().contiguous(), 0), (x[:, ::2], 1)):
                k = (tensor.shape[dim] - 1) // 3
                for got, expected in zip(
                    select_along(tensor, dim, kind, k, False), formula(tensor, dim, kind, k, False)
                ):
                    same(got, expected)


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_medians_of_all(dtype):
    for n in (1, 5, 64, 4000):
        for seed in (0, 1):
            x = numbers((2, n), dtype, n + seed)
            same(x.median(), by_name()["median_of_all"].decompose(x))
            same(x.nanmedian(), by_name()["nanmedian_of_all"].decompose(x))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_searchsorted_is_the_formula(dtype, right):
    from norch.ops.reduction.sorting import searchsorted

    formula = by_name()["searchsorted"].decompose
    for size in (1, 2, 3, 100, 1025):
        for seed in (0, 1):
            sequence = numbers((2, size), dtype, size + seed)
            wanted = norch.cat([numbers((2, 300), dtype, size + seed + 2), sequence], 1)
            for values in (sequence, sequence.sort()[0]):  # in no order too
                same(searchsorted(values, wanted, right=right), formula(values, wanted, right))
                same(
                    searchsorted(values[1], wanted, right=right).reshape(-1),
                    formula(values[1], wanted.reshape(-1), right),
                )
                same(searchsorted(values, wanted[:, ::3], right=right), formula(values, wanted[:, ::3], right))
