"""Sliding windows: what convolution and pooling share. `window_view` shows all, `add_windows` adds them up again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ...errors import ShapeError
from ...spec import Spec, as_int
from ...tensor_base import TakenOver
from ..copying import write
from ..creation import fill_spec
from ..shape.strided import as_strided_view
from ..shape.views import slice_dim

if TYPE_CHECKING:
    from ...tensor import Tensor

R = TypeVar("R")
Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Elements before and after in the last dim but one, then in the last."""


class Windows(NamedTuple):
    """Windows of `kernel` elements, `dilation` apart, that move over the last two dims in steps of `stride`."""

    kernel: Pair
    stride: Pair
    dilation: Pair


def pair(value: Any, op: str, what: str, least: int, dims: int = 2) -> Pair:
    """One int for both dims, or one for each; for a 1-D op one int, for its only dim, and `least` for the other.

    Raises ShapeError below `least` and for another number of ints, DTypeError for what is no int.
    """
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(values) not in (1, dims):
        raise ShapeError(f"{op}(): {what} must be one int{' or two' if dims == 2 else ''}, got {value!r}")
    ints = tuple(as_int(v, op, what) for v in values)
    if min(ints) < least:
        raise ShapeError(f"{op}(): {what} must be at least {least}, got {value!r}")
    return ints[0] if dims == 2 else least, ints[-1]


def cached(function: Callable[..., R]) -> Callable[..., R]:
    """`lru_cache` for a function of which some arguments may be lists, or specs that nothing is remembered by."""
    remembered = lru_cache(512, typed=True)(function)

    @wraps(function)
    def call(*args: Any) -> R:
        try:
            return remembered(*args)
        except TakenOver:
            return function(*args)
        except TypeError:
            if not any(isinstance(v, list) for v in args):
                raise
        return remembered(*[tuple(v) if isinstance(v, list) else v for v in args])

    return call


def as_images(input: Tensor, dims: int, op: str) -> Tensor:
    """`input` as (n, c, h, w): without a batch n is 1, for a 1-D op h is 1. Raises ShapeError for other dims."""
    if input.spec.ndim not in (dims + 1, dims + 2):
        raise ShapeError(f"{op}(): expected {dims + 1} or {dims + 2} dims, got shape {tuple(input.spec.shape)}")
    x = input if input.spec.ndim == dims + 2 else input.unsqueeze(0)
    return x if dims == 2 else x.unsqueeze(2)


def from_images(out: Tensor, input: Tensor, dims: int) -> Tensor:
    """Undoes `as_images` of `input` for the op's result."""
    out = out if dims == 2 else out.squeeze(2)
    return out if input.spec.ndim == dims + 2 else out.squeeze(0)


def effective_size(kernel: int, dilation: int) -> int:
    """The size of a dilated kernel: how many elements lie from its first to its last."""
    return dilation * (kernel - 1) + 1


def output_size(shape: Pair, pads: Pads, windows: Windows, op: str) -> Pair:
    """How many windows fit in each of the two dims. Raises ShapeError where none does."""
    sizes = []
    for n, before, after, k, s, d in zip(shape, pads[::2], pads[1::2], *windows):
        span = n + before + after - effective_size(k, d)
        if span < 0:
            raise ShapeError(
                f"{op}(): windows of {windows.kernel} with dilation {windows.dilation} do not fit {tuple(shape)} "
                f"padded by {pads}"
            )
        sizes.append(span // s + 1)
    return sizes[0], sizes[1]


def pad2d(input: Tensor, pads: Pads, value: float) -> Tensor:
    """`input` with `value` around its last two dims, cropped where a pad is negative."""
    top, bottom, left, right = pads
    h, w = input.spec.shape[-2:]
    if max(pads) > 0:
        shape = (*input.spec.shape[:-2], max(top, 0) + h + max(bottom, 0), max(left, 0) + w + max(right, 0))
        out = fill_spec(input.spec.like(shape), value)
        inner = crop(out, (max(top, 0), max(left, 0)), (h, w))
        inner.copy_(input) if input.requires_grad else write(inner, input)
        input = out
    if min(pads) < 0:
        input = crop(input, (max(-top, 0), max(-left, 0)), (h + top + bottom, w + left + right))
    return input


def crop(input: Tensor, start: Pair, size: Pair) -> Tensor:
    """A view of `size` elements of the last two dims, from `start`."""
    ndim = input.spec.ndim
    if tuple(input.spec.shape[-2:]) == size:
        return input
    return slice_dim(slice_dim(input, ndim - 2, start[0], size[0]), ndim - 1, start[1], size[1])


def window_view(input: Tensor, size: Pair, windows: Windows, order: str, groups: int = 1) -> Tensor:
    """All windows of a (n, c, h, w) tensor, `size` of them, as a view whose dims are in the order of `order`'s letters.

    n: batch. g: group of channels, c: channel within it. y, x: the window. i, j: the element within the window.
    """
    (n, c, _, _), (sn, sc, sy, sx) = input.spec.shape, input.spec.strides
    (kh, kw), (step_y, step_x), (dy, dx) = windows
    dims = {
        "n": (n, sn),
        "g": (groups, sc * (c // groups)),
        "c": (c // groups, sc),
        "y": (size[0], sy * step_y),
        "x": (size[1], sx * step_x),
        "i": (kh, sy * dy),
        "j": (kw, sx * dx),
    }
    return as_strided_view(input, tuple(dims[o][0] for o in order), tuple(dims[o][1] for o in order), 0)


def add_windows(columns: Callable[[int, int], Tensor], spec: Spec, pads: Pads, size: Pair, windows: Windows) -> Tensor:
    """The sum of `size` windows where each lies: (n, c, h, w) as `spec`. `columns(i, j)` has element (i, j) of each."""
    (n, c, h, w), (kernel, stride, dilation) = spec.shape, windows
    rows, width = (max(n + a + b, 0) for n, a, b in ((h, *pads[:2]), (w, *pads[2:])))
    out = fill_spec(spec.like((n, c, rows, width)), 0)
    for i in range(kernel[0]):
        row_view = slice_dim(out, 2, i * dilation[0], size[0], stride[0])
        for j in range(kernel[1]):
            slice_dim(row_view, 3, j * dilation[1], size[1], stride[1]).add_(columns(i, j))
    return pad2d(out, (-pads[0], -pads[1], -pads[2], -pads[3]), 0)
