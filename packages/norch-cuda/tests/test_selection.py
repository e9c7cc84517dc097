"""mode, elements of a rank and medians, triangles and their indices, on the GPU."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.reduction.selection import select_along

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("dtype", "float64 float32 float16 int64 int32 int16 int8 uint8 bool".split())
@pytest.mark.parametrize("n", [1, 2, 33, 128, 300, 512, 513])
def test_mode_is_what_a_sort_gives(cuda, n, dtype):
    drawn = RNG.integers(0, max(n // 3, 2), (5, n))
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
    values = np.where(drawn < 5, special[drawn % 5], drawn - 7.0) if "float" in dtype else drawn
    x = norch.tensor(values).to(getattr(norch, dtype))
    if "float" in dtype:
        x[0] = float("nan")
    views = (lambda t: (t, 1), lambda t: (t.t(), 0), lambda t: (t.t().contiguous(), 0), lambda t: (t[:, ::2], 1))
    for view in views:
        (given, dim), (moved, _) = view(x), view(x.to(cuda))
        wanted = select_along.op.decompose(given, dim, "mode", 0, True)
        for one, other in zip(select_along(moved, dim, "mode", 0, True), wanted, strict=True):
            np.testing.assert_array_equal(one.cpu().numpy(), other.numpy())


@pytest.mark.parametrize("dtype", "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8".split())
@pytest.mark.parametrize("n", [1023, 1024, 1025, 5000])
def test_an_element_of_a_rank_is_what_a_sort_gives(cuda, n, dtype):
    drawn = RNG.standard_normal((70, n)) * 20
    if "float" in dtype:
        drawn[1:50:3, 7:400:5] = np.nan
        drawn[2] = np.nan
        drawn[3, ::2], drawn[3, 1::2] = 0.0, -0.0
        drawn[4, 5:20] = np.inf
    x = norch.tensor(drawn if "float" in dtype else np.abs(drawn)).to(getattr(norch, dtype))
    for kind, k in (("median", 0), ("nanmedian", 0), ("kth", 0), ("kth", n // 3), ("kth", n - 1)):
        wanted = select_along.op.decompose(x, 1, kind, k, True)
        for moved, dim in ((x.to(cuda), 1), (x.t().to(cuda), 0), (x.t().contiguous().to(cuda).t()[:5], 1)):
            for one, other in zip(select_along(moved, dim, kind, k, True), wanted, strict=True):
                found = one.cpu() if dim == 1 else one.cpu().t()
                np.testing.assert_array_equal(found.double().numpy(), other[: len(found)].double().numpy())


@pytest.mark.parametrize("dtype", "float64 float32 float16 bool".split())
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 8), (300, 257), (2, 3, 40, 33), (0, 4)])
def test_triangles(cuda, shape, dtype):
    values = RNG.standard_normal(shape)
    x = norch.tensor(values > 0 if dtype == "bool" else values).to(getattr(norch, dtype))
    moved = x.to(cuda)
    for diagonal in (-400, -3, -1, 0, 1, 2, 5, 400):
        for name in ("tril", "triu"):
            wanted, turned = (getattr(np, name)(v, diagonal) for v in (x.numpy(), x.mT.numpy()))
            np.testing.assert_array_equal(getattr(norch, name)(moved, diagonal).cpu().numpy(), wanted)
            np.testing.assert_array_equal(getattr(norch, name)(moved.mT, diagonal).cpu().numpy(), turned)


def test_the_gradient_of_a_mode_goes_to_its_element(cuda):
    x = norch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 1.0]], device=cuda).requires_grad_()
    x.mode(-1)[0].sum().backward()
    assert x.grad.tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(("row", "col"), [(1, 1), (5, 3), (3, 8), (300, 257), (0, 4), (4, 0)])
def test_indices_of_triangles(cuda, row, col):
    for offset in (-400, -3, -1, 0, 1, 2, 5, 400, 2**62, -(2**62)):
        for name in ("tril_indices", "triu_indices"):
            make = getattr(norch, name)
            found, wanted = make(row, col, offset, device=cuda), make(row, col, offset)
            assert found.dtype is norch.int64
            np.testing.assert_array_equal(found.cpu().numpy(), wanted.numpy())
