"""Pooling over the last one or two dims."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...dtype import BOOL, FLOATING, INTEGER, DType, iinfo, int64
from ...errors import DTypeError, ShapeError
from ...spec import Spec, as_int, image_layout, is_channels_last
from ..copying import contiguous, like_images, row_major_copy
from ..creation import arange
from ..elementwise.arithmetic import div, floor_divide, remainder, where
from ..families import composite, floating, one_dtype
from ..indexing import gather, scatter_add
from ..reduction.reductions import amax, argmax
from ..reduction.reductions import max as largest
from ..registry import public
from ..shape.views import flatten, reshape
from ..upcast import upcast
from .resampling import parts, resampled
from .windows import (
    Pads,
    Windows,
    add_windows,
    as_images,
    cached,
    effective_size,
    from_images,
    output_size,
    pad2d,
    pair,
    window_view,
)

if TYPE_CHECKING:
    from ...tensor import Tensor


def _output(input: Spec, windows: Windows, pads: Pads, op: str) -> Spec:
    """(n, c, y, x): an element for each window."""
    shape = (*input.shape[:2], *output_size((input.shape[2], input.shape[3]), pads, windows, op))
    return input.like(shape, image_layout(shape, input))


def _all_windows(input: Tensor, windows: Windows, pads: Pads, value: float) -> Tensor:
    """A (n, c, y, x, i, j) view of all windows of `input` padded with `value`."""
    x = pad2d(input, pads, value)
    _, _, rows, columns = _output(x.spec, windows, (0, 0, 0, 0), "pooling").shape
    return window_view(x, (rows, columns), windows, "ncyxij")


# --- Maximum --------------------------------------------------------------------------------------------------------


def _infer_max(input: Spec, windows: Windows, pads: Pads) -> Spec:
    return _output(input, windows, pads, "max_pool2d")


def _infer_max_indices(input: Spec, windows: Windows, pads: Pads) -> Spec:
    out = _output(input, windows, pads, "max_pool2d")
    return out.like(out.shape, out.strides, dtype=int64)


def _lowest(dtype: DType) -> float:
    """What no element is less than."""
    return -math.inf if dtype.category == FLOATING else iinfo(dtype).min


def _max_rule(g: Tensor, input: Tensor, windows: Windows, pads: Pads) -> Tensor:
    return _max_pool2d_grad(g, input.detach(), windows, pads)


@composite(_infer_max, _max_rule, name="max_pool2d")
def _max_pool2d(input: Tensor, windows: Windows, pads: Pads) -> Tensor:
    return amax(_all_windows(input, windows, pads, _lowest(input.spec.dtype)), (4, 5))


@composite(_infer_max_indices, name="max_pool2d_indices")
def _max_pool2d_indices(input: Tensor, windows: Windows, pads: Pads) -> Tensor:
    """For each window where in its plane of h * w elements the first largest is."""
    n, c, h, w = input.spec.shape
    (kh, kw), (step_y, step_x), (dy, dx) = windows
    columns = _all_windows(input, windows, pads, _lowest(input.spec.dtype))
    rows, width = columns.spec.shape[2:4]
    best = argmax(columns.reshape(n, c, rows, width, kh * kw), -1)
    top = (arange(rows, device=input.device) * step_y - pads[0]).unsqueeze(1)
    left = arange(width, device=input.device) * step_x - pads[2]
    y, x = floor_divide(best, kw) * dy + top, remainder(best, kw) * dx + left
    # A window of nothing but -inf (or 0, of uint8) finds its largest in the padding before its first element, which is
    # as large; one without elements has the nearest.
    outside = (y < 0) | (y >= h) | (x < 0) | (x >= w)
    y = where(outside, top + floor_divide((-top).clamp(min=0) + (dy - 1), dy) * dy, y).clamp(0, max(h - 1, 0))
    x = where(outside, left + floor_divide((-left).clamp(min=0) + (dx - 1), dx) * dx, x).clamp(0, max(w - 1, 0))
    return y * w + x


def _infer_max_grad(grad: Spec, input: Spec, windows: Windows, pads: Pads) -> Spec:
    return grad.like(input.shape, image_layout(input.shape, input))


def _max_grad_rule(g: Tensor, grad_spec: Spec, input: Tensor, windows: Windows, pads: Pads) -> Tensor:
    n, c, rows, columns = grad_spec.shape
    indices = _max_pool2d_indices(input, windows, pads).reshape(n, c, rows * columns)
    return gather(g.reshape(n, c, input.spec.shape[2] * input.spec.shape[3]), 2, indices).reshape(n, c, rows, columns)


@composite(_infer_max_grad, {"grad": _max_grad_rule}, name="max_pool2d_grad")
def _max_pool2d_grad(grad: Tensor, input: Tensor, windows: Windows, pads: Pads) -> Tensor:
    """The gradient of max_pool2d's input: the first largest element of each window gets that of the window."""
    n, c, h, w = input.spec.shape
    count = grad.spec.shape[2] * grad.spec.shape[3]
    indices = _max_pool2d_indices(input, windows, pads).reshape(n, c, count)
    return scatter_add(grad.new_zeros(n, c, h * w), 2, indices, grad.reshape(n, c, count)).reshape(n, c, h, w)


