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


# --- Means over regions ---------------------------------------------------------------------------------------------


def regions(count, images, extent, dtype=np.float64):
    """Some end before they begin, some lie outside; numbers of float32."""
    corners = RNG.uniform(-0.3 * extent, 1.2 * extent, (count, 2))
    ends = corners + RNG.uniform(-0.1 * extent, 0.7 * extent, (count, 2))
    numbers = RNG.integers(0, images, (count, 1))
    return np.concatenate([numbers, corners, ends], 1).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize(
    ("shape", "count", "bins"), [((2, 3, 20, 17), 30, (7, 7)), ((3, 19, 9, 12), 5, (1, 4)), ((1, 8, 1, 30), 9, (3, 2))]
)
def test_means_over_regions(cuda, shape, count, bins, ratio, aligned):
    image, boxes = RNG.standard_normal(shape), regions(count, shape[0], 40)
    options = (bins, 0.5, ratio, aligned)
    wanted = norch.roi_align(norch.tensor(image), norch.tensor(boxes), *options).numpy()
    for dtype, tolerance in ((norch.float64, 1e-10), (norch.float32, 1e-4)):
        x, rois = (norch.tensor(v, dtype=dtype, device=cuda) for v in (image, boxes))
        found = norch.roi_align(x, rois, *options)
        assert found.dtype is dtype
        # Rounding decides whether a sample is just outside, or there is one more.
        far = np.abs(found.cpu().double().numpy() - wanted) > tolerance
        assert far.mean() <= (0 if dtype is norch.float64 else 0.02)
        last = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
        again = norch.roi_align(last, rois.T.contiguous().T, *options)
        np.testing.assert_allclose(again.cpu(), found.cpu(), rtol=tolerance, atol=tolerance)


def test_regions_of_one_pixel_and_none(cuda):
    x = norch.arange(16.0, device=cuda).reshape(1, 1, 4, 4)
    rois = norch.tensor([[0.0, 1, 2, 1, 2]], device=cuda)
    assert norch.roi_align(x, rois, (1, 1), 1.0, 1).cpu().tolist() == [[[[11.5]]]]
    assert norch.roi_align(x, rois[:0], (2, 2)).shape == (0, 1, 2, 2)
    assert norch.roi_align(x, rois, (1, 1), 1.0, -1, True).cpu().tolist() == [[[[0.0]]]]  # without samples


def test_regions_of_an_image_that_is_not_there(cuda):
    x = norch.ones(2, 1, 4, 4, device=cuda)
    for number in (2.0, -1.0, float("nan")):
        with pytest.raises(IndexError):
            norch.roi_align(x, norch.tensor([[number, 1, 2, 3, 3]], device=cuda), (2, 2)).cpu()


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize(
    ("shape", "count", "bins"),
    [
        ((2, 3, 8, 9), 6, (2, 3)),
        ((3, 19, 33, 50), 700, (7, 7)),
        ((1, 8, 1, 30), 9, (3, 2)),
        ((2, 20, 30, 31), 40, (14, 14)),
        ((1, 2, 9, 20), 3, (30, 22)),
        ((2, 37, 20, 17), 0, (2, 2)),
    ],
)
def test_gradients_of_means_over_regions(cuda, shape, count, bins, ratio, aligned):
    image, boxes = RNG.standard_normal(shape), regions(count, shape[0], 2.5 * shape[3])
    grad = RNG.standard_normal((count, shape[1], *bins))
    options = (bins, 0.5, ratio, aligned)
    x = norch.tensor(image).requires_grad_()
    norch.roi_align(x, norch.tensor(boxes), *options).backward(norch.tensor(grad))
    wanted = x.grad.numpy()
    for dtype, tolerance in ((norch.float64, 1e-10), (norch.float32, 2e-4)):
        x, rois, g = (norch.tensor(v, dtype=dtype, device=cuda) for v in (image, boxes, grad))
        turned = g.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)
        for given, place in ((g, rois), (turned, rois.T.contiguous().T)):
            x.requires_grad_().grad = None
            norch.roi_align(x, place, *options).backward(given)
            far = np.abs(x.grad.cpu().double().numpy() - wanted) > tolerance * max(np.abs(wanted).max(), 1)
            assert far.mean() <= (0 if dtype is norch.float64 else 0.02)


def test_the_gradient_of_means_has_one_itself(cuda):
    x = norch.tensor(RNG.standard_normal((2, 2, 6, 7)), device=cuda).requires_grad_()
    rois = norch.tensor(regions(4, 2, 8), device=cuda)
    assert norch.autograd.gradgradcheck(lambda x: norch.roi_align(x, rois, (2, 2)) ** 2, (x,))


def test_what_is_not_a_number_stays_in_its_region(cuda):
    x = norch.ones(1, 1, 40, 40, device=cuda).requires_grad_()
    rois = norch.tensor([[0.0, 1, 1, 9, 9], [0, 20, 20, 30, 30]], device=cuda)
    g = norch.ones(2, 1, 3, 3, device=cuda)
    g[0] = float("nan")
    norch.roi_align(x, rois, (3, 3), 1.0, 2).backward(g)
    found = x.grad.cpu().isnan()[0, 0]
    assert found[1:9, 1:9].all()
    assert not found[12:].any()
    assert not found[:, 12:].any()
