"""Products of sparse matrices: in batches, and written into tensors."""

from __future__ import annotations

import numpy as np
import pytest

import norch


@pytest.mark.parametrize("coalesced", [True, False])
def test_batches_of_sparse_matrices_times_dense_ones(coalesced):
    dense = norch.tensor(np.where(np.arange(24).reshape(2, 3, 4) % 3, 0.0, np.arange(24.0).reshape(2, 3, 4)))
    places = dense.nonzero().t()
    values = dense[tuple(places)].requires_grad_()
    a = norch.sparse_coo_tensor(places, values, (2, 3, 4))
    a = a.coalesce() if coalesced else a
    b = norch.tensor(np.arange(16.0).reshape(2, 4, 2)).requires_grad_()
    found = norch.bmm(a, b)
    np.testing.assert_allclose(found.detach().numpy(), dense.numpy() @ b.detach().numpy())
    found.square().sum().backward()
    full, other = dense.clone().requires_grad_(), b.detach().clone().requires_grad_()
    norch.bmm(full, other).square().sum().backward()
    np.testing.assert_allclose(values.grad.numpy(), full.grad[tuple(places)].numpy())
    np.testing.assert_allclose(b.grad.numpy(), other.grad.numpy())
    with pytest.raises(norch.ShapeError, match="bmm"):
        norch.bmm(a, b[:1])


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_products_are_written_into_dense_tensors(layout):
    dense = norch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]])
    a = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
    vector, matrix = norch.arange(3.0), norch.arange(6.0).reshape(3, 2)
    for function, other in ((norch.matmul, vector), (norch.mv, vector), (norch.matmul, matrix), (norch.mm, matrix)):
        out = norch.full((2, *other.shape[1:]), 9.0)
        assert function(a, other, out=out) is out
        assert out.tolist() == function(dense, other).tolist()
