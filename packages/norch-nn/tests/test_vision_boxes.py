"""norch.vision.ops on boxes: answers that are known, loops of NumPy, and gradients by differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

import norch
from norch.autograd import gradcheck
from norch.vision import ops


def random_boxes(n: int, seed: int, size: float = 10.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, size, (n, 2))
    return np.concatenate([corner, corner + rng.uniform(0.5, size / 2, (n, 2))], 1)


def iou(a: np.ndarray, b: np.ndarray) -> float:
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inter = max(w, 0) * max(h, 0)
    return inter / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter)


def test_areas_and_overlaps_that_are_known() -> None:
    boxes = norch.tensor([[0, 0, 2, 2], [1, 1, 3, 4]])
    assert ops.box_area(boxes).tolist() == [4, 6]
    assert ops.box_area(norch.tensor([[1.0, 1.0, 3.0, 4.0]]), fmt="cxcywh").tolist() == [12]
    overlap = ops.box_iou(boxes, boxes).cpu().numpy()
    np.testing.assert_allclose(overlap, [[1, 1 / 9], [1 / 9, 1]], rtol=1e-6)
    generalised = ops.generalized_box_iou(boxes, boxes)[0, 1].item()
    assert generalised == pytest.approx(1 / 9 - 3 / 12)
    a, b = boxes[:1].float(), boxes[1:].float()
    assert ops.distance_box_iou(a, b).item() == pytest.approx(1 / 9 - (1 + 1.5**2) / (9 + 16))
    v = 4 / math.pi**2 * (math.atan(1) - math.atan(2 / 3)) ** 2
    expected = 1 / 9 - 3.25 / 25 - v * v / (1 - 1 / 9 + v)
    assert ops.complete_box_iou(a, b).item() == pytest.approx(expected)
    assert ops.box_iou(boxes[:0], boxes).shape == (0, 2)


def test_small_integers_and_halves_do_not_overflow() -> None:
    assert ops.box_area(norch.tensor([[0, 0, 100, 100]], dtype=norch.int8)).tolist() == [10000]
    assert ops.box_area(norch.tensor([[0.0, 0, 400, 400]], dtype=norch.float16)).tolist() == [160000]


@pytest.mark.parametrize("fmt", ["xyxy", "xywh", "cxcywh"])
def test_overlaps_of_batches_are_those_of_a_loop(fmt: str) -> None:
    first, second = np.stack([random_boxes(4, 0), random_boxes(4, 1)]), np.stack([random_boxes(3, 2)] * 2)
    a, b = (ops.box_convert(norch.tensor(x), "xyxy", fmt) for x in (first, second))
    expected = [[[iou(p, q) for q in second[i]] for p in first[i]] for i in range(2)]
    np.testing.assert_allclose(ops.box_iou(a, b, fmt=fmt).cpu().numpy(), expected, rtol=1e-12)


def test_forms_go_there_and_back() -> None:
    boxes = norch.tensor(random_boxes(5, 0))
    for fmt in ("xywh", "cxcywh"):
        there = ops.box_convert(boxes, "xyxy", fmt)
        norch.testing.assert_close(ops.box_convert(there, fmt, "xyxy"), boxes)
    xywh = ops.box_convert(boxes, "xyxy", "xywh")
    norch.testing.assert_close(ops.box_convert(xywh, "xywh", "cxcywh"), ops.box_convert(boxes, "xyxy", "cxcywh"))
    same = ops.box_convert(boxes, "xyxy", "xyxy")
    assert norch.equal(same, boxes)
    assert same.data_ptr() != boxes.data_ptr()
    turned = norch.cat([xywh, norch.tensor([[0.0], [30.0], [90.0], [-45.0], [170.0]]).double()], 1)
    for fmt in ("cxcywhr", "xyxyxyxy"):
        norch.testing.assert_close(
            ops.box_convert(ops.box_convert(turned, "xywhr", fmt), fmt, "xywhr"), turned, rtol=1e-9, atol=1e-9
        )
    whole = ops.box_convert(norch.tensor([[4, 5, 2, 6, 90]]), "cxcywhr", "xywhr")
    assert (whole.dtype, whole.tolist()) == (norch.int64, [[1, 6, 2, 6, 90]])


def test_forms_that_are_not_there() -> None:
    with pytest.raises(ValueError, match="'yxyx'"):
        ops.box_convert(norch.ones(1, 4), "xyxy", "yxyx")
    with pytest.raises(NotImplementedError, match="cannot become"):
        ops.box_convert(norch.ones(1, 4), "xyxy", "xywhr")
    with pytest.raises(ValueError, match="fmt must be"):
        ops.box_area(norch.ones(1, 5), fmt="xywhr")
    with pytest.raises(ValueError, match="fmt must be"):
        ops.box_iou(norch.ones(1, 4), norch.ones(1, 4), fmt="xx")


def test_overlaps_of_rotated_boxes_that_are_known() -> None:
    square = norch.tensor([[0.0, 0.0, 2.0, 2.0, 0.0]])
    others = norch.tensor(
        [[0, 0, 2, 2, 45.0], [0, 0, 2, 2, 90], [1, 0, 2, 2, 0], [2, 0, 2, 2, 0], [9, 9, 2, 2, 30], [0, 0, 1, 1, 77]]
    )
    octagon = 8 * (math.sqrt(2) - 1)  # a square and itself, turned by 45 degrees
    expected = [[octagon / (8 - octagon), 1, 1 / 3, 0, 0, 1 / 4]]
    np.testing.assert_allclose(ops.box_iou(square, others, fmt="cxcywhr").cpu().numpy(), expected, rtol=1e-6)


def test_boxes_at_the_edge_and_small_ones() -> None:
    boxes = norch.tensor([[-1.0, -2.0, 3.0, 4.0], [1.0, 1.0, 20.0, 30.0], [1.0, 1.0, 1.5, 9.0]])
    clipped = ops.clip_boxes_to_image(boxes, (8, 10))
    assert clipped.tolist() == [[0, 0, 3, 4], [1, 1, 10, 8], [1, 1, 1.5, 8]]
    assert ops.remove_small_boxes(clipped, 1).tolist() == [0, 1]
    assert ops.clip_boxes_to_image(boxes.view(3, 1, 4), (8, 10)).shape == (3, 1, 4)


def test_boxes_of_masks() -> None:
    masks = norch.zeros(3, 5, 7)
    masks[0, 1:4, 2:6] = 1
    masks[1, 4, 6] = 0.5
    boxes = ops.masks_to_boxes(masks)
    assert (boxes.dtype, boxes.tolist()) == (norch.float32, [[2, 1, 5, 3], [6, 4, 6, 4], [0, 0, 0, 0]])
    assert ops.masks_to_boxes(norch.zeros(0, 5, 7)).shape == (0, 4)


def greedy(boxes: np.ndarray, scores: np.ndarray, threshold: float) -> list[int]:
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if all(iou(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 1.0])
def test_suppression_is_greedy(threshold: float) -> None:
    boxes, scores = random_boxes(80, 3), np.random.default_rng(4).integers(0, 20, 80) / 20  # with ties
    kept = ops.nms(norch.tensor(boxes), norch.tensor(scores), threshold)
    assert (kept.dtype, kept.tolist()) == (norch.int64, greedy(boxes, scores, threshold))


@pytest.mark.parametrize("n", [40, 1100])  # below and above what is moved apart instead of taken by category
def test_suppression_by_category(n: int) -> None:
    boxes, rng = random_boxes(n, 5, 40.0), np.random.default_rng(6)
    scores, categories = rng.permutation(n) / n, rng.integers(0, 3, n)
    kept = ops.batched_nms(norch.tensor(boxes), norch.tensor(scores), norch.tensor(categories), 0.3)
    expected = []
    for c in range(3):
        members = np.nonzero(categories == c)[0]
        expected += [int(members[i]) for i in greedy(boxes[members], scores[members], 0.3)]
    assert kept.tolist() == sorted(expected, key=lambda i: -scores[i])


def test_the_threshold_is_compared_in_double_precision() -> None:
    """0.1 in float32 is above 0.1: torchvision suppresses."""
    boxes = norch.tensor([[0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 1.0]])
    assert ops.nms(boxes, norch.tensor([1.0, 0.5]), 0.1).tolist() == [0]
    assert ops.nms(boxes.double(), norch.tensor([1.0, 0.5]).double(), 0.1).tolist() == [0, 1]


def test_suppression_under_autocast_takes_scores_of_another_dtype() -> None:
    boxes, scores = norch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.1]]), norch.tensor([0.5, 1.0])
    with norch.autocast(boxes.device.type, dtype=norch.bfloat16):
        assert ops.nms(boxes, scores.bfloat16(), 0.5).tolist() == [1]


def test_suppression_of_nothing_and_of_what_it_does_not_take() -> None:
    assert ops.nms(norch.zeros(0, 4), norch.zeros(0), 0.5).shape == (0,)
    assert ops.batched_nms(norch.zeros(0, 4), norch.zeros(0), norch.zeros(0), 0.5).dtype == norch.int64
    for boxes, scores in (((3, 5), (3,)), ((3, 4), (2,)), ((1, 3, 4), (1,)), ((3, 4), (3, 1))):
        with pytest.raises(norch.ShapeError, match="expected boxes"):
            ops.nms(norch.zeros(boxes), norch.zeros(scores), 0.5)
    with pytest.raises(norch.DTypeError, match="one floating dtype"):
        ops.nms(norch.zeros(3, 4), norch.zeros(3).double(), 0.5)


@pytest.mark.parametrize("name", ["box_iou", "generalized_box_iou", "distance_box_iou"])
def test_gradients_of_overlaps(name: str) -> None:
    a, b = (norch.tensor(random_boxes(3, seed)).requires_grad_() for seed in (0, 1))
    assert gradcheck(getattr(ops, name), (a, b))


LOSSES = ["generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss"]


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_one_less_the_overlap(name: str) -> None:
    a, b = (norch.tensor(random_boxes(30, seed)) for seed in (7, 8))
    loss = getattr(ops, name)(a, b)
    expected = 1 - getattr(ops, name.removesuffix("_loss"))(a, b).diagonal()
    np.testing.assert_allclose(loss.cpu().numpy(), expected.cpu().numpy(), rtol=1e-5)
    for reduction in ("sum", "mean"):
        norch.testing.assert_close(getattr(ops, name)(a, b, reduction=reduction), getattr(loss, reduction)())
    assert getattr(ops, name)(a[:0], b[:0], reduction="mean").item() == 0
    assert getattr(ops, name)(a[0], b[0]).shape == ()
    with pytest.raises(ValueError, match="reduction must be"):
        getattr(ops, name)(a, b, reduction="most")


@pytest.mark.parametrize("name", LOSSES[:2])  # the last leaves a factor out of its gradient
def test_gradients_of_losses(name: str) -> None:
    a, b = (norch.tensor(random_boxes(6, seed)).requires_grad_() for seed in (0, 1))
    assert gradcheck(getattr(ops, name), (a, b))


def test_boxes_that_are_learned_reach_their_targets() -> None:
    targets = norch.tensor(random_boxes(5, 2))
    for name in LOSSES:
        boxes = (targets + 1.0).requires_grad_()
        optimizer = norch.optim.Adam([boxes], lr=0.05)
        for _ in range(200):
            optimizer.zero_grad()
            getattr(ops, name)(boxes, targets, reduction="sum").backward()
            optimizer.step()
        assert ops.box_iou(boxes, targets).diagonal().min().item() > 0.95, name


@pytest.mark.parametrize(("alpha", "gamma"), [(0.25, 2), (-1, 2), (0.0, 0.5), (1.0, 3)])
def test_focal_loss(alpha: float, gamma: float) -> None:
    rng = np.random.default_rng(0)
    x, t = rng.standard_normal((4, 5)), rng.integers(0, 2, (4, 5)).astype(float)
    p = 1 / (1 + np.exp(-x))
    right = np.where(t == 1, p, 1 - p)
    expected = -np.log(right) * (1 - right) ** gamma
    if alpha >= 0:
        expected *= np.where(t == 1, alpha, 1 - alpha)
    logits = norch.tensor(x).requires_grad_()
    loss = ops.sigmoid_focal_loss(logits, norch.tensor(t), alpha, gamma)
    np.testing.assert_allclose(loss.detach().cpu().numpy(), expected, rtol=1e-12)
    assert gradcheck(lambda z: ops.sigmoid_focal_loss(z, norch.tensor(t), alpha, gamma, "mean"), (logits,))


def test_focal_loss_refuses_other_weights() -> None:
    with pytest.raises(ValueError, match="alpha"):
        ops.sigmoid_focal_loss(norch.zeros(1), norch.zeros(1), alpha=1.5)
    with pytest.raises(ValueError, match="reduction"):
        ops.sigmoid_focal_loss(norch.zeros(1), norch.zeros(1), reduction="x")


def test_parameters_of_norms_are_told_apart() -> None:
    nn = norch.nn
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 1)))
    model[2][1].bias.requires_grad_(False)
    norms, others = ops._utils.split_normalization_params(model)
    assert [tuple(p.shape) for p in norms] == [(2,), (2,), (3,), (3,)]
    assert [tuple(p.shape) for p in others] == [(2, 1, 1, 1), (2,), (1, 3)]
    with pytest.raises(ValueError, match="no class of modules"):
        ops._utils.split_normalization_params(model, [int])
