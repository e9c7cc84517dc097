"""Sizes, dtypes and layouts of what is written into tensors, beside NumPy and PyTorch's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import norch
from norch import ShapeError


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
@pytest.mark.parametrize("suffix", ["", "_"])
def test_a_source_has_a_slice_for_each_index(name: str, suffix: str) -> None:
    index = norch.tensor([0, 1])
    method = name + suffix
    assert getattr(norch.zeros(3, 2), method)(0, index, norch.ones(2, 2)).sum() == 4
    for wrong in ((3, 2), (2, 1), (1, 2), (2,), (0, 2)):
        with pytest.raises(ShapeError, match=rf"{name}\(\): source must have shape \(2, 2\)"):
            getattr(norch.zeros(3, 2), method)(0, index, norch.ones(*wrong))
    with pytest.raises(ShapeError, match="each of 0 indices"):
        getattr(norch.zeros(3, 2), method)(0, index[:0], norch.ones(1, 2))


def test_index_copy_takes_one_element() -> None:
    for source in (norch.tensor(5.0), norch.tensor([5.0])):
        assert norch.ones(2).index_copy_(0, norch.tensor([1]), source).tolist() == [1, 5]
        assert norch.ones(2).index_copy(0, norch.tensor(0), source).tolist() == [5, 1]


def test_take_along_dim_asks_for_as_many_dims() -> None:
    with pytest.raises(ShapeError, match=r"as many dims as input, got shapes \(2, 3\) and \(3,\)"):
        norch.take_along_dim(norch.ones(2, 3), norch.tensor([0, 1, 0]), 0)


def test_created_values_are_of_the_dtype_of_out() -> None:
    out = norch.empty(4, dtype=norch.float64)
    assert norch.linspace(0, 1, 4, out=out).tolist() == pytest.approx(np.linspace(0, 1, 4).tolist(), rel=1e-15)
    assert norch.logspace(0, 1, 4, out=out).tolist() == pytest.approx(np.logspace(0, 1, 4).tolist(), rel=1e-15)
    assert norch.full((4,), 0.1, out=out).tolist() == [0.1] * 4
    short = norch.empty(9000, dtype=norch.int16)
    assert norch.equal(norch.linspace(0, 9000, 9000, out=short), norch.linspace(0, 9000, 9000, dtype=norch.int16))


def test_counts_of_nonzero_elements_have_a_gradient_of_zero() -> None:
    x = norch.tensor([0.0, 2.0, float("nan")], requires_grad=True)
    for count in (norch.norm(x, 0), norch.linalg.vector_norm(x, 0)):
        assert count.item() == 2
        count.backward()
        assert x.grad.tolist() == [0, 0, 0]
    rows = norch.ones(1, 2, 3, requires_grad=True)
    norch.cdist(rows, norch.zeros(1, 2, 3), p=0).sum().backward()
    assert not rows.grad.any()


def _rows() -> Any:
    return norch.arange(6.0).view(2, 3).t()


def test_resizing_to_the_same_shape_changes_nothing() -> None:
    for resized in (_rows().resize_(3, 2), _rows().resize_as_(norch.empty(3, 2))):
        assert resized.tolist() == [[0, 3], [1, 4], [2, 5]]
        assert resized.stride() == (1, 3)
    assert _rows().resize_(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert _rows().resize_(3, 2, memory_format=norch.contiguous_format).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_resizing_to_a_memory_format() -> None:
    image = np.arange(16.0).reshape(1, 2, 2, 4).transpose(0, 3, 1, 2)
    like = norch.empty(1, 4, 2, 2).to(memory_format=norch.channels_last)
    for resized in (
        norch.arange(16.0).resize_(1, 4, 2, 2, memory_format=norch.channels_last),
        norch.arange(16.0).resize_as_(like, memory_format=norch.preserve_format),
    ):
        np.testing.assert_array_equal(resized.numpy(), image)
        assert resized.is_contiguous(memory_format=norch.channels_last)
    assert norch.arange(16.0).resize_as_(like).stride() == (16, 4, 2, 1)
    grown = norch.arange(4.0).resize_(2, 3, 1, 1, 2, memory_format=norch.channels_last_3d)
    assert grown.stride() == (6, 1, 6, 6, 3)
    assert grown.permute(0, 2, 3, 4, 1).reshape(-1)[:4].tolist() == [0, 1, 2, 3]
    with pytest.raises(ShapeError, match=r"is for 4 dims, got shape \(4, 4\)"):
        norch.arange(16.0).resize_(4, 4, memory_format=norch.channels_last)
    with pytest.raises(ValueError, match="preserve_format"):
        norch.arange(16.0).resize_(4, 4, memory_format=norch.preserve_format)
