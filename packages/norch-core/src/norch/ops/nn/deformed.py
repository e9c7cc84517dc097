"""Windows whose elements lie where an offset moves them to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...dispatch.arguments import check_functions
from ...dtype import float32, float64
from ...errors import DTypeError, ShapeError
from ...spec import Spec
from ..creation import arange
from ..families import composite
from ..shape.joining import stack
from ..shape.padding import pad
from .sampling import grid_sample
from .windows import Pair, Windows, output_size, pair

if TYPE_CHECKING:
    from ...tensor import Tensor


def deform_columns(
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> Tensor:
    """`im2col` whose elements lie where `offset` moves them to, between pixels, and are 0 beyond the edges.

    input: (n, c, h, w) -> (n, c * i * j, y * x). offset: (n, 2 * parts * i * j, y, x), down and right for each of a
    window's elements in turn; each part is for its share of the channels. mask: (n, parts * i * j, y, x), what the
    elements are multiplied by. kernel_size (i, j), stride, padding, dilation: two ints each. 16-bit floats are computed
    in float32. Raises ShapeError where shapes do not fit, DTypeError unless all are floating. After Dai et al. (2017).
    """
    kernel, steps = pair(kernel_size, "deform_columns", "kernel_size", 1), pair(stride, "deform_columns", "stride", 1)
    around, gaps = pair(padding, "deform_columns", "padding", 0), pair(dilation, "deform_columns", "dilation", 1)
    places = kernel[0] * kernel[1]
    given = [x for x in (input, offset, mask) if x is not None]
    if not all(x.is_floating_point() for x in given):
        raise DTypeError(f"deform_columns(): expected floating dtypes, got {', '.join(str(x.dtype) for x in given)}")
    size = _size(tuple(input.shape), kernel, steps, around, gaps)
    batch, channels = tuple(input.shape)[:2]
    parts = offset.shape[1] // (2 * places) if offset.ndim == 4 else 0
    shapes = [tuple(x.shape) for x in given]
    wanted = [shapes[0], (batch, 2 * parts * places, *size), (batch, parts * places, *size)]
    if not parts or channels % parts or shapes != wanted[: len(shapes)]:
        raise ShapeError(
            f"deform_columns(): input, offset and mask {shapes} do not fit windows of {kernel}, {size} of them"
        )
    wide = float64 if input.dtype is float64 else float32
    image, moves = input.to(wide), offset.to(wide)
    factors = None if mask is None else mask.to(wide)
    found = _deform_columns(image, moves, factors, kernel, steps, around, gaps)
    return found.to(input.dtype)


def _size(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    if len(shape) != 4:
        raise ShapeError(f"deform_columns(): expected input (n, c, h, w), got {shape}")
    pads = padding[0], padding[0], padding[1], padding[1]
    return output_size((shape[2], shape[3]), pads, Windows(kernel, stride, dilation), "deform_columns")


def _infer(
    input: Spec, offset: Spec, mask: Spec | None, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Spec:
    return input.like((input.shape[0], input.shape[1] * kernel[0] * kernel[1], offset.shape[2] * offset.shape[3]))


@composite(_infer, name="deform_columns")
def _deform_columns(
    input: Tensor, offset: Tensor, mask: Tensor | None, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    (batch, channels, height, width), size = input.spec.shape, offset.spec.shape[2:]
    places = kernel[0] * kernel[1]
    parts = offset.spec.shape[1] // (2 * places)
    numbers = partial(arange, dtype=input.dtype, device=input.device)
    y, x = offset.reshape(batch * parts, places, 2, *size).unbind(2)
    rows, columns = (numbers(k) * d for k, d in zip(kernel, dilation, strict=True))
    down, right = (numbers(n) * s - a for n, s, a in zip(size, stride, padding, strict=True))
    y = y + rows.repeat_interleave(kernel[1]).view(-1, 1, 1) + down.view(-1, 1)
    x = x + columns.repeat(kernel[0]).view(-1, 1, 1) + right
    values = _between(input.reshape(batch * parts, channels // parts, height, width), y.flatten(1), x.flatten(1))
    if mask is not None:
        values = values * mask.reshape(batch * parts, 1, -1)
    return values.reshape(batch, channels * places, size[0] * size[1])


def _between(input: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """The values of (n, c, h, w) at the places y, x (n, l) between pixels: (n, c, l)."""
    # Of sizes that are a power of two and one, the grid's numbers are exact for whole places, where the side decides
    # the derivative.
    rest, numbers = [], []
    for size, place in zip(reversed(input.spec.shape[2:]), (x, y), strict=True):
        span = 1 << max(size - 2, 0).bit_length()
        rest += [0, span + 1 - size]
        numbers.append(place * (2 / span) - 1)
    grid = stack(numbers, -1).unsqueeze(1)
    return grid_sample(pad(input, rest), grid, align_corners=True).squeeze(2)


check_functions(globals())
