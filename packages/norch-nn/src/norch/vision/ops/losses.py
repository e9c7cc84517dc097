"""Losses of detectors: of unbalanced classes, and of boxes by how they overlap."""

from __future__ import annotations

import math

import norch
from norch.nn import functional

from ._utils import _upcast_non_float


def _reduced(loss: norch.Tensor, reduction: str) -> norch.Tensor:
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if reduction == "mean":
        return loss.mean()
    raise ValueError(f"reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def sigmoid_focal_loss(
    inputs: norch.Tensor, targets: norch.Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> norch.Tensor:
    """Binary cross entropy of logits, elementwise times (1 - p)**gamma, where p is what the right class is given.

    targets: 0 or 1, of the inputs' shape and dtype. alpha: the weight of class 1, where 0 has 1 - alpha; -1 weights
    neither. After Lin et al. (2017). Raises ValueError for another alpha or reduction.
    """
    if alpha != -1 and not 0 <= alpha <= 1:
        raise ValueError(f"sigmoid_focal_loss(): alpha must be from 0 to 1, or -1, got {alpha}")
    p = inputs.sigmoid()
    loss = functional.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    loss = loss * (1 - (p * targets + (1 - p) * (1 - targets))) ** gamma
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    return _reduced(loss, reduction)


class _Pairs:
    """What the losses of boxes take: each box beside its target, intersection and union, the box around both."""

    def __init__(self, boxes1: norch.Tensor, boxes2: norch.Tensor) -> None:
        boxes1, boxes2 = _upcast_non_float(boxes1), _upcast_non_float(boxes2)
        x1, y1, x2, y2 = boxes1.unbind(-1)
        u1, v1, u2, v2 = boxes2.unbind(-1)
        w, h = norch.minimum(x2, u2) - norch.maximum(x1, u1), norch.minimum(y2, v2) - norch.maximum(y1, v1)
        self.inter = norch.where((w > 0) & (h > 0), w * h, 0.0)
        self.union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - self.inter
        self.width, self.height = (
            norch.maximum(x2, u2) - norch.minimum(x1, u1),
            norch.maximum(y2, v2) - norch.minimum(y1, v1),
        )
        self.distance = ((x1 + x2) / 2 - (u1 + u2) / 2) ** 2 + ((y1 + y2) / 2 - (v1 + v2) / 2) ** 2
        self.boxes = boxes1, boxes2

    def distance_loss(self, eps: float) -> tuple[norch.Tensor, norch.Tensor]:
        iou = self.inter / (self.union + eps)
        return 1 - iou + self.distance / (self.width**2 + self.height**2 + eps), iou


def _boxes_reduced(loss: norch.Tensor, reduction: str) -> norch.Tensor:
    """The mean of no boxes is 0."""
    return 0.0 * loss.sum() if reduction == "mean" and not loss.numel() else _reduced(loss, reduction)


def generalized_box_iou_loss(
    boxes1: norch.Tensor, boxes2: norch.Tensor, reduction: str = "none", eps: float = 1e-7
) -> norch.Tensor:
    """1 less the generalised intersection over union of each box and its target.

    boxes1, boxes2: both (n, 4), or both (4,). eps: added to what is divided by. After Rezatofighi et al. (2019). Raises
    ValueError for another reduction.
    """
    pairs = _Pairs(boxes1, boxes2)
    area = pairs.width * pairs.height
    loss = 1 - (pairs.inter / (pairs.union + eps) - (area - pairs.union) / (area + eps))
    return _boxes_reduced(loss, reduction)


def distance_box_iou_loss(
    boxes1: norch.Tensor, boxes2: norch.Tensor, reduction: str = "none", eps: float = 1e-7
) -> norch.Tensor:
    """1 less the intersection over union, plus the centres' distance over the enclosing diagonal, squared.

    boxes1, boxes2, eps, errors: as of `generalized_box_iou_loss`. After Zheng et al. (2020).
    """
    return _boxes_reduced(_Pairs(boxes1, boxes2).distance_loss(eps)[0], reduction)


def complete_box_iou_loss(
    boxes1: norch.Tensor, boxes2: norch.Tensor, reduction: str = "none", eps: float = 1e-7
) -> norch.Tensor:
    """`distance_box_iou_loss`, plus what the ratios of width to height differ by.

    boxes1, boxes2, errors: as of `generalized_box_iou_loss`. eps: of the weight of the ratios; where overlaps are
    divided it is 1e-7. After Zheng et al. (2020).
    """
    pairs = _Pairs(boxes1, boxes2)
    loss, iou = pairs.distance_loss(1e-7)
    first, second = (norch.atan((b[..., 2] - b[..., 0]) / (b[..., 3] - b[..., 1])) for b in pairs.boxes)
    v = 4 / math.pi**2 * (second - first) ** 2
    with norch.no_grad():
        alpha = v / (1 - iou + v + eps)
    return _boxes_reduced(loss + alpha * v, reduction)