# --- Average --------------------------------------------------------------------------------------------------------


def _infer_sum(input: Spec, windows: Windows, pads: Pads) -> Spec:
    one_dtype("avg_pool2d", input)
    return _output(input, windows, pads, "avg_pool2d")


def _infer_sum_grad(grad: Spec, shape: tuple[int, ...], windows: Windows, pads: Pads) -> Spec:
    return grad.like(shape, image_layout(shape, grad))


def _sum_grad_rule(g: Tensor, windows: Windows, pads: Pads) -> Tensor:
    return _sum_pool2d(g, windows, pads)


@composite(_infer_sum_grad, {"grad": _sum_grad_rule}, name="sum_pool2d_grad")
def _sum_pool2d_grad(grad: Tensor, shape: tuple[int, ...], windows: Windows, pads: Pads) -> Tensor:
    g = upcast(grad)
    rows, columns = grad.spec.shape[2:]
    out = add_windows(lambda i, j: g, g.spec.like(shape), pads, (rows, columns), windows)
    return contiguous(out.to(grad.dtype))


def _sum_rule(g: Tensor, input_spec: Spec, windows: Windows, pads: Pads) -> Tensor:
    if type(g.spec) is Spec and is_channels_last(input_spec) and not is_channels_last(g.spec):
        g = row_major_copy(g.movedim(1, -1)).movedim(-1, 1)  # small, and its layout is that of the result
    return _sum_pool2d_grad(g, tuple(input_spec.shape), windows, pads)


@composite(_infer_sum, {"input": _sum_rule}, name="sum_pool2d", native="floating")
def _sum_pool2d(input: Tensor, windows: Windows, pads: Pads) -> Tensor:
    """The sums of windows."""
    return _all_windows(input, windows, pads, 0).sum((4, 5))


def repeated(input: Tensor, times: int) -> Tensor:
    """Each element of images (n, c, h, w) in `times` rows and columns. Its gradient is the sum of windows."""
    shape = (*input.spec.shape[:2], *[n * times for n in input.spec.shape[2:]])
    return _sum_pool2d_grad(input, shape, Windows((times, times), (times, times), (1, 1)), (0, 0, 0, 0))


def window_sizes(n: int, count: int, kernel: int, stride: int, padding: int, include_pad: bool) -> list[float]:
    """How many elements each window along a dim is the average of, with its padding if `include_pad`."""
    sizes = []
    for i in range(count):
        first = i * stride - padding
        last = min(first + kernel, n + padding)
        sizes.append(float(last - first if include_pad else min(last, n) - max(first, 0)))
    return sizes


# --- As called ------------------------------------------------------------------------------------------------------


