"""Images that tests of transforms share, as arrays and as tensors."""

from __future__ import annotations

import numpy as np

import norch

GREY = np.arange(30, dtype=np.uint8).reshape(5, 6)
COLOUR = np.random.default_rng(0).integers(0, 256, (5, 6, 3), dtype=np.uint8)


def planes(array):
    """The tensor image of an array, its numbers as they are."""
    return norch.from_numpy(np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1)))


def both(function, array):
    """function(array), once it is seen that the tensor image gives the same."""
    out = function(array)
    assert isinstance(out, np.ndarray)
    assert out.dtype == array.dtype
    tensor = function(planes(array))
    assert isinstance(tensor, norch.Tensor)
    assert np.array_equal(tensor.numpy(), planes(out).numpy())
    return out
