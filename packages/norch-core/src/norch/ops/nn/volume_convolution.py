"""Convolution of volumes (n, c, d, h, w) and its two gradients: those of images, over the planes that a window sees.

As of images the three are each other's derivatives (see `convolution`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import ShapeError
from ...spec import Spec, image_layout
from ..copying import contiguous, like_images
from ..families import composite, one_dtype
from ..shape.joining import cat
from ..shape.views import slice_dim
from ..upcast import upcast_dtype
from .convolution import _conv2d, conv2d_input_grad, conv2d_weight_grad, gradient_rules, infer_grad
from .windows import effective_size, pad2d

if TYPE_CHECKING:
    from ...tensor import Tensor

Triple = tuple[int, int, int]
Sextuple = tuple[int, int, int, int, int, int]
"""Elements before and after in each of the last three dims."""


def _size(op: str, shape: Any, kernel: Any, stride: Triple, pads: Sextuple, dilation: Triple) -> Triple:
    """How many windows fit in each of the three dims. Raises ShapeError where none does."""
    spans = [
        n + before + after - effective_size(k, gap)
        for n, before, after, k, gap in zip(shape[2:], pads[::2], pads[1::2], kernel, dilation)
    ]
    if min(spans) < 0:
        raise ShapeError(
            f"{op}(): windows of {tuple(kernel)} with dilation {dilation} do not fit {tuple(shape)} padded by {pads}"
        )
    return tuple([span // step + 1 for span, step in zip(spans, stride)])


def _crop_like(out: Tensor, spec: Spec) -> Tensor:
    for dim in (2, 3, 4):
        if out.spec.shape[dim] != spec.shape[dim]:
            out = slice_dim(out, dim, 0, spec.shape[dim])
    return out


def _trio() -> tuple[Any, Any, Any]:
    return _conv3d, conv3d_input_grad, conv3d_weight_grad


_FORWARD, _INPUT_GRAD, _WEIGHT_GRAD = gradient_rules(_trio, _crop_like)


def _infer_conv3d(
    input: Spec, weight: Spec, bias: Spec | None, stride: Triple, pads: Sextuple, dilation: Triple, groups: int
) -> Spec:
    one_dtype("conv3d", input, weight, bias)
    size = _size("conv3d", input.shape, weight.shape[2:], stride, pads, dilation)
    shape = (input.shape[0], weight.shape[0], *size)
    return input.like(shape, image_layout(shape, input, weight))


@composite(
    _infer_conv3d,
    {**_FORWARD, "bias": lambda g: g.sum((0, 2, 3, 4))},
    name="conv3d",
    native="floating",
)
def _conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Triple,
    pads: Sextuple,
    dilation: Triple,
    groups: int,
) -> Tensor:
    kernel, flat = weight.spec.shape[2:], weight.flatten(1, 2)
    n, c, d, h, w = input.spec.shape
    count, *size = _size("conv3d", input.spec.shape, kernel, stride, pads, dilation)
    if _is_along_depth(kernel, stride, pads):
        out = _conv2d(_flat(input), _flat(weight), bias, *_moves(stride, pads, dilation), groups)
        return out.reshape(n, weight.spec.shape[0], count, h, w)
    seen = _windows(input, pads[:2], (kernel[0], stride[0], dilation[0]), count)
    out = _conv2d(seen, flat, bias, stride[1:], pads[2:], dilation[1:], groups)
    out = out.reshape(n, count, out.spec.shape[1], *size).transpose(1, 2)
    return like_images(contiguous(out), input)


def _is_along_depth(kernel: tuple[int, ...], stride: Triple, pads: Sextuple) -> bool:
    """Whether each window sees one element of a plane: then planes may lie flat, (n, c, d, h * w), and are an image."""
    return kernel[1:] == stride[1:] == (1, 1) and not any(pads[2:])


def _flat(x: Tensor) -> Tensor:
    return x.flatten(3, 4)


def _moves(stride: Triple, pads: Sextuple, dilation: Triple) -> tuple[Any, Any, Any]:
    """Stride, pads and dilation of a convolution along depth, for flat planes."""
    return (stride[0], 1), (*pads[:2], 0, 0), (dilation[0], 1)


def _windows(x: Tensor, pads: tuple[int, int], moves: Triple, count: int) -> Tensor:
    """(n, c, d, h, w) to (n * count, c * kernel, h, w): the planes that each of `count` windows over d sees."""
    n, c, d, h, w = x.spec.shape
    kernel, stride, dilation = moves
    if any(pads):
        x = pad2d(x.reshape(n, c, d, h * w), (*pads, 0, 0), 0).reshape(n, c, d + sum(pads), h, w)
    x = x.transpose(1, 2)
    parts = [slice_dim(x, 1, i * dilation, count, stride).unsqueeze(3) for i in range(kernel)]
    seen = parts[0] if kernel == 1 else cat(parts, 3)
    return seen.reshape(n * count, c * kernel, h, w)


@composite(infer_grad("conv3d_input_grad"), _INPUT_GRAD, native="floating")
def conv3d_input_grad(
    grad: Tensor,
    weight: Tensor,
    shape: tuple[int, ...],
    stride: Triple,
    pads: Sextuple,
    dilation: Triple,
    groups: int,
) -> Tensor:
    """The gradient of conv3d's input, which has `shape`, from that of its result, (n, out, z, y, x).

    Raises DTypeError unless both have one dtype.
    """
    n, channels, d, h, w = shape
    count, kernel = grad.spec.shape[2], weight.spec.shape[2]
    if _is_along_depth(weight.spec.shape[2:], stride, pads) and grad.spec.shape[3:] == (h, w):
        moves = _moves(stride, pads, dilation)
        return conv2d_input_grad(_flat(grad), _flat(weight), (n, channels, d, h * w), *moves, groups).reshape(shape)
    planes = conv2d_input_grad(
        grad.transpose(1, 2).reshape(n * count, *grad.spec.shape[1:2], *grad.spec.shape[3:]),
        weight.flatten(1, 2),
        (n * count, channels * kernel, h, w),
        stride[1:],
        pads[2:],
        dilation[1:],
        groups,
    )
    parts = planes.reshape(n, count, channels, kernel, h * w).transpose(1, 2)
    if kernel == 1 and stride[0] == 1 and not any(pads[:2]) and count == d:
        return contiguous(parts.squeeze(3)).reshape(shape)
    out = parts.new_zeros(n, channels, d, h * w, dtype=upcast_dtype(parts.dtype))
    for i in range(kernel):
        at = i * dilation[0] - pads[0]
        first, end = max(0, -(at // stride[0])), min(count, (d - 1 - at) // stride[0] + 1)
        if first < end:
            part = slice_dim(parts.select(3, i), 2, first, end - first)
            slice_dim(out, 2, at + first * stride[0], end - first, stride[0]).add_(part)
    return out.to(grad.dtype).reshape(shape)


@composite(infer_grad("conv3d_weight_grad"), _WEIGHT_GRAD)
def conv3d_weight_grad(
    grad: Tensor,
    input: Tensor,
    shape: tuple[int, ...],
    stride: Triple,
    pads: Sextuple,
    dilation: Triple,
    groups: int,
) -> Tensor:
    """The gradient of conv3d's weight, of `shape`, from its result's (n, out, z, y, x). DTypeError as for conv3d."""
    n, o, count, *size = grad.spec.shape
    if _is_along_depth(shape[2:], stride, pads) and tuple(size) == input.spec.shape[3:]:
        moves = _moves(stride, pads, dilation)
        return conv2d_weight_grad(_flat(grad), _flat(input), (*shape[:3], 1), *moves, groups).reshape(shape)
    flat = (shape[0], shape[1] * shape[2], *shape[3:])
    seen = _windows(input, pads[:2], (shape[2], stride[0], dilation[0]), count)
    planes = grad.transpose(1, 2).reshape(n * count, o, *size)
    out = conv2d_weight_grad(planes, seen, flat, stride[1:], pads[2:], dilation[1:], groups)
    return out.reshape(shape)