def _end_padding(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """The padding at the end of a dim: more than at its start where `ceil_mode` lets a last window hang over."""
    if not ceil_mode:
        return padding
    span = n + 2 * padding - effective_size(kernel, dilation)
    steps = -(-span // stride)
    if steps * stride >= n + padding:  # a window may not lie in the padding alone
        steps -= 1
    return padding + max(steps * stride - span, 0)


@cached
def _plan(
    op: str, input: Spec, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any, dims: int = 2
) -> tuple[Windows, Pads]:
    """Checked windows and pads of a (n, c, h, w) input, for the arguments of an op over `dims` of its dims."""
    kernel = pair(kernel_size, op, "kernel_size", 1, dims)
    windows = Windows(
        kernel,
        kernel if stride is None or stride in ((), []) else pair(stride, op, "stride", 1, dims),
        pair(dilation, op, "dilation", 1, dims),
    )
    pads = pair(padding, op, "padding", 0, dims)
    if any(2 * p > k for p, k in zip(pads, kernel)):
        raise ShapeError(f"{op}(): padding {pads} is more than half of kernel_size {kernel}")
    h, w = input.shape[2:]
    if not h or not w:
        raise ShapeError(f"{op}(): no elements to pool in shape {tuple(input.shape)}")
    ends = [_end_padding(*each, bool(ceil_mode)) for each in zip((h, w), *windows[:2], pads, windows.dilation)]
    return windows, (pads[0], ends[0], pads[1], ends[1])


def window_sums(op: str, input: Tensor, kernel_size: Any, stride: Any, padding: Any, ceil_mode: Any) -> Tensor:
    """The sums of avg_pool2d's windows, for the op of that name. input: (n, c, h, w)."""
    return _sum_pool2d(input, *_plan(op, input.spec, kernel_size, stride, padding, 1, ceil_mode))


def _max_pool(input: Tensor, settings: tuple[Any, ...], return_indices: bool, dims: int) -> Any:
    """`settings`: kernel_size, stride, padding, dilation and ceil_mode as they were given."""
    op = f"max_pool{dims}d"
    if input.spec.dtype.category == BOOL:
        raise DTypeError(f"{op}(): cannot take bool; convert it first")
    x = as_images(input, dims, op)
    windows, pads = _plan(op, x.spec, *settings, dims)
    n, c, *image = x.spec.shape
    if windows.kernel == tuple(image) and not any(pads):  # the derivative would look for the largest again
        found = [from_images(reshape(v, n, c, 1, 1), input, dims) for v in largest(flatten(x, 2), -1)]
        return tuple(found) if return_indices else found[0]
    out = from_images(_max_pool2d(x, windows, pads), input, dims)
    if not return_indices:
        return out
    return out, from_images(_max_pool2d_indices(x.detach(), windows, pads), input, dims)


@public(method=False)
def max_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window: (n, c, h, w) or (c, h, w) -> the same with y * x windows. NaN wins.

    kernel_size: of the windows, an int or two; `dilation`: the steps between its elements. stride: the kernel's size by
    default. padding: at most half of the kernel, never the largest. ceil_mode: a last window may hang over the edge.
    return_indices: a (values, indices) pair, the indices (int64) into h * w. Where several are largest the first gets
    the gradient. Raises ShapeError for windows that do not fit, DTypeError for bool.
    """
    return _max_pool(input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices, 2)


@public(method=False)
def max_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest of each window: (n, c, w) or (c, w) -> (n, c, x). See max_pool2d, as which it raises."""
    return _max_pool(input, (kernel_size, stride, padding, dilation, ceil_mode), return_indices, 1)


def _avg_pool(input: Tensor, settings: tuple[Any, ...], include_pad: bool, divisor: Any, dims: int) -> Tensor:
    op = f"avg_pool{dims}d"
    whole = "trunc" if one_dtype(op, input.spec).category == INTEGER else None
    x = as_images(input, dims, op)
    windows, pads = _plan(op, x.spec, *settings, dims)
    if divisor is not None and as_int(divisor, op, "divisor_override") == 0:
        raise ShapeError(f"{op}(): divisor_override must not be 0")
    total = _sum_pool2d(upcast(x), windows, pads)
    (kh, kw), stride, _ = windows
    if divisor is not None or not any(pads) or (include_pad and pads[0] == pads[1] and pads[2] == pads[3]):
        count = kh * kw if divisor is None else divisor
        out = total if count == 1 else div(total, count, rounding_mode=whole)
    else:
        rows = window_sizes(x.spec.shape[2], total.spec.shape[2], kh, stride[0], pads[0], include_pad)
        columns = window_sizes(x.spec.shape[3], total.spec.shape[3], kw, stride[1], pads[2], include_pad)
        out = div(total, total.new_tensor(rows).unsqueeze(1) * total.new_tensor(columns), rounding_mode=whole)
    return from_images(out.to(input.dtype), input, dims)


@public(method=False)
def avg_pool2d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The average of each window: (n, c, h, w) or (c, h, w) -> the same with y * x windows.

    kernel_size: of the windows, an int or two. stride: the kernel's size by default. padding: zeros, at most half of
    the kernel, which are counted unless `count_include_pad` is False. ceil_mode: a last window may hang over the edge;
    what hangs over is never counted. divisor_override: what to divide the sums by instead. Integers are cut off. Raises
    ShapeError for windows that do not fit, DTypeError for bool.
    """
    return _avg_pool(input, (kernel_size, stride, padding, 1, ceil_mode), count_include_pad, divisor_override, 2)


@public(method=False)
def avg_pool1d(
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The average of each window: (n, c, w) or (c, w) -> (n, c, x). See avg_pool2d, as which it raises."""
    return _avg_pool(input, (kernel_size, stride, padding, 1, ceil_mode), count_include_pad, None, 1)


def adaptive_average(input: Tensor, output_size: Any, dims: int) -> Tensor:
    op = f"adaptive_avg_pool{dims}d"
    floating(op, input.spec)
    if input.spec.ndim not in (dims + 1, dims + 2):
        raise ShapeError(f"{op}(): expected {dims + 1} or {dims + 2} dims, got shape {tuple(input.spec.shape)}")
    requested = tuple(output_size) if isinstance(output_size, tuple | list) else (output_size,) * dims
    sizes = input.spec.shape[-dims:]
    if len(requested) != dims:
        raise ShapeError(f"{op}(): output_size must be an int or {dims}, got {output_size!r}")
    out_sizes = [n if m is None else as_int(m, op, "output_size") for n, m in zip(sizes, requested)]
    if min(out_sizes) < 0 or 0 in sizes:
        raise ShapeError(f"{op}(): cannot pool shape {tuple(input.spec.shape)} to {tuple(out_sizes)}")
    if all(m and n % m == 0 for n, m in zip(sizes, out_sizes)):
        if max(out_sizes) > 1 and (dims == 2 or (dims == 1 and sizes[0] < 8 * out_sizes[0])):
            _, kh, kw = (1, 1, *[n // m for n, m in zip(sizes, out_sizes)])[-3:]
            total = _sum_pool2d(upcast(as_images(input, dims, op)), Windows((kh, kw), (kh, kw), (1, 1)), (0, 0, 0, 0))
            return from_images((total / float(kh * kw)).to(input.dtype), input, dims)
        # Parts of one size: each becomes a dim of its own, and is averaged over.
        split = [k for n, m in zip(sizes, out_sizes) for k in (m, n // m)]
        lead = input.spec.shape[:-dims]
        sums = input.reshape((*lead, *split)).sum(
            [len(lead) + 2 * d + 1 for d in range(dims)], dtype=upcast(input).dtype
        )
        return like_images((sums / float(math.prod(split[1::2]))).to(input.dtype), input)
    out = upcast(input)
    for at, count in enumerate(out_sizes, input.spec.ndim - dims):
        if count != out.spec.shape[at]:
            near = parts(out.spec.shape[at], count, out.spec.dtype, out.spec.device)
            out = resampled(out, at, near)
    return like_images(out.to(input.dtype), input)


@public(method=False)
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Averages of y * x parts: (…, h, w) -> (…, y, x). Part i of y has rows from floor(i h / y) to ceil((i + 1) h / y).

    output_size: an int, or two, of which None keeps a size. Raises ShapeError unless input has 3 or 4 dims, DTypeError
    unless floating.
    """
    return adaptive_average(input, output_size, 2)


@public(method=False)
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Averages of x parts of the last dim: (…, w) -> (…, x). See adaptive_avg_pool2d, as which it raises."""
    return adaptive_average(input, output_size, 1)
