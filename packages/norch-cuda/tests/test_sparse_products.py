"""A sparse matrix times a dense one on the GPU."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.ops.matrix.sparse_product import coo_matmul

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("dtype", [norch.float64, norch.float32], ids=str)
@pytest.mark.parametrize("width", [1, 8, 100, 128, 300])
@pytest.mark.parametrize(
    ("size", "inner", "count"), [(1, 1, 1), (50, 70, 400), (33, 9, 20000), (300, 20, 0), (9, 40, 3)]
)
def test_products(cuda, size, inner, count, width, dtype):
    rows, columns = RNG.integers(0, size, count), RNG.integers(0, inner, count)
    rows[: count // 2] = size // 2  # a long row
    values, dense = RNG.standard_normal(count), RNG.standard_normal((inner, width))
    matrix = np.zeros((size, inner))
    np.add.at(matrix, (rows, columns), values)
    wanted = matrix @ dense
    places = norch.tensor(np.stack([rows, columns], 1).astype(np.int64), device=cuda)
    a, b = (norch.tensor(v, dtype=dtype, device=cuda) for v in (values, dense))
    for given in (b, b.T.contiguous().T):
        with norch.no_grad():  # the places are views
            found, again = (coo_matmul(a, given, places[:, 0], places[:, 1], size) for _ in range(2))
            order = np.argsort(rows, kind="stable")
            sorted_places = places[norch.tensor(order, device=cuda)]
            sorted_values = a[norch.tensor(order, device=cuda)]
            in_order = coo_matmul(sorted_values, given, *sorted_places.unbind(1), size, True)
        unit = 1e-12 if dtype is norch.float64 else 1e-5
        scale = max(np.abs(wanted).max(), 1)
        np.testing.assert_allclose(found.cpu().double().numpy(), wanted, rtol=unit, atol=unit * 10 * scale)
        assert norch.equal(found, again)
        assert width < 8 or norch.equal(found, in_order)


@pytest.mark.parametrize(("rows", "columns"), [([0, 3], [0, 1]), ([0, 1], [0, 9])])
def test_places_that_are_not_there(cuda, rows, columns):
    places = [norch.tensor(x, device=cuda) for x in (rows, columns)]
    with pytest.raises(IndexError):
        coo_matmul(norch.ones(2, device=cuda), norch.ones(4, 16, device=cuda), *places, 3).cpu()


def test_gradients(cuda):
    dense, places = RNG.standard_normal((5, 12)), norch.tensor([[0, 3, 1, 3], [4, 0, 2, 1]])
    found = []
    for device in ("cpu", cuda):
        values = norch.tensor([1.0, -2.0, 3.0, 0.5], dtype=norch.float64, device=device).requires_grad_()
        b = norch.tensor(dense, device=device).requires_grad_()
        (norch.sparse_coo_tensor(places.to(device), values, (4, 5)) @ b).square().sum().backward()
        found.append((values.grad.cpu().numpy(), b.grad.cpu().numpy()))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "not coalesced"])
def test_layouts(cuda, layout):
    dense, places, values = RNG.standard_normal((50, 16)), RNG.integers(0, 50, (2, 400)), RNG.standard_normal(400)
    found = []
    for device in ("cpu", cuda):
        a = norch.sparse_coo_tensor(norch.tensor(places), norch.tensor(values), (50, 50)).to(device)
        a = a if layout == "not coalesced" else a.coalesce()
        a = a if layout in ("coo", "not coalesced") else getattr(a, f"to_sparse_{layout}")()
        found.append((a @ norch.tensor(dense, device=device)).cpu().numpy())
    np.testing.assert_allclose(*found, rtol=1e-11, atol=1e-12)
