"""Boxes in images."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dispatch.arguments import check_functions
from ...dtype import bool_, float32, int64
from ...errors import DTypeError, ShapeError
from ...spec import Spec
from ..elementwise.arithmetic import maximum, minimum
from ..families import composite
from ..from_data import tensor

if TYPE_CHECKING:
    from ...tensor import Tensor

_PAIRS = {True: 1 << 15, False: 1 << 24}
"""How many pairs of boxes are compared at once, by whether this is on the host."""


def kept_boxes(boxes: Tensor, iou_threshold: float) -> Tensor:
    """Which boxes non-maximum suppression keeps: those that overlap no better one that is kept too much.

    boxes: (n, 4), float32 or float64, the best first: left, top, right, bottom -> bool (n,). Too much is an
    intersection over union above `iou_threshold`. Raises ShapeError for another shape, DTypeError for another dtype.
    Greedy, as in Felzenszwalb et al. (2010).
    """
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ShapeError(f"kept_boxes(): expected boxes (n, 4), got {tuple(boxes.shape)}")
    if not boxes.is_floating_point() or boxes.dtype.itemsize < 4:
        raise DTypeError(f"kept_boxes(): expected boxes of float32 or float64, got {boxes.dtype}")
    # On the CPU NumPy alone, which makes no plan for each number of boxes.
    find = _kept_in_parts if boxes.device.type == "cpu" else _kept
    return find(boxes.detach(), float(iou_threshold))


def _kept_in_parts(boxes: Tensor, iou_threshold: float) -> Tensor:
    """Some of the best that are left are compared with all that are left, on the device of the boxes; which of them
    are kept is decided on the host."""
    threshold = np.float32(iou_threshold)
    if boxes.dtype is float32 and float(threshold) > iou_threshold:
        iou_threshold = float(np.nextafter(threshold, np.float32(-np.inf)))  # what exceeds that exceeds what was given
    on_host = boxes.device.type == "cpu"
    of: Any = np if on_host else SimpleNamespace(minimum=minimum, maximum=maximum)
    corners: Any = boxes.transpose(0, 1).contiguous()
    left, top, right, bottom = corners.numpy() if on_host else corners
    sides = [left, top, right, bottom, (right - left) * (bottom - top)]
    places, kept = np.arange(len(boxes)), np.zeros(len(boxes), np.bool_)
    while len(places):
        count = max(1, _PAIRS[on_host] // len(places))
        left, top, right, bottom, area = sides
        one_left, one_top, one_right, one_bottom, one_area = (side[:count, None] for side in sides)
        with np.errstate(all="ignore"):
            width = (of.minimum(one_right, right) - of.maximum(one_left, left)).clip(0)
            inter = (of.minimum(one_bottom, bottom) - of.maximum(one_top, top)).clip(0) * width
            too_much = inter / (one_area + area - inter) > iou_threshold
        gone = np.zeros(len(places), np.bool_)
        for i, row in enumerate(too_much if on_host else too_much.cpu().numpy()):
            if not gone[i]:
                kept[places[i]] = True
                gone |= row
        gone[:count] = True
        rest = np.flatnonzero(~gone)
        places = places[rest]
        at: Any = rest if on_host else tensor(rest, dtype=int64, device=boxes.device)
        sides = [side[at] for side in sides]
    return tensor(kept, dtype=bool_, device=boxes.device)


def _infer_kept(boxes: Spec, iou_threshold: float) -> Spec:
    return boxes.like(tuple(boxes.shape[:1]), dtype=bool_)


_kept = composite(_infer_kept, name="kept_boxes")(_kept_in_parts)

check_functions(globals())
