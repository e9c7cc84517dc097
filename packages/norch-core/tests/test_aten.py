"""PyTorch's ops by their own names: `norch.ops.aten`."""

from __future__ import annotations

import pytest

import norch


def test_ops_by_their_names() -> None:
    aten = norch.ops.aten
    assert aten.add.Tensor(norch.ones(2), 1).tolist() == [2, 2]
    assert aten.clone.default is norch.ops.aten.clone.default is not aten.clone.out
    assert {aten.mul.Tensor: 1}[aten.mul.Tensor] == 1
    assert aten.mul.Scalar not in {aten.mul.Tensor: 1}
    assert str(aten.add.Tensor) == "aten.add.Tensor"
    assert (aten.add.Tensor.name(), aten.relu.default.name()) == ("aten::add.Tensor", "aten::relu")
    assert aten.add.Tensor.overloadpacket is aten.add
    with pytest.raises(AttributeError, match="nothing_of_it"):
        aten.nothing_of_it(1)


def test_ops_that_norch_has_under_other_names() -> None:
    aten, x = norch.ops.aten, norch.arange(6.0).reshape(2, 3)
    assert aten._to_copy.default(x, dtype=norch.int64).dtype is norch.int64
    assert aten.slice.Tensor(x, 1, 1, 3).tolist() == [[1, 2], [4, 5]]
    assert aten.select.int(x, 1, 2).tolist() == [2, 5]
    assert aten.index.Tensor(x, [None, norch.tensor([0])]).tolist() == [[0], [3]]
    assert aten.rsub.Scalar(x, 1).tolist() == [[1, 0, -1], [-2, -3, -4]]
    assert aten.alias.default(x).data_ptr() == x.data_ptr()
    assert aten._local_scalar_dense.default(x[1, 1]) == 4
    assert aten.add_.Tensor(x, 1) is x


def test_indices_of_some_dims() -> None:
    aten, x = norch.ops.aten, norch.zeros(2, 3)
    put = aten.index_put.default(x, [None, norch.tensor([1])], norch.ones(2, 1))
    assert put.tolist() == [[0, 1, 0], [0, 1, 0]]
    assert not x.any()


def test_a_pad_of_numbers() -> None:
    assert norch.constant_pad_nd(norch.ones(2), (1, 2), 5.0).tolist() == [5, 1, 1, 5, 5]
