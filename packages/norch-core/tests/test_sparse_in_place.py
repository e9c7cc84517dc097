"""Sparse tensors added into dense memory, emptied, copied and made by `new`: of tables, whose rows have gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import norch


def rows(shape: tuple[int, ...] = (5, 2)) -> Any:
    return norch.sparse_coo_tensor([[1, 3, 1]], [[1.0, 2], [3, 4], [5, 6]], shape)


def elements() -> Any:
    return norch.sparse_coo_tensor([[1, 3, 1], [0, 1, 0]], [1.0, 2, 3], (5, 2))


CHANGES: dict[str, Any] = {
    "add_": lambda x, s: x.add_(s),
    "add_ with alpha": lambda x, s: x.add_(s, alpha=-0.5),
    "sub_": lambda x, s: x.sub_(s),
    "sub_ with alpha": lambda x, s: x.sub_(s, alpha=2),
    "+=": lambda x, s: x.__iadd__(s),
    "-=": lambda x, s: x.__isub__(s),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("make", [rows, elements, lambda: elements().coalesce(), lambda: elements().to_sparse_csr()])
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "float64"])
def test_elements_are_added_into_dense_memory(name: str, make: Any, layout: str) -> None:
    def start() -> norch.Tensor:
        x = norch.arange(10.0).reshape(5, 2)
        if layout == "float64":
            return x.double()
        return x if layout == "contiguous" else x.t().contiguous().t()

    x, expected, sparse = start(), start(), make()
    memory, version = x.data_ptr(), x._version
    assert CHANGES[name](x, sparse) is x
    CHANGES[name](expected, sparse.to_dense())
    assert x.tolist() == expected.tolist()
    assert x.data_ptr() == memory
    assert x._version > version


def test_sums_that_are_recorded_have_gradients() -> None:
    x = norch.ones(5, 2, requires_grad=True)
    y = x * 2
    y.add_(elements())
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[8, 8], [24, 8], [8, 8], [8, 16], [8, 8]]
    with pytest.raises(norch.AutogradError):
        x.add_(elements())
    x.data.add_(elements(), alpha=-1)
    assert x.tolist() == [[1, 1], [-3, 1], [1, 1], [1, -1], [1, 1]]


def test_shapes_that_differ_are_refused() -> None:
    with pytest.raises(norch.ShapeError):
        norch.ones(5, 2).add_(rows((4, 2)))


def test_zeros_keep_which_dims_are_sparse() -> None:
    for make in (rows, elements, lambda: rows().coalesce()):
        x: Any = make()
        made: list[Any] = [norch.zeros_like(x), norch.zeros_like(x, dtype=norch.float64), x.clone().zero_()]
        for zeros in made:
            assert (zeros.sparse_dim(), zeros.dense_dim(), zeros._nnz()) == (x.sparse_dim(), x.dense_dim(), 0)
            assert (zeros.to(norch.float32) + x).to_dense().tolist() == x.to_dense().tolist()
    assert norch.zeros_like(elements().to_sparse_csr()).layout is norch.sparse_csr


def test_new_makes_others_of_the_same_type() -> None:
    x = rows().double()
    made = x.new(norch.tensor([[0, 4]]), norch.ones(2, 2, dtype=norch.float64), (5, 2))
    assert (made.layout, made.dtype, made.to_dense().sum().item()) == (norch.sparse_coo, norch.float64, 4.0)
    assert tuple(x.new(3, 2).shape) == (3, 2)
    with pytest.raises(norch.ShapeError):
        x.new(norch.tensor([[0, 4]]), norch.ones(3, 2, dtype=norch.float64), (5, 2))


def test_copies_of_leaves_have_their_sparse_gradients() -> None:
    x = norch.ones(5, 2, requires_grad=True)
    x.grad = rows()
    copied = copy.deepcopy(x)
    assert copied.grad is not None
    x.grad.zero_()
    assert copied.grad.to_dense().tolist() == rows().to_dense().tolist()


@pytest.mark.parametrize("alpha", [1, 0.5, -2])
def test_rows_are_added_in_place_with_a_factor_and_by_name(alpha: float) -> None:
    index, source = norch.tensor([1, 3, 1]), norch.arange(6.0).reshape(3, 2)
    expected = norch.zeros(5, 2).index_add(0, index, source, alpha=alpha)
    x = norch.zeros(5, 2)
    for call in (
        lambda: x.index_add_(0, index, source, alpha=alpha),
        lambda: x.index_add_(dim=0, index=index, source=source, alpha=alpha),
        lambda: x.index_add_(0, index, source=source, alpha=alpha),
    ):
        x.zero_()
        memory = x.data_ptr()
        assert call() is x
        assert (x.data_ptr(), x.tolist()) == (memory, expected.tolist())
    places = index.unsqueeze(1).expand(3, 2)
    y = norch.zeros(5, 2).scatter_add_(dim=0, index=places, src=source)
    assert y.tolist() == norch.zeros(5, 2).index_add(0, index, source).tolist()
    assert y.scatter_(0, places, value=1.0).sum().item() == 4
    with pytest.raises(TypeError):
        x.index_copy_(0, index, source, alpha=2)
    with pytest.raises(norch.DTypeError):
        norch.zeros(5, dtype=norch.int64).index_add_(0, index, norch.ones(3, dtype=norch.int64), alpha=0.5)
