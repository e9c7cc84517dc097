"""PyTorch's ops by their own names: `norch.ops.aten`."""

from __future__ import annotations

import pytest

import norch


def test_ops_by_their_names() -> None:
    aten = norch.ops.aten
    assert aten.add.Tensor(norch.ones(2), 1).tolist() == [2, 2]
    assert aten.clone.default is aten.clone is aten.clone.out
    assert {aten.mul.Tensor: 1}[aten.mul.Scalar] == 1
    assert repr(aten.add) == "<aten.add>"
    with pytest.raises(AttributeError, match="nothing_of_it"):
        aten.nothing_of_it(1)
