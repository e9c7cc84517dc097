"""Sliding windows: what convolution and pooling share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import ShapeError
from ...spec import Spec, as_int
from ..copying import write
from ..creation import fill_spec
from ..shape.strided import as_strided_view
from ..shape.views import slice_dim

if TYPE_CHECKING:
    from ...tensor import Tensor

Pair = tuple[int, int]
Pads = tuple[int, int, int, int]
"""Elements before and after in the last dim but one, then in the last."""


class Windows(NamedTuple):
    """Windows of `kernel` elements, `dilation` apart, that move over the last two dims in steps of `stride`."""

    kernel: Pair
    stride: Pair
    dilation: Pair


def pair(value: Any, op: str, what: str, least: int) -> Pair:
    """One int for both dims, or one for each. Raises ShapeError below `least`."""
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(values) not in (1, 2):
        raise ShapeError(f"{op}(): {what} must be one int or two, got {value!r}")
    ints = tuple(as_int(v, op, what) for v in values)
    if min(ints) < least:
        raise ShapeError(f"{op}(): {what} must be at least {least}, got {value!r}")
    return ints[0], ints[-1]


def planned(plan: Any, specs: tuple[Any, ...], how: tuple[Any, ...]) -> Any:
    """`plan(*specs, *how)`, a function with a cache, for parameters of which some may be lists."""
    try:
        return plan(*specs, *how)
    except TypeError:
        if not any(isinstance(v, list) for v in how):
            raise
    return plan(*specs, *[tuple(v) if isinstance(v, list) else v for v in how])


def reach(kernel: int, dilation: int) -> int:
    """How many elements lie from a window's first to its last."""
    return dilation * (kernel - 1) + 1


def padded(input: Tensor, pads: Pads, value: float) -> Tensor:
    """`input` with `value` around its last two dims, cut off where a pad is negative."""
    top, bottom, left, right = pads
    h, w = input.spec.shape[-2:]
    if top > 0 or bottom > 0 or left > 0 or right > 0:
        shape = (*input.spec.shape[:-2], max(top, 0) + h + max(bottom, 0), max(left, 0) + w + max(right, 0))
        out = fill_spec(input.spec.like(shape), value)
        inner = cropped(out, (max(top, 0), 0, max(left, 0), 0), (h, w))
        if input.requires_grad:
            inner.copy_(input)
        else:
            write(inner, input)
        input = out
    if min(pads) < 0:
        at = (max(-top, 0), 0, max(-left, 0), 0)
        input = cropped(input, at, (h + top + bottom, w + left + right))
    return input


def cropped(input: Tensor, pads: Pads, size: Pair) -> Tensor:
    """A view of `size` of the last two dims, without the pads before it."""
    ndim = input.spec.ndim
    if tuple(input.spec.shape[-2:]) == size:
        return input
    rows = slice_dim(input, ndim - 2, pads[0], size[0])
    return slice_dim(rows, ndim - 1, pads[2], size[1])


def counts(shape: Pair, pads: Pads, windows: Windows, op: str) -> Pair:
    """How many windows fit in each of the two dims. Raises ShapeError where none does."""
    found = []
    for n, before, after, k, s, d in zip(shape, pads[::2], pads[1::2], *windows):
        room = n + before + after - reach(k, d)
        if room < 0:
            raise ShapeError(
                f"{op}(): windows of {windows.kernel} with dilation {windows.dilation} do not fit {tuple(shape)} "
                f"padded by {pads}"
            )
        found.append(room // s + 1)
    return found[0], found[1]


def show(input: Tensor, count: Pair, windows: Windows, order: str, groups: int = 1) -> Tensor:
    """A view of all windows of a (n, c, h, w) tensor, its dims in the order of the letters of `order`.

    n: batch. g: group of channels, c: channel within it. y, x: the window. i, j: the element within the window.
    """
    spec = input.spec
    (n, c, _, _), (sn, sc, sy, sx) = spec.shape, spec.strides
    (kh, kw), (step_y, step_x), (dy, dx) = windows
    sizes = {"n": n, "g": groups, "c": c // groups, "y": count[0], "x": count[1], "i": kh, "j": kw}
    strides = {
        "n": sn,
        "g": sc * (c // groups),
        "c": sc,
        "y": sy * step_y,
        "x": sx * step_x,
        "i": sy * dy,
        "j": sx * dx,
    }
    return as_strided_view(input, tuple(sizes[o] for o in order), tuple(strides[o] for o in order), 0)


def added(parts: Any, spec: Spec, pads: Pads, count: Pair, windows: Windows) -> Tensor:
    """The sum of windows back in their places: (n, c, h, w) as `spec`. `parts(i, j)` has element (i, j) of each."""
    (n, c, h, w), (kernel, stride, dilation) = spec.shape, windows
    rows, columns = (max(size + a + b, 0) for size, a, b in ((h, *pads[:2]), (w, *pads[2:])))
    out = fill_spec(spec.like((n, c, rows, columns)), 0)
    for i in range(kernel[0]):
        lines = slice_dim(out, 2, i * dilation[0], count[0], stride[0])
        for j in range(kernel[1]):
            slice_dim(lines, 3, j * dilation[1], count[1], stride[1]).add_(parts(i, j))
    return padded(out, (-pads[0], -pads[1], -pads[2], -pads[3]), 0)
