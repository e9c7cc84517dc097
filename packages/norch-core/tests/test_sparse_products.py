"""Products of two sparse tensors, of matrices and of elements, beside those of dense ones."""

from __future__ import annotations

import numpy
import pytest

import norch


@pytest.mark.parametrize(("n", "count"), [(12, 60), (40, 30), (6, 0)])
def test_products_of_two_sparse_matrices_keep_what_cancels(n, count):
    """By way of a dense result where there are many products, by pairs where there are few."""
    rng = numpy.random.default_rng(count)
    places = [norch.tensor(rng.integers(0, n, (2, count))) for _ in range(2)]
    a, b = (norch.sparse_coo_tensor(p, norch.ones(p.shape[1]), (n, n)).coalesce() for p in places)
    values = [norch.tensor(rng.integers(-1, 2, x._nnz()), dtype=norch.float64, requires_grad=True) for x in (a, b)]
    x, y = (norch.sparse_coo_tensor(m.indices(), v, (n, n), is_coalesced=True) for m, v in zip((a, b), values))
    out = x @ y
    assert norch.equal(
        (a.to_dense() @ b.to_dense()) != 0,
        norch.sparse_coo_tensor(out.indices(), norch.ones(out._nnz()), (n, n)).to_dense() != 0,
    )
    norch.testing.assert_close(out.to_dense(), x.to_dense() @ y.to_dense())
    weight = norch.tensor(rng.standard_normal((n, n)))
    (out.to_dense() * weight).sum().backward()
    dense = [m.to_dense().detach().requires_grad_() for m in (x, y)]
    ((dense[0] @ dense[1]) * weight).sum().backward()
    for m, v, d in zip((a, b), values, dense, strict=True):
        norch.testing.assert_close(v.grad, d.grad[m.indices()[0], m.indices()[1]])


def test_infinities_meet_no_zeros_of_what_is_not_there():
    inf = float("inf")
    a = norch.sparse_coo_tensor(norch.tensor([[0, 0], [0, 1]]), norch.tensor([inf, 1.0]), (1, 2))
    b = norch.sparse_coo_tensor(norch.tensor([[0, 1], [1, 0]]), norch.tensor([2.0, 5.0]), (2, 2))
    assert (a @ b).to_dense().tolist() == [[5, inf]]
    assert (b @ a.t()).to_dense().tolist() == [[2], [inf]]


def test_elementwise_products_at_the_same_places_and_at_others():
    rng = numpy.random.default_rng(0)
    a, b = (norch.tensor(rng.integers(-2, 3, (5, 7)) * (rng.random((5, 7)) < 0.5), dtype=norch.float32) for _ in "ab")
    for x, y in ((a, b), (a, a), (a, a * 0), (a * 0, b), (a, (a == 0).float())):
        found = x.to_sparse() * y.to_sparse()
        norch.testing.assert_close(found.to_dense(), x * y)
        assert found._nnz() == int(((x != 0) & (y != 0)).sum())
    one = a.to_sparse()
    norch.testing.assert_close((one * one).to_dense(), a * a)
    norch.testing.assert_close((one.to_sparse_csr() * b.to_sparse_csr()).to_dense(), a * b)
