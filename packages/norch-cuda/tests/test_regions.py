"""Ops of boxes in images, beside their decompositions on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import norch

RNG = np.random.default_rng(0)


def boxes(count, size, dtype=np.float32):
    corners = RNG.uniform(0, 100, (count, 2))
    return np.concatenate([corners, corners + RNG.uniform(0, size, (count, 2))], 1).astype(dtype)


def kept(boxes, threshold):
    """Greedy, a box at a time."""
    left, top, right, bottom = boxes.T
    area = (right - left) * (bottom - top)
    found = np.ones(len(boxes), bool)
    for i in range(len(boxes)):
        if not found[i]:
            continue
        with np.errstate(all="ignore"):
            width = (np.minimum(right[i], right) - np.maximum(left[i], left)).clip(0)
            inter = (np.minimum(bottom[i], bottom) - np.maximum(top[i], top)).clip(0) * width
            too_much = (inter / (area[i] + area - inter)).astype(np.float64) > threshold
        found[i + 1 :] &= ~too_much[i + 1 :]
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200, 2200])
def test_boxes_that_are_kept(cuda, count, threshold, dtype):
    for size in (5, 60):
        given = boxes(count, size, dtype)
        found = norch.kept_boxes(norch.tensor(given, device=cuda), threshold)
        assert found.dtype is norch.bool
        np.testing.assert_array_equal(found.cpu().numpy(), kept(given, threshold))


def test_boxes_in_another_layout_and_none(cuda):
    given = boxes(300, 50)
    found = norch.kept_boxes(norch.tensor(given.T.copy(), device=cuda).T, 0.3)
    np.testing.assert_array_equal(found.cpu().numpy(), kept(given, 0.3))
    assert norch.kept_boxes(norch.zeros(0, 4, device=cuda), 0.3).shape == (0,)


def test_boxes_without_an_area_and_numbers_that_are_not_finite(cuda):
    given = boxes(130, 50)
    given[3] = given[4] = given[5, [0, 1, 0, 1]]
    given[7, 2], given[8, 0], given[9, 3], given[10] = np.nan, -np.inf, np.inf, 0
    given[11], given[70:74] = [30, 30, 20, 20], given[20]
    for threshold in (0.0, 0.4):
        found = norch.kept_boxes(norch.tensor(given, device=cuda), threshold)
        np.testing.assert_array_equal(found.cpu().numpy(), kept(given, threshold))


def test_an_overlap_of_just_the_threshold_is_not_too_much(cuda):
    pair = norch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5]], device=cuda)  # 0.5
    assert norch.kept_boxes(pair, 0.5).tolist() == [True, True]
    assert norch.kept_boxes(pair, float(np.nextafter(0.5, 0))).tolist() == [True, False]
    third = norch.tensor([[0.0, 0, 3, 1], [0, 0, 1, 1]], device=cuda)  # float32's 1 / 3, above that of float64
    assert norch.kept_boxes(third, 1 / 3).tolist() == [True, False]
    assert norch.kept_boxes(third.double(), 1 / 3).tolist() == [True, True]
