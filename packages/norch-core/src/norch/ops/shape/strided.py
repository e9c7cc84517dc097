"""as_strided, the view that all others are cases of, and unfold, which needs its gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...autograd.accumulate import shared_ops
from ...errors import ShapeError
from ...spec import Shape, Spec, as_int, as_shape, span, wrap_dim
from ...tensor_base import TakenOver
from ..copying import contiguous, write
from ..creation import arange, fill_spec
from ..families import composite, view
from ..registry import method, public
from .views import narrow, slice_dim

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_strided(spec: Spec, shape: Shape, strides: Shape, shift: int) -> tuple[Spec, int]:
    return spec.like(shape, strides), shift


def _strided_vjp(g: Tensor, x_spec: Spec, shape: Shape, strides: Shape, shift: int) -> Tensor:
    # The gradient is laid out as x was, so that the same strides show in it what they showed in x.
    start, at = max(-shift, 0), max(shift, 0)
    total = max(start + span(x_spec.shape, x_spec.strides), at + span(shape, strides))
    zeros = fill_spec(g.spec.like((total,)), 0)
    if g.spec.like(shape, strides).overlaps:
        from ..indexing import scatter_add

        places = as_strided_view(arange(total, device=g.device), shape, strides, at)
        zeros = scatter_add(zeros, 0, places.reshape(-1), g.reshape(-1))
    else:
        part = as_strided_view(zeros, shape, strides, at)
        part.copy_(g) if g.requires_grad else write(part, g)
    if x_spec.overlaps:  # each element of x gets an equal share of what it has in common with others
        from ..indexing import scatter_add

        places = as_strided_view(arange(total, device=g.device), x_spec.shape, x_spec.strides, start).reshape(-1)
        shares = scatter_add(zeros.new_zeros(total), 0, places, zeros.new_ones(x_spec.numel))
        zeros = zeros / shares.clamp(1)
    return as_strided_view(zeros, x_spec.shape, x_spec.strides, start)


STRIDED = shared_ops["as_strided"] = view(
    "as_strided", "x shape strides shift", _infer_strided, _strided_vjp, place="shift"
)


def _infer_unfold(spec: Spec, dim: Any, size: Any, step: Any) -> tuple[Spec, int]:
    at, shape, strides = wrap_dim(dim, spec.ndim, "unfold"), spec.shape, spec.strides
    width, apart = as_int(size, "unfold", "size"), as_int(step, "unfold", "step")
    if not 0 <= width <= shape[at] or apart < 1:
        raise ShapeError(f"unfold(): no windows of {size}, {step} apart, in dim {dim} of shape {tuple(shape)}")
    count = (shape[at] - width) // apart + 1
    new_strides = (*strides[:at], strides[at] * apart, *strides[at + 1 :], strides[at])
    return spec.like((*shape[:at], count, *shape[at + 1 :], width), new_strides), 0


def _unfold_vjp(g: Tensor, x_spec: Spec, dim: int, size: int, step: int) -> Tensor:
    at = wrap_dim(dim, x_spec.ndim, "unfold")
    return sum_windows(g, at, step, x_spec.shape[at])


UNFOLD = view("unfold", "x dim size step", _infer_unfold, _unfold_vjp)


def as_strided_view(input: Tensor, shape: Shape, strides: Shape, shift: int) -> Tensor:
    """`as_strided` with an offset relative to input's, unchecked."""
    return STRIDED.call(input, shape, strides, shift, shift)


@public()
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of input's buffer with any `size`, `stride` and `storage_offset` (in elements).

    Raises ShapeError for negative strides, or where the view would leave the buffer.
    """
    shape, strides = as_shape(size, "as_strided"), tuple(as_int(s, "as_strided", "stride") for s in stride)
    offset = input.offset if storage_offset is None else as_int(storage_offset, "as_strided", "storage_offset")
    try:
        available = input.buffer.nbytes // input.spec.dtype.itemsize
    except TakenOver:  # one sample, whose memory is that of all: the rule of this view looks there
        available = offset + span(shape, strides)
    if len(shape) != len(strides) or min(strides, default=0) < 0 or offset < 0:
        raise ShapeError(
            f"as_strided(): size {shape} needs as many strides, none negative; got {strides} from {offset}"
        )
    if 0 not in shape and offset + span(shape, strides) > available:
        raise ShapeError(
            f"as_strided(): size {shape} with strides {strides} from {offset} leaves the buffer of {available} elements"
        )
    return as_strided_view(input, shape, strides, offset - input.offset)


@method()
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of all windows of `size` along `dimension`, `step` apart; the window's elements become the last dim."""
    if not input.spec.ndim:
        wrap_dim(dimension, 0, "unfold")
        return unfold(input.unsqueeze(0), 0, size, step).reshape(size)
    return UNFOLD.call(input, dimension, size, step)


def _infer_sum_windows(windows: Spec, dim: int, step: int, size: int) -> Spec:
    return windows.like((*windows.shape[:dim], size, *windows.shape[dim + 1 : -1]))


def _sum_windows_vjp(g: Tensor, windows_spec: Spec, dim: int, step: int) -> Tensor:
    return unfold(g, dim, windows_spec.shape[-1], step)


@composite(_infer_sum_windows, _sum_windows_vjp)
def sum_windows(windows: Tensor, dim: int, step: int, size: int) -> Tensor:
    """The sums, in `size` elements along `dim`, of windows that lie `step` apart there: what `unfold` makes of its
    gradient.
    """
    out = fill_spec(_infer_sum_windows(windows.spec, dim, step, size), 0)
    windows = contiguous(windows)  # most elements are read together with others of their windows
    count, width = windows.spec.shape[dim], windows.spec.shape[-1]
    apart = -(-width // step)  # so many windows on, they do not touch
    for first in range(min(apart, count)):
        part = unfold(narrow(out, dim, first * step, size - first * step), dim, width, apart * step)
        part.add_(slice_dim(windows, dim, first, -(-(count - first) // apart), apart))
    return out
