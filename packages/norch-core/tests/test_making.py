"""Random tensors for tests."""

from __future__ import annotations

import pytest

import norch
from norch.testing import make_tensor


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        (norch.float32, -9, 9), (norch.bfloat16, -9, 9), (norch.int64, -9, 10), (norch.uint8, 0, 10),
        (norch.bool, 0, 2),
    ],
    ids=str,
)  # fmt: skip
def test_bounds(dtype, low, high):
    x = make_tensor((50, 8), dtype=dtype, device="cpu")
    assert x.shape == (50, 8)
    assert x.dtype is dtype
    assert low <= x.double().min().item() < x.double().max().item() <= high
    given = make_tensor(300, dtype=dtype, device="cpu", low=0, high=2, exclude_zero=True)
    assert given.all()
    assert given.double().max().item() <= 2


def test_layouts_and_gradients():
    x = make_tensor(3, 4, dtype=norch.float64, device="cpu", noncontiguous=True, requires_grad=True)
    assert x.shape == (3, 4)
    assert not x.is_contiguous()
    assert x.is_leaf
    assert x.requires_grad
    images = make_tensor(1, 3, 4, 4, dtype=norch.float32, device="cpu", memory_format=norch.channels_last)
    assert images.is_contiguous(memory_format=norch.channels_last)
    assert make_tensor((), dtype=norch.float32, device="cpu", noncontiguous=True).ndim == 0


def test_what_cannot_be():
    with pytest.raises(ValueError, match="not below"):
        make_tensor(2, dtype=norch.float32, device="cpu", low=1, high=1)
    with pytest.raises(ValueError, match="exclude each other"):
        make_tensor(
            2, 2, 2, 2, dtype=norch.float32, device="cpu", noncontiguous=True, memory_format=norch.channels_last
        )


def test_tensors_of_one_element_in_lists_are_numbers():
    one, number = norch.ones(1), norch.tensor(2.0)
    assert norch.tensor([one, number]).tolist() == [1, 2]
    assert norch.tensor([number, one.view(1, 1)]).tolist() == [2, 1]
    assert norch.tensor([[one], [3]]).tolist() == [[1], [3]]
    assert norch.tensor([0.5, one]).tolist() == [0.5, 1]
    assert norch.tensor([one, one], dtype=norch.int64).shape == (2,)
    assert norch.tensor([norch.ones(2), norch.ones(2)]).shape == (2, 2)
