"""Sparse matrices, of listed elements, times dense ones, against NumPy."""

import numpy as np
import pytest
from indexing_harness import layouts, tensor, values

import norch
from norch.ops.matrix.sparse_product import coo_matmul
from norch_cpu.native import native


@pytest.mark.parametrize("name", ["float64", "float32", "int64"])
@pytest.mark.parametrize("shape", [(70,), (70, 1), (70, 7), (70, 71)], ids=str)
@pytest.mark.parametrize("order", ["sorted", "any", "none"])
def test_sparse_matrices_times_dense_ones(name, shape, order):
    assert "coo_matmul" in native.ops()
    rng = np.random.default_rng(0)
    rows, columns = (
        rng.integers(5, 40, 0 if order == "none" else 300),
        rng.integers(0, 70, 0 if order == "none" else 300),
    )
    rows = np.sort(rows) if order == "sorted" else rows
    factors, dense = values(name, len(rows)), values(name, *shape, seed=1)
    matrix = np.zeros((50, 70), factors.dtype)
    np.add.at(matrix, (rows, columns), factors)
    before, given = native.num_threads(), [norch.tensor(x, dtype=norch.int64) for x in (rows, columns)]
    for threads in (1, 3):
        native.set_num_threads(threads)
        for x in layouts(dense):
            for places in (given, norch.stack(given, 1).unbind(1)):  # as those of nonzero() lie
                with norch.no_grad():  # as products are called: views would be taken for parts of a graph
                    found = coo_matmul(tensor(factors), x, *places, 50)
                np.testing.assert_array_equal(found.numpy(), matrix @ dense)
    native.set_num_threads(before)
    if len(rows):
        for at, size in ((0, 39), (0, 50), (1, 50)):
            wrong = [x.clone() for x in given]
            wrong[at][7] = 70
            for places in (wrong, norch.stack(wrong, 1).unbind(1)):
                with norch.no_grad(), pytest.raises(IndexError, match="index (70|39) "):
                    coo_matmul(tensor(factors), tensor(dense), *places, size)
