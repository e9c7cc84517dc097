"""Ways to write boxes: corners, a corner or the centre with width and height, rotated ones with an angle."""

from __future__ import annotations

import math
from collections.abc import Callable

import norch

FORMATS = ("xyxy", "xywh", "cxcywh", "xywhr", "cxcywhr", "xyxyxyxy")
ROTATED = FORMATS[3:]


def box_convert(boxes: norch.Tensor, in_fmt: str, out_fmt: str) -> norch.Tensor:
    """Boxes (..., 4), or rotated ones (..., 5) or (..., 8), written as `in_fmt` says, in the form `out_fmt`.

    The forms: "xyxy" two opposite corners, "xywh" a corner, width and height, "cxcywh" the centre, width and height;
    rotated ones "xywhr" and "cxcywhr" with an angle in degrees, counterclockwise, and "xyxyxyxy" four corners. What is
    rotated becomes another rotated form only, and integers are rounded. Raises ValueError for another form, and
    NotImplementedError between rotated and other forms.
    """
    if in_fmt not in FORMATS or out_fmt not in FORMATS:
        raise ValueError(f"box_convert(): in_fmt and out_fmt must be of {FORMATS}, got {in_fmt!r} and {out_fmt!r}")
    if in_fmt == out_fmt:
        return boxes.clone()
    if (in_fmt in ROTATED) != (out_fmt in ROTATED):
        raise NotImplementedError(f"box_convert(): {in_fmt!r} cannot become {out_fmt!r}")
    to, of = (_FROM_XYWHR, _TO_XYWHR) if in_fmt in ROTATED else (_FROM_XYXY, _TO_XYXY)
    for step in (of.get(in_fmt), to.get(out_fmt)):
        if step is not None:
            made = norch.stack(step(*boxes.unbind(-1)), dim=-1)
            whole = in_fmt in ROTATED and not boxes.is_floating_point()
            boxes = made.round().to(boxes.dtype) if whole else made
    return boxes


Parts = tuple[norch.Tensor, ...]
Steps = dict[str, Callable[..., Parts]]


def _xywh_to_xyxy(x: norch.Tensor, y: norch.Tensor, w: norch.Tensor, h: norch.Tensor) -> Parts:
    return x, y, x + w, y + h


def _cxcywh_to_xyxy(cx: norch.Tensor, cy: norch.Tensor, w: norch.Tensor, h: norch.Tensor) -> Parts:
    return cx - 0.5 * w, cy - 0.5 * h, cx + 0.5 * w, cy + 0.5 * h


def _xyxy_to_xywh(x1: norch.Tensor, y1: norch.Tensor, x2: norch.Tensor, y2: norch.Tensor) -> Parts:
    return x1, y1, x2 - x1, y2 - y1


def _xyxy_to_cxcywh(x1: norch.Tensor, y1: norch.Tensor, x2: norch.Tensor, y2: norch.Tensor) -> Parts:
    return (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1


_TO_XYXY: Steps = {"xywh": _xywh_to_xyxy, "cxcywh": _cxcywh_to_xyxy}
_FROM_XYXY: Steps = {"xywh": _xyxy_to_xywh, "cxcywh": _xyxy_to_cxcywh}


def _turn(r: norch.Tensor) -> tuple[norch.Tensor, norch.Tensor]:
    radians = r * math.pi / 180.0
    return radians.cos(), radians.sin()


def _cxcywhr_to_xywhr(cx: norch.Tensor, cy: norch.Tensor, w: norch.Tensor, h: norch.Tensor, r: norch.Tensor) -> Parts:
    cos, sin = _turn(r)
    x, y = cx - w / 2 * cos - h / 2 * sin, cy - h / 2 * cos + w / 2 * sin
    return x, y, w, h, r


def _xywhr_to_cxcywhr(x: norch.Tensor, y: norch.Tensor, w: norch.Tensor, h: norch.Tensor, r: norch.Tensor) -> Parts:
    cos, sin = _turn(r)
    cx, cy = x + w / 2 * cos + h / 2 * sin, y - w / 2 * sin + h / 2 * cos
    return cx, cy, w, h, r


def _xywhr_to_corners(x: norch.Tensor, y: norch.Tensor, w: norch.Tensor, h: norch.Tensor, r: norch.Tensor) -> Parts:
    cos, sin = _turn(r)
    x2, y2 = x + w * cos, y - w * sin
    return x, y, x2, y2, x2 + h * sin, y2 + h * cos, x + h * sin, y + h * cos


def _corners_to_xywhr(
    x1: norch.Tensor, y1: norch.Tensor, x2: norch.Tensor, y2: norch.Tensor, *others: norch.Tensor
) -> Parts:
    x3, y3, _, _ = others
    r = norch.atan2(y1 - y2, x2 - x1) * 180 / math.pi
    w, h = ((x2 - x1) ** 2 + (y1 - y2) ** 2).sqrt(), ((x3 - x2) ** 2 + (y3 - y2) ** 2).sqrt()
    return x1, y1, w, h, r


_TO_XYWHR: Steps = {"cxcywhr": _cxcywhr_to_xywhr, "xyxyxyxy": _corners_to_xywhr}
_FROM_XYWHR: Steps = {"cxcywhr": _xywhr_to_cxcywhr, "xyxyxyxy": _xywhr_to_corners}
