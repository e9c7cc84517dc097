"""Boxes (..., 4) of corners x1, y1, x2, y2: areas, overlaps, the boxes of masks, and which of them overlap too much."""

from __future__ import annotations

import math

import norch

from ._utils import _upcast
from .box_formats import ROTATED
from .box_formats import box_convert as box_convert
from .rotated import rotated_iou

_ALIGNED = ("xyxy", "xywh", "cxcywh")


def box_area(boxes: norch.Tensor, fmt: str = "xyxy") -> norch.Tensor:
    """The areas (...,) of boxes (..., 4) of the form `fmt`: "xyxy", "xywh" or "cxcywh" (see `box_convert`).

    Halves are multiplied in float32, small integers in int32. Raises ValueError for another form.
    """
    if fmt not in _ALIGNED:
        raise ValueError(f"box_area(): fmt must be of {_ALIGNED}, got {fmt!r}")
    a, b, c, d = _upcast(boxes).unbind(-1)
    return (c - a) * (d - b) if fmt == "xyxy" else c * d


def _pairs(boxes1: norch.Tensor, boxes2: norch.Tensor) -> tuple[norch.Tensor, norch.Tensor]:
    """Each of the n boxes beside each of the m."""
    return boxes1.unsqueeze(-2), boxes2.unsqueeze(-3)


def _product(sizes: norch.Tensor) -> norch.Tensor:
    sizes = _upcast(sizes).clamp(min=0)
    return sizes[..., 0] * sizes[..., 1]


def _corners(boxes: norch.Tensor, fmt: str) -> tuple[norch.Tensor, norch.Tensor]:
    first, second = boxes[..., :2], boxes[..., 2:]
    if fmt == "xyxy":
        return first, second
    return (first, first + second) if fmt == "xywh" else (first - second / 2, first + second / 2)


def _box_inter_union(
    boxes1: norch.Tensor, boxes2: norch.Tensor, fmt: str = "xyxy"
) -> tuple[norch.Tensor, norch.Tensor]:
    (low1, high1), (low2, high2) = (_corners(boxes, fmt) for boxes in _pairs(boxes1, boxes2))
    inter = _product(norch.minimum(high1, high2) - norch.maximum(low1, low2))
    return inter, box_area(boxes1, fmt).unsqueeze(-1) + box_area(boxes2, fmt).unsqueeze(-2) - inter


def _enclosing(boxes1: norch.Tensor, boxes2: norch.Tensor) -> norch.Tensor:
    """Width and height of the smallest box around each pair."""
    a, b = _pairs(boxes1, boxes2)
    return norch.maximum(a[..., 2:], b[..., 2:]) - norch.minimum(a[..., :2], b[..., :2])


def box_iou(boxes1: norch.Tensor, boxes2: norch.Tensor, fmt: str = "xyxy") -> norch.Tensor:
    """Intersection over union of each pair: boxes1 (..., n, 4) and boxes2 (..., m, 4) -> (..., n, m).

    fmt: their form, as of `box_convert`. Rotated boxes (n, 5) or (n, 8) are compared on the host, without gradients.
    Raises ValueError for another form.
    """
    if fmt in ROTATED:
        return rotated_iou(box_convert(boxes1, fmt, "cxcywhr"), box_convert(boxes2, fmt, "cxcywhr"))
    if fmt not in _ALIGNED:
        raise ValueError(f"box_iou(): fmt must be of {_ALIGNED + ROTATED}, got {fmt!r}")
    inter, union = _box_inter_union(boxes1, boxes2, fmt)
    return inter / union


def generalized_box_iou(boxes1: norch.Tensor, boxes2: norch.Tensor) -> norch.Tensor:
    """`box_iou` less the part of the enclosing box that neither covers: of shape (..., n, m).

    boxes1, boxes2: (..., n, 4) and (..., m, 4). After Rezatofighi et al. (2019).
    """
    inter, union = _box_inter_union(boxes1, boxes2)
    area = _product(_enclosing(boxes1, boxes2))
    return inter / union - (area - union) / area


def distance_box_iou(boxes1: norch.Tensor, boxes2: norch.Tensor, eps: float = 1e-7) -> norch.Tensor:
    """`box_iou` less the centres' distance over the enclosing box's diagonal, squared; of shape (..., n, m).

    boxes1, boxes2: (..., n, 4) and (..., m, 4). eps: added to the diagonal's square. After Zheng et al. (2020).
    """
    return _distance_iou(_upcast(boxes1), _upcast(boxes2), eps)[0]


def _distance_iou(boxes1: norch.Tensor, boxes2: norch.Tensor, eps: float) -> tuple[norch.Tensor, norch.Tensor]:
    iou = box_iou(boxes1, boxes2)
    diagonal = (_upcast(_enclosing(boxes1, boxes2)).clamp(min=0) ** 2).sum(-1) + eps
    first, second = _pairs(*((boxes[..., :2] + boxes[..., 2:]) / 2 for boxes in (boxes1, boxes2)))
    return iou - ((first - second) ** 2).sum(-1) / diagonal, iou


