"""Intersections of rotated boxes, on the host."""

from __future__ import annotations

import numpy as np

import norch


def rotated_iou(boxes1: norch.Tensor, boxes2: norch.Tensor) -> norch.Tensor:
    """Intersection over union of boxes (n, 5) and (m, 5), which are centre, size and angle: float32 (n, m)."""
    first, second = (b.detach().double().cpu().numpy() for b in (boxes1, boxes2))
    areas, corners = [b[:, 2] * b[:, 3] for b in (first, second)], [_corners(b) for b in (first, second)]
    reach = [np.hypot(b[:, 2], b[:, 3]) / 2 for b in (first, second)]
    far = np.linalg.norm(first[:, None, :2] - second[None, :, :2], axis=-1) >= reach[0][:, None] + reach[1]
    inter = np.zeros((len(first), len(second)))
    for i, j in zip(*np.nonzero(~far)):
        inter[i, j] = _area(_clipped(corners[0][i], corners[1][j]))
    union = areas[0][:, None] + areas[1] - inter
    with np.errstate(all="ignore"):
        iou = np.where(inter > 0, inter / union, 0.0)
    return norch.tensor(iou, dtype=norch.float32, device=boxes1.device)


def _corners(boxes: np.ndarray) -> np.ndarray:
    """(n, 4, 2), the one after the other in the same sense."""
    turn = np.deg2rad(boxes[:, 4])
    along = boxes[:, 2:3] / 2 * np.stack([np.cos(turn), -np.sin(turn)], 1)
    across = boxes[:, 3:4] / 2 * np.stack([np.sin(turn), np.cos(turn)], 1)
    centre = boxes[:, :2]
    return centre[:, None] + np.stack([-along - across, along - across, along + across, across - along], 1)


def _cross(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _clipped(polygon: np.ndarray, window: np.ndarray) -> np.ndarray:
    """The part of a convex polygon that lies in another, edge by edge (Sutherland and Hodgman, 1974)."""
    for start, end in zip(window, np.roll(window, -1, axis=0)):
        inside = _cross(end - start, polygon - start)
        following, after = np.roll(polygon, -1, axis=0), np.roll(inside, -1)
        points = []
        for p, q, a, b in zip(polygon, following, inside, after):
            if a >= 0:
                points.append(p)
            if a * b < 0:
                points.append(p + (q - p) * (a / (a - b)))
        if not points:
            return np.zeros((0, 2))
        polygon = np.array(points)
    return polygon


def _area(polygon: np.ndarray) -> float:
    centred = polygon - polygon[:1]
    return abs(float(_cross(centred, np.roll(centred, -1, axis=0)).sum())) / 2
