"""Windows of images as columns, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.arguments import check_functions
from ...errors import ShapeError
from ...spec import Spec
from ..families import composite
from .windows import Pads, Pair, Windows, add_windows, output_size, pad2d, pair, window_view

if TYPE_CHECKING:
    from ...tensor import Tensor


def im2col(input: Tensor, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """All windows of images as columns: (n, c, h, w) -> (n, c * i * j, y * x), with zeros around the images.

    kernel_size (i, j), dilation, padding, stride: two ints each. Raises ShapeError for another number of dims, and for
    windows that do not fit.
    """
    if input.ndim != 4:
        raise ShapeError(f"im2col(): expected (n, c, h, w), got shape {tuple(input.shape)}")
    return _im2col(input, *_pairs("im2col", kernel_size, dilation, padding, stride))


def col2im(input: Tensor, output_size: Pair, kernel_size: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    """The columns of `im2col` back in their places, added where they overlap: (n, c * i * j, y * x) -> (n, c, h, w).

    output_size: (h, w); the rest as of `im2col`. Raises ShapeError where the shape is not that of `im2col` for them.
    """
    size = pair(output_size, "col2im", "output_size", 1)
    kernel, *how = _pairs("col2im", kernel_size, dilation, padding, stride)
    count, cells = _windows("col2im", size, kernel, *how)[2], kernel[0] * kernel[1]
    shape = tuple(input.shape)
    if input.ndim != 3 or shape[1] % cells or shape[2] != count[0] * count[1]:
        raise ShapeError(f"col2im(): expected (n, c * {cells}, {count[0] * count[1]}), got shape {shape}")
    return _col2im(input, size, kernel, *how)


def _pairs(op: str, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> tuple[Pair, Pair, Pair, Pair]:
    return (
        pair(kernel, op, "kernel_size", 1),
        pair(dilation, op, "dilation", 1),
        pair(padding, op, "padding", 0),
        pair(stride, op, "stride", 1),
    )


def _windows(
    op: str, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair
) -> tuple[Windows, Pads, Pair]:
    """The windows, what is around the images, and how many windows there are."""
    windows, pads = Windows(kernel, stride, dilation), (padding[0], padding[0], padding[1], padding[1])
    return windows, pads, output_size(size, pads, windows, op)


def _infer_im2col(x: Spec, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Spec:
    n, c, h, w = x.shape
    count = _windows("im2col", (h, w), kernel, dilation, padding, stride)[2]
    return x.like((n, c * kernel[0] * kernel[1], count[0] * count[1]))


def _infer_col2im(columns: Spec, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Spec:
    return columns.like((columns.shape[0], columns.shape[1] // (kernel[0] * kernel[1]), *size))


def _im2col_rule(g: Tensor, x_spec: Spec, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    h, w = x_spec.shape[2:]
    return _col2im(g, (h, w), kernel, dilation, padding, stride)


def _col2im_rule(g: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    return _im2col(g, kernel, dilation, padding, stride)


@composite(_infer_im2col, {"x": _im2col_rule}, name="im2col")
def _im2col(x: Tensor, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    n, c, h, w = x.spec.shape
    windows, pads, count = _windows("im2col", (h, w), kernel, dilation, padding, stride)
    found = window_view(pad2d(x, pads, 0), count, windows, "ncijyx")
    return found.reshape(n, c * kernel[0] * kernel[1], count[0] * count[1])


@composite(_infer_col2im, {"columns": _col2im_rule}, name="col2im")
def _col2im(columns: Tensor, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Tensor:
    spec = _infer_col2im(columns.spec, size, kernel, dilation, padding, stride)
    windows, pads, count = _windows("col2im", size, kernel, dilation, padding, stride)
    parts = columns.reshape(*spec.shape[:2], *kernel, *count)
    return add_windows(lambda i, j: parts[:, :, i, j], spec, pads, count, windows).contiguous()


check_functions(globals())