def complete_box_iou(boxes1: norch.Tensor, boxes2: norch.Tensor, eps: float = 1e-7) -> norch.Tensor:
    """`distance_box_iou` less what the ratios of width to height differ by: of shape (..., n, m).

    boxes1, boxes2, eps: as of `distance_box_iou`. After Zheng et al. (2020).
    """
    boxes1, boxes2 = _upcast(boxes1), _upcast(boxes2)
    diou, iou = _distance_iou(boxes1, boxes2, eps)
    first, second = (norch.atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in (boxes1, boxes2))
    v = 4 / math.pi**2 * (first.unsqueeze(-1) - second.unsqueeze(-2)) ** 2
    with norch.no_grad():
        alpha = v / (1 - iou + v + eps)
    return diou - alpha * v


def clip_boxes_to_image(boxes: norch.Tensor, size: tuple[int, int]) -> norch.Tensor:
    """Boxes (..., 4) with all corners moved into an image of the size (height, width)."""
    height, width = size
    x, y = boxes[..., 0::2].clamp(min=0, max=width), boxes[..., 1::2].clamp(min=0, max=height)
    return norch.stack((x, y), dim=boxes.ndim).reshape(boxes.shape)


def remove_small_boxes(boxes: norch.Tensor, min_size: float) -> norch.Tensor:
    """The indices (k,) of the boxes (n, 4) whose width and height are both at least `min_size`."""
    sizes = boxes[..., 2:] - boxes[..., :2]
    return norch.where((sizes >= min_size).all(-1))[0]


def masks_to_boxes(masks: norch.Tensor) -> norch.Tensor:
    """The smallest boxes around what is not 0 in masks (n, h, w): float32 (n, 4), all 0 for a mask that is all 0.

    The corners are the outermost pixels: a mask of one pixel has x1 = x2.
    """
    if masks.numel() == 0:
        return norch.zeros((0, 4), device=masks.device)
    found = masks.bool()
    ends = []
    for side in (found.any(dim=1), found.any(dim=2)):
        marks = side.float()
        ends.append((marks.argmax(dim=1), side.shape[1] - 1 - marks.flip(dims=[1]).argmax(dim=1)))
    (x1, x2), (y1, y2) = ends
    boxes = norch.stack([x1, y1, x2, y2], dim=1).float()
    return norch.where(found.flatten(1).any(dim=1).unsqueeze(1), boxes, 0.0)


def nms(boxes: norch.Tensor, scores: norch.Tensor, iou_threshold: float) -> norch.Tensor:
    """Non-maximum suppression: the indices, by falling score, of boxes that overlap no better one too much.

    boxes (n, 4), scores (n,) of the same dtype -> int64 (k,). Too much is an intersection over union above
    `iou_threshold`; of equal scores the first is the better. Greedy, as in
    Felzenszwalb et al. (2010). Under autocast both are taken in float32. Raises ShapeError for other shapes, and
    DTypeError for dtypes that differ or are no floats.
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4 or scores.shape != boxes.shape[:1]:
        raise norch.ShapeError(
            f"nms(): expected boxes (n, 4) and scores (n,), got {tuple(boxes.shape)} and {tuple(scores.shape)}"
        )
    if norch.is_autocast_enabled(boxes.device.type):
        boxes, scores = boxes.float(), scores.float()
    if boxes.dtype != scores.dtype or not boxes.is_floating_point():
        raise norch.DTypeError(
            f"nms(): expected boxes and scores of one floating dtype, got {boxes.dtype} and {scores.dtype}"
        )
    order = scores.detach().argsort(descending=True, stable=True)
    return order[norch.kept_boxes(_upcast(boxes.detach())[order], iou_threshold)]


def batched_nms(boxes: norch.Tensor, scores: norch.Tensor, idxs: norch.Tensor, iou_threshold: float) -> norch.Tensor:
    """`nms` within each category: `idxs` (n,) says to which a box of (n, 4) belongs."""
    if boxes.numel() == 0:
        return norch.empty((0,), dtype=norch.int64, device=boxes.device)
    if boxes.numel() <= (4000 if boxes.device.type == "cpu" else 100_000):  # one category beside the other
        offsets = idxs.to(boxes) * (boxes.max() + 1)
        return nms(boxes + offsets.unsqueeze(1), scores, iou_threshold)
    kept = []
    for category in idxs.unique():
        members = norch.where(idxs == category)[0]
        kept.append(members[nms(boxes[members], scores[members], iou_threshold)])
    found = norch.cat(kept).sort()[0]
    return found[scores[found].argsort(descending=True, stable=True)]
