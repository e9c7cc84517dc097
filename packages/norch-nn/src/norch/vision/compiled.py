"""The ops of torchvision's compiled library, by norch.vision's functions: torchvision's own Python runs on them.

With norch in place of PyTorch an installed torchvision imports this module where it would load its library, once for
each of the modules that speak to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import norch

from . import io, ops
from .ops.rotated import rotated_iou

Tensor = Any
_HAS_OPS = True  # what older versions ask


def _has_ops() -> bool:
    return True


def _assert_has_ops() -> None:
    pass


def _check_cuda_version() -> int:
    return -1


def _load_library(lib_name: str) -> bool:
    return lib_name in ("_C", "image")


def _register_custom_op() -> None:
    pass


def _roi_align(x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int, aligned: bool) -> Tensor:
    return ops.roi_align(x, rois, (height, width), scale, ratio, aligned)


def _roi_pool(x: Tensor, rois: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, None]:
    return ops.roi_pool(x, rois, (height, width), scale), None


def _ps_roi_align(x: Tensor, rois: Tensor, scale: float, height: int, width: int, ratio: int) -> tuple[Tensor, None]:
    return ops.ps_roi_align(x, rois, (height, width), scale, ratio), None


def _ps_roi_pool(x: Tensor, rois: Tensor, scale: float, height: int, width: int) -> tuple[Tensor, None]:
    return ops.ps_roi_pool(x, rois, (height, width), scale), None


def _deform_conv2d(x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor, *sizes: Any) -> Tensor:
    stride, padding, dilation, use_mask = sizes[0:2], sizes[2:4], sizes[4:6], sizes[8]
    return ops.deform_conv2d(x, offset, weight, bias, stride, padding, dilation, mask if use_mask else None)


def _mode(value: int) -> io.ImageReadMode:
    return io.ImageReadMode(value)


_OPS: dict[str, dict[str, Callable[..., Any]]] = {
    "torchvision": {
        "nms": ops.nms,
        "roi_align": _roi_align,
        "roi_pool": _roi_pool,
        "ps_roi_align": _ps_roi_align,
        "ps_roi_pool": _ps_roi_pool,
        "deform_conv2d": _deform_conv2d,
        "box_iou_rotated": rotated_iou,
    },
    "image": {
        "read_file": io.read_file,
        "write_file": io.write_file,
        "decode_image": lambda data, mode, turned: io.decode_image(data, _mode(mode), turned),
        "decode_png": lambda data, mode, turned: io.decode_png(data, _mode(mode), turned),
        "decode_jpeg": lambda data, mode, turned: io.decode_jpeg(data, _mode(mode), apply_exif_orientation=turned),
        "decode_webp": lambda data, mode: io.decode_webp(data, _mode(mode)),
        "decode_gif": io.decode_gif,
        "encode_png": io.encode_png,
        "encode_jpeg": io.encode_jpeg,
    },
}
for _namespace, _functions in _OPS.items():
    for _name, _function in _functions.items():
        norch.library.composite_op(f"{_namespace}::{_name}", _function)
