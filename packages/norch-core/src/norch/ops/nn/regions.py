"""Regions of images, given by boxes: which of them overlap, and means over them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dispatch.arguments import check_functions
from ...dtype import bool_, float32, int64
from ...errors import DTypeError, IndexError, ShapeError
from ...spec import Spec
from ..creation import arange, full_like
from ..elementwise.arithmetic import maximum, minimum, where
from ..families import composite, has_kernel, op_of
from ..from_data import tensor
from ..reduction.sorting import argsort
from ..shape.joining import cat, stack

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

# --- Means over regions ---------------------------------------------------------------------------------------------


def roi_align(
    input: Tensor,
    boxes: Tensor,
    output_size: tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = -1,
    aligned: bool = False,
) -> Tensor:
    """Each region in `output_size` bins, each the mean of samples between pixels; after He et al. (2017).

    input: (n, c, h, w). boxes: (k, 5), the image's number first. spatial_scale, sampling_ratio, aligned: as of
    `norch.vision.ops.roi_align`. -> (k, c, *output_size), with gradients for the input alone. Raises ShapeError for
    other shapes, DTypeError unless both have one dtype, float32 or float64, IndexError for the number of an image that
    is not there.
    """
    if input.ndim != 4 or boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ShapeError(
            f"roi_align(): expected input (n, c, h, w) and boxes (k, 5), got {tuple(input.shape)} and "
            f"{tuple(boxes.shape)}"
        )
    if input.dtype is not boxes.dtype or not input.is_floating_point() or input.dtype.itemsize < 4:
        raise DTypeError(
            f"roi_align(): expected input and boxes of float32 or float64, got {input.dtype} and {boxes.dtype}"
        )
    bins = tuple(output_size)
    how = bins, float(spatial_scale), int(sampling_ratio), bool(aligned)
    boxes = boxes.detach()
    # The parts have a quicker gradient than a composite without a kernel: it keeps the weights.
    means = _roi_align if has_kernel(op_of(_roi_align), input.spec, boxes.spec, *how) else _means
    return means(input, boxes, *how)


def _infer_align(input: Spec, boxes: Spec, bins: Any, scale: float, ratio: int, aligned: bool) -> Spec:
    return input.like((boxes.shape[0], input.shape[1], *bins))


def _infer_align_grad(
    grad: Spec, boxes: Spec, shape: tuple[int, ...], bins: Any, scale: float, ratio: int, aligned: bool
) -> Spec:
    return grad.like(shape)


def _means(input: Tensor, boxes: Tensor, bins: Any, scale: float, ratio: int, aligned: bool) -> Tensor:
    parts, order = regions_by_image(boxes, input.spec.shape[0])
    made = []
    for n, part in parts:
        columns, rows = _weights(part, bins, input.spec.shape[2:], scale, ratio, aligned)
        channels, *lengths = input.spec.shape[1:]
        wide = rows.flatten(0, 1) @ input[n].permute(1, 0, 2).reshape(lengths[0], -1)
        out = wide.view(len(part), bins[0] * channels, lengths[1]) @ columns.transpose(1, 2)
        made.append(out.view(len(part), bins[0], channels, bins[1]).permute(0, 2, 1, 3))
    out = made[0] if len(made) == 1 else cat(made)
    return out if order is None else out[order]


def _means_grad(
    grad: Tensor, boxes: Tensor, shape: tuple[int, ...], bins: Any, scale: float, ratio: int, aligned: bool
) -> Tensor:
    channels, *lengths = shape[1:]
    numbers, order = regions_by_image(boxes, shape[0])
    if order is not None:
        grad = grad[argsort(order)]
    made, end = [], 0
    for _, part in numbers:
        begin, end = end, end + len(part)
        columns, rows = _weights(part, bins, tuple(lengths), scale, ratio, aligned)
        given = grad[begin:end].permute(0, 2, 1, 3).reshape(len(part), bins[0] * channels, bins[1])
        wide = (given @ columns).view(len(part) * bins[0], channels * lengths[1])
        made.append((rows.flatten(0, 1).transpose(0, 1) @ wide).view(lengths[0], channels, lengths[1]).transpose(0, 1))
    return stack(made)


def _align_rule(
    g: Tensor, input_spec: Spec, boxes: Tensor, bins: Any, scale: float, ratio: int, aligned: bool
) -> Tensor:
    return _roi_align_grad(g, boxes, tuple(input_spec.shape), bins, scale, ratio, aligned)


def _align_grad_rule(g: Tensor, boxes: Tensor, bins: Any, scale: float, ratio: int, aligned: bool) -> Tensor:
    return _roi_align(g, boxes, bins, scale, ratio, aligned)


_roi_align = composite(_infer_align, {"input": _align_rule}, name="roi_align")(_means)
_roi_align_grad = composite(_infer_align_grad, {"grad": _align_grad_rule}, name="roi_align_grad")(_means_grad)


def _weights(
    boxes: Tensor, bins: Any, lengths: tuple[int, ...], scale: float, ratio: int, aligned: bool
) -> tuple[Tensor, Tensor]:
    """What the columns and the rows of an image give to each bin of boxes (l, 4)."""
    ends = boxes * scale - (0.5 if aligned else 0.0)
    start, size = ends[:, :2], ends[:, 2:] - ends[:, :2]
    if not aligned:
        size = size.clamp(min=1.0)
    columns, rows = (bin_weights(start[:, d], size[:, d], bins[1 - d], lengths[1 - d], ratio) for d in (0, 1))
    return columns, rows


def regions_by_image(boxes: Tensor, images: int) -> tuple[list[tuple[int, Tensor]], Tensor | None]:
    """The boxes (l, 4) of each image with its number, of (k, 5), the image's number first; and where each of the k is
    among them, None if they are in order. Raises IndexError for an image that is not there of `images`.
    """
    if images == 1:
        return [(0, boxes[:, 1:])], None
    numbers = boxes[:, 0].detach().cpu().numpy().astype(np.int64)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < images):
        raise IndexError(f"boxes are of image {numbers.min()} to {numbers.max()}, the input has {images}")
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(images + 1))
    sorted_boxes = boxes[tensor(order, device=boxes.device)][:, 1:]
    parts = [(n, sorted_boxes[ends[n] : ends[n + 1]]) for n in range(images)]
    return parts, tensor(np.argsort(order, kind="stable"), device=boxes.device)


def bin_weights(start: Tensor, size: Tensor, bins: int, length: int, sampling_ratio: int = -1) -> Tensor:
    """What each bin of regions gives to each row, or column, of a mean over its samples: (k, bins, length).

    start, size: (k,), of the regions. A sample between two rows is of both, by its distance; more than a row outside it
    is 0. sampling_ratio: samples of a bin; by default as many as it has rows.
    """
    step = size / bins
    if sampling_ratio > 0:
        samples, count = sampling_ratio, full_like(size, sampling_ratio)
    else:
        count = step.ceil()
        samples = max(int(count.max().item()), 0) if len(size) else 0
    step, steps, first = step.view(-1, 1, 1), count.view(-1, 1, 1), start.view(-1, 1, 1)

    def numbers(end: int) -> Tensor:
        return arange(end, dtype=start.dtype, device=start.device)

    sample = numbers(samples)
    at = first + numbers(bins).view(-1, 1) * step + (sample + 0.5) * step / steps
    given = (sample < steps) & (at >= -1) & (at <= length)
    near = at.clamp(0, length - 1).unsqueeze(-1) - numbers(length)
    weights = where(given.unsqueeze(-1), (1 - near.abs()).clamp(min=0), 0.0)
    return weights.sum(2) / steps.clamp(min=1)


check_functions(globals())
