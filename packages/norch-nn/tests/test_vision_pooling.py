"""norch.vision.ops' poolings of regions, beside loops over pixels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_vision_boxes import random_boxes

import norch
from norch.autograd import gradcheck
from norch.vision import ops


def between(image: np.ndarray, y: float, x: float) -> float:
    """The value between pixels; 0 more than a pixel outside."""
    height, width = image.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    v, u = y - top, x - left
    upper = image[top, left] * (1 - u) + image[top, right] * u
    return upper * (1 - v) + (image[bottom, left] * (1 - u) + image[bottom, right] * u) * v


def aligned_loop(x, boxes, size, scale, ratio, offset, least, position=False):
    p, q = size
    channels = x.shape[1] // (p * q) if position else x.shape[1]
    out = np.zeros((len(boxes), channels, p, q))
    for k, (number, *box) in enumerate(boxes):
        left, top, right, bottom = (b * scale - offset for b in box)
        height, width = max(bottom - top, least), max(right - left, least)
        rows, columns = (ratio, ratio) if ratio > 0 else (math.ceil(height / p), math.ceil(width / q))
        for c, i, j in np.ndindex(channels, p, q):
            image = x[int(number), (c * p + i) * q + j if position else c]
            ys = [top + (i + (s + 0.5) / rows) * height / p for s in range(rows)]
            xs = [left + (j + (s + 0.5) / columns) * width / q for s in range(columns)]
            out[k, c, i, j] = np.mean([[between(image, v, u) for u in xs] for v in ys])
    return out


def pooled_loop(x, boxes, size, scale, position=False):
    p, q = size
    channels = x.shape[1] // (p * q) if position else x.shape[1]
    out, extra = np.zeros((len(boxes), channels, p, q)), 0 if position else 1
    for k, (number, *box) in enumerate(boxes):
        left, top, right, bottom = (math.copysign(math.floor(abs(b * scale) + 0.5), b) for b in box)
        height, width = max(bottom - top + extra, 1), max(right - left + extra, 1)
        for c, i, j in np.ndindex(channels, p, q):
            image = x[int(number), (c * p + i) * q + j if position else c]
            image = image[:-1, :-1] if position else image
            ys = slice(*(int(max(top + f, 0)) for f in (math.floor(i * height / p), math.ceil((i + 1) * height / p))))
            xs = slice(*(int(max(left + f, 0)) for f in (math.floor(j * width / q), math.ceil((j + 1) * width / q))))
            part = image[ys, xs]
            out[k, c, i, j] = 0 if not part.size else part.mean() if position else part.max()
    return out


def regions(images: int, scale: float = 1.0) -> np.ndarray:
    boxes = (random_boxes(7, 1) - 2) / scale
    boxes[0] = [-30, -30, 40, 50]
    boxes[1] = [60, 60, 70, 80]
    boxes[2] = [2.5, 2, 6.5, 7]
    return np.concatenate([np.array([[0, 2, 1, 0, 2, 1, 1]]).T % images, boxes], 1)


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [-1, 2])
def test_aligned_means(images: int, aligned: bool, ratio: int) -> None:
    x = np.random.default_rng(0).standard_normal((images, 2, 6, 8))
    for size, scale in (((2, 3), 1.0), ((1, 1), 0.25)):
        boxes = regions(images, scale)
        expected = aligned_loop(x, boxes, size, scale, ratio, 0.5 * aligned, -99 if aligned else 1)
        out = ops.roi_align(norch.tensor(x), norch.tensor(boxes), size, scale, ratio, aligned)
        np.testing.assert_allclose(out.cpu().numpy(), expected, rtol=1e-10, atol=1e-12)
        module = ops.RoIAlign(size, scale, ratio, aligned)
        assert norch.equal(module(norch.tensor(x), norch.tensor(boxes)), out)
    assert (
        repr(module) == f"RoIAlign(output_size=(1, 1), spatial_scale=0.25, sampling_ratio={ratio}, aligned={aligned})"
    )


@pytest.mark.parametrize("ratio", [-1, 2])
def test_position_sensitive_means(ratio: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 12, 6, 8))
    boxes = regions(3)
    out = ops.ps_roi_align(norch.tensor(x), norch.tensor(boxes), (2, 3), 1.0, ratio)
    expected = aligned_loop(x, boxes, (2, 3), 1.0, ratio, 0.5, -99, position=True)
    np.testing.assert_allclose(out.cpu().numpy(), expected, rtol=1e-10, atol=1e-12)
    assert norch.equal(ops.PSRoIAlign((2, 3), 1.0, ratio)(norch.tensor(x), norch.tensor(boxes)), out)
    whole = ops.ps_roi_pool(norch.tensor(x), norch.tensor(boxes), (2, 3), 1.0)
    np.testing.assert_allclose(whole.cpu().numpy(), pooled_loop(x, boxes, (2, 3), 1.0, position=True), atol=1e-12)
    assert norch.equal(ops.PSRoIPool((2, 3), 1.0)(norch.tensor(x), norch.tensor(boxes)), whole)
    with pytest.raises(norch.ShapeError, match="a multiple of 5"):
        ops.ps_roi_align(norch.tensor(x), norch.tensor(boxes), 5)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_maxima(scale: float) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 6, 8)) - 3
    boxes = regions(3, scale)
    out = ops.roi_pool(norch.tensor(x), norch.tensor(boxes), (2, 3), scale)
    np.testing.assert_array_equal(out.cpu().numpy(), pooled_loop(x, boxes, (2, 3), scale))
    assert norch.equal(ops.RoIPool((2, 3), scale)(norch.tensor(x), norch.tensor(boxes)), out)


POOLINGS = {
    "roi_align": {"output_size": 2, "sampling_ratio": 2},
    "roi_pool": {"output_size": (2, 1)},
    "ps_roi_align": {"output_size": (2, 1)},
    "ps_roi_pool": {"output_size": (2, 1)},
}


@pytest.mark.parametrize("name", POOLINGS)
def test_gradients_and_the_other_form_of_boxes(name: str) -> None:
    x = norch.tensor(np.random.default_rng(0).standard_normal((3, 4, 5, 4))).requires_grad_()
    boxes = norch.tensor(np.concatenate([np.array([[0, 0, 2, 2, 2]]).T, random_boxes(5, 3, 4.0)], 1))
    pool = getattr(ops, name)
    assert gradcheck(lambda x: pool(x, boxes, **POOLINGS[name]), (x,), fast_mode=True)
    listed = [boxes[:2, 1:], boxes[:0, 1:], boxes[2:, 1:]]
    assert norch.equal(pool(x, listed, **POOLINGS[name]), pool(x, boxes, **POOLINGS[name]))
    assert pool(x, boxes[:0], **POOLINGS[name]).shape[0] == 0
    half = pool(x.half(), boxes.half(), **POOLINGS[name])
    assert half.dtype == norch.float16
    norch.testing.assert_close(
        half.double(), pool(x.half().double(), boxes.half().double(), **POOLINGS[name]), rtol=2e-3, atol=2e-3
    )


def test_the_first_of_equal_values_gets_the_gradient() -> None:
    x = norch.zeros(1, 1, 3, 3, requires_grad=True)
    ops.roi_pool(x, [norch.tensor([[0.0, 0.0, 2.0, 2.0]])], 1).sum().backward()
    assert x.grad.flatten().tolist() == [1] + [0] * 8


def test_autocast_takes_boxes_of_another_dtype() -> None:
    x, boxes = norch.rand(1, 2, 8, 8), [norch.tensor([[1.0, 1.0, 5.0, 5.0]])]
    with norch.autocast(x.device.type, dtype=norch.bfloat16):
        out = ops.roi_align(x.bfloat16(), boxes, 2, sampling_ratio=2)
    assert out.dtype == norch.bfloat16
    expected = ops.roi_align(x.bfloat16().float(), boxes, 2, sampling_ratio=2)
    assert norch.equal(out, expected.bfloat16())


def test_what_they_do_not_take() -> None:
    x = norch.zeros(2, 1, 4, 4)
    for boxes in (norch.zeros(3, 4), norch.zeros(5), [norch.zeros(3, 5)], [norch.zeros(4)]):
        with pytest.raises(norch.ShapeError, match="boxes of"):
            ops.roi_align(x, boxes, 2)
    with pytest.raises(norch.DTypeError, match="boxes must be"):
        ops.roi_align(x, "boxes", 2)
    with pytest.raises(norch.DTypeError, match="one dtype"):
        ops.roi_align(x, norch.zeros(3, 5).double(), 2)
    with pytest.raises(norch.ShapeError, match="expected an input"):
        ops.roi_align(x[0], norch.zeros(3, 5), 2)
    told = "image 0 to 7, the input has 2" if x.device.type == "cpu" else "index 7 is out of bounds"  # later
    with pytest.raises(IndexError, match=told):
        ops.roi_align(x, norch.tensor([[0.0, 0, 0, 1, 1], [7.0, 0, 0, 1, 1]]), 2).cpu()
