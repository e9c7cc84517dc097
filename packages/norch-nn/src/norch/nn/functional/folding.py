"""Windows of images as columns, and back."""

from __future__ import annotations

from typing import Any

import norch

Pair = tuple[int, int]


def _pair(value: Any, op: str, what: str, least: int) -> Pair:
    values = tuple(value) if isinstance(value, tuple | list) else (value, value)
    if len(values) != 2 or min(values) < least:
        raise norch.ShapeError(f"{op}(): {what} must be an int or two of at least {least}, got {value!r}")
    return int(values[0]), int(values[1])


def _output_sizes(op: str, size: Pair, kernel: Pair, dilation: Pair, padding: Pair, stride: Pair) -> Pair:
    rooms = [n + 2 * p - d * (k - 1) - 1 for n, k, d, p in zip(size, kernel, dilation, padding)]
    if min(rooms) < 0:
        raise norch.ShapeError(
            f"{op}(): windows of {kernel} with dilation {dilation} do not fit {size} padded by {padding}"
        )
    return rooms[0] // stride[0] + 1, rooms[1] // stride[1] + 1


def _windows(op: str, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> tuple[Pair, Pair, Pair, Pair]:
    return (
        _pair(kernel_size, op, "kernel_size", 1),
        _pair(dilation, op, "dilation", 1),
        _pair(padding, op, "padding", 0),
        _pair(stride, op, "stride", 1),
    )


def unfold(input: norch.Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> norch.Tensor:
    """All windows of an image as columns: (n, c, h, w) or (c, h, w) -> (n, c * i * j, y * x), or without n.

    Raises ShapeError for another number of dims, and for windows that do not fit.
    """
    if input.ndim not in (3, 4):
        raise norch.ShapeError(f"unfold(): expected 3 or 4 dims, got shape {tuple(input.shape)}")
    windows = _windows("unfold", kernel_size, dilation, padding, stride)
    _output_sizes("unfold", (input.shape[-2], input.shape[-1]), *windows)
    found = norch.im2col(input if input.ndim == 4 else input.unsqueeze(0), *windows)
    return found if input.ndim == 4 else found.squeeze(0)


def fold(
    input: norch.Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> norch.Tensor:
    """The columns of `unfold` back in their places, added where they overlap: (n, c * i * j, y * x) -> (n, c, h, w).

    output_size: h and w; the rest as of `unfold`. Raises ShapeError where the shape is not that of `unfold` for them.
    """
    windows = _windows("fold", kernel_size, dilation, padding, stride)
    size, cells = _pair(output_size, "fold", "output_size", 1), windows[0][0] * windows[0][1]
    output = _output_sizes("fold", size, *windows)
    if input.ndim not in (2, 3) or input.shape[-2] % cells or input.shape[-1] != output[0] * output[1]:
        raise norch.ShapeError(
            f"fold(): expected (n, c * {cells}, {output[0] * output[1]}) for output_size {size}, kernel_size "
            f"{windows[0]}, dilation {windows[1]}, padding {windows[2]} and stride {windows[3]}, got shape "
            f"{tuple(input.shape)}"
        )
    found = norch.col2im(input if input.ndim == 3 else input.unsqueeze(0), size, *windows)
    return found if input.ndim == 3 else found.squeeze(0)
