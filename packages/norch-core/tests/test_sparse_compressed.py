"""Sparse matrices whose rows or columns are compressed."""

from __future__ import annotations

import pickle

import pytest

import norch


def test_compressed_columns():
    values = norch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = norch.sparse_csc_tensor([0, 1, 1, 3], [2, 0, 1], values)
    dense = [[0.0, 0.0, 2.0], [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]]
    assert x.to_dense().tolist() == dense
    assert (x.layout, x.is_sparse, x.is_sparse_csr) == (norch.sparse_csc, False, False)
    assert (x.ccol_indices().tolist(), x.row_indices().tolist()) == ([0, 1, 1, 3], [2, 0, 1])
    assert x.values().tolist() == [1.0, 2.0, 3.0]
    turned = x.t()
    assert (turned.layout, turned.to_dense().tolist()) == (norch.sparse_csr, norch.tensor(dense).t().tolist())
    assert (turned.crow_indices().tolist(), turned.col_indices().tolist()) == ([0, 1, 1, 3], [2, 0, 1])
    (turned @ norch.tensor([[1.0], [10.0], [100.0]])).sum().backward()
    assert values.grad.tolist() == [100.0, 1.0, 10.0]
    for again in (norch.tensor(dense).to_sparse_csc(), norch.tensor(dense).to_sparse(layout=norch.sparse_csc)):
        assert (again.ccol_indices().tolist(), again.row_indices().tolist()) == ([0, 1, 1, 3], [2, 0, 1])
    again = pickle.loads(pickle.dumps(x.detach()))
    assert (again.layout, again.to_dense().tolist()) == (norch.sparse_csc, dense)
    assert (x.to_sparse().layout, x.to_sparse_csr().layout) == (norch.sparse_coo, norch.sparse_csr)
    assert x.to_sparse().indices().tolist() == [[0, 1, 2], [2, 2, 0]]
    assert "ccol_indices=tensor([0, 1, 1, 3])" in repr(x)
    again.mul_(2)
    assert (again.layout, again.values().tolist()) == (norch.sparse_csc, [2.0, 4.0, 6.0])
    for call in (x.crow_indices, x.col_indices, x.indices, x.is_coalesced, turned.ccol_indices, turned.row_indices):
        with pytest.raises(norch.DTypeError, match="the layout is norch.sparse_cs"):
            call()
    with pytest.raises(norch.IndexError, match="row_indices hold 3 for 3 rows"):
        norch.sparse_csc_tensor([0, 1], [3], [1.0], (3, 1))
    with pytest.raises(norch.ShapeError, match="2 ccol_indices for size"):
        norch.sparse_csc_tensor([0, 1], [0], [1.0], (1, 2))
    with pytest.raises(norch.ShapeError, match="matrices"):
        norch.ones(3).to_sparse_csc()


def test_pointers_of_rows_and_back():
    rows = norch.tensor([0, 0, 2, 4])
    crow = norch._convert_indices_from_coo_to_csr(rows, 5)
    assert (crow.tolist(), crow.dtype) == ([0, 2, 2, 3, 3, 4], norch.int64)
    assert norch._convert_indices_from_coo_to_csr(rows, 5, out_int32=True).dtype is norch.int32
    columns = norch.tensor([1, 3, 0, 2])
    assert norch._convert_indices_from_csr_to_coo(crow, columns).tolist() == [[0, 0, 2, 4], [1, 3, 0, 2]]
    assert norch._convert_indices_from_csr_to_coo(crow, columns, transpose=True).tolist() == [
        [1, 3, 0, 2],
        [0, 0, 2, 4],
    ]
    assert norch._convert_indices_from_coo_to_csr(rows[:0], 2).tolist() == [0, 0, 0]


def test_products_of_compressed_matrices_are_csr():
    dense = norch.tensor([[1.0, 0, 2], [0, 3, 0], [4, 0, 0]])
    made = {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "csc": dense.to_sparse_csc()}
    for a in made:
        for b in made:
            found = made[a] @ made[b]
            assert found.layout is (norch.sparse_coo if "coo" in (a, b) else norch.sparse_csr)
            assert found.to_dense().tolist() == [[9, 0, 2], [0, 9, 0], [4, 0, 8]]


@pytest.mark.parametrize("columns", [[1, 0, 2], [2, 2, 1], [0, 0, 0]])
def test_columns_in_any_order(columns):
    """Elements of one place are added up, as wherever PyTorch reads such a matrix."""
    values = norch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    dense = norch.zeros(2, 3).index_put((norch.tensor([0, 0, 1]), norch.tensor(columns)), values.detach(), True)
    rows = norch.sparse_csr_tensor([0, 2, 3], columns, values, (2, 3))
    assert rows.to_dense().tolist() == dense.tolist()
    assert (rows @ norch.arange(3.0)).tolist() == (dense @ norch.arange(3.0)).tolist()
    assert (rows.to_dense() * norch.arange(6.0).reshape(2, 3)).sum().backward() is None
    assert values.grad.tolist() == [columns[0], columns[1], 3 + columns[2]]
    turned = norch.sparse_csc_tensor([0, 2, 3], columns, values.detach(), (3, 2))
    assert turned.to_dense().tolist() == dense.T.tolist()


def test_compressed_by_layout():
    parts = [0, 1, 1, 3], [2, 0, 1], [1.0, 2.0, 3.0]
    for layout, make in ((norch.sparse_csr, norch.sparse_csr_tensor), (norch.sparse_csc, norch.sparse_csc_tensor)):
        x = norch.sparse_compressed_tensor(*parts, (3, 3), dtype=norch.float64, layout=layout, requires_grad=True)
        assert (x.layout, x.dtype, x.requires_grad) == (layout, norch.float64, True)
        assert x.to_dense().tolist() == make(*parts).to_dense().tolist()
    with pytest.raises(norch.DTypeError, match="layout must be"):
        norch.sparse_compressed_tensor(*parts, layout=norch.sparse_coo)
