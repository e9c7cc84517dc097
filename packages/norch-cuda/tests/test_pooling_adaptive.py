"""Where the largest of parts of images are."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(0)


def places(values, sizes):
    """By NumPy, a part at a time."""
    (h, w), (rows, columns) = values.shape[-2:], sizes
    found = np.empty((*values.shape[:-2], *sizes), np.int64)
    for i in range(rows):
        for j in range(columns):
            top, bottom = i * h // rows, -(-(i + 1) * h // rows)
            left, right = j * w // columns, -(-(j + 1) * w // columns)
            part = values[..., top:bottom, left:right]
            at = part.reshape(*values.shape[:-2], -1).argmax(-1)
            found[..., i, j] = (top + at // (right - left)) * w + left + at % (right - left)
    return found


@pytest.mark.parametrize("dtype", [norch.float32, norch.float64, norch.float16, norch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((2, 3, 20, 30), (7, 7)),
        ((5, 17, 9), (4, 9)),
        ((2, 3, 4, 128, 127), (3, 5)),
        ((7, 5), (7, 5)),
        ((3, 1, 1000), (1, 7)),
        ((2, 3, 3), (8, 5)),
        ((70, 40, 3, 5), (2, 2)),
    ],
)
def test_places_of_the_largest(cuda, shape, sizes, dtype):
    values = np.round(RNG.standard_normal(shape) * 4) / 4  # many are equal
    values.reshape(-1)[RNG.integers(0, values.size, 5)] = np.nan, np.inf, -np.inf, -0.0, 0.0
    wanted = places(values, sizes)
    x = norch.tensor(values, dtype=dtype, device=cuda)
    found = norch.adaptive_max_indices(x, sizes)
    assert found.dtype is norch.int64
    np.testing.assert_array_equal(found.cpu().numpy(), wanted)
    turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    np.testing.assert_array_equal(norch.adaptive_max_indices(turned, sizes).cpu().numpy(), wanted)
    if x.ndim == 4:
        last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        np.testing.assert_array_equal(norch.adaptive_max_indices(last, sizes).cpu().numpy(), wanted)


def test_parts_without_a_largest_number(cuda):
    x = norch.full((1, 5, 5), -float("inf"), device=cuda)
    assert norch.adaptive_max_indices(x, (2, 2)).tolist() == [[[0, 2], [10, 12]]]
    x = norch.full((1, 5, 5), float("nan"), device=cuda)
    assert norch.adaptive_max_indices(x, (2, 2)).tolist() == [[[0, 2], [10, 12]]]
    assert norch.adaptive_max_indices(x[:0], (2, 2)).shape == (0, 2, 2)
    assert norch.adaptive_max_indices(x, (0, 2)).shape == (1, 0, 2)
