"""Windows whose elements lie where an offset moves them to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...dispatch.arguments import check_functions
from ...dtype import float32, float64
from ...errors import DTypeError, ShapeError
from ...spec import Spec
from ..creation import arange
from ..families import composite, has_kernel, op_of
from ..shape.joining import stack
from ..shape.padding import pad
from .sampling import grid_sample2d, grid_sample2d_grid_grad, grid_sample2d_input_grad
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
    how = kernel, steps, around, gaps
    specs = [None if x is None else x.spec for x in (image, moves, factors)]
    # The parts keep what their gradients need, which a composite without a kernel would compute again.
    columns = _deform_columns if has_kernel(op_of(_deform_columns), *specs, *how) else _columns
    return columns(image, moves, factors, *how).to(input.dtype)


def _size(shape: tuple[int, ...], kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> Pair:
    if len(shape) != 4:
        raise ShapeError(f"deform_columns(): expected input (n, c, h, w), got {shape}")
    pads = padding[0], padding[0], padding[1], padding[1]
    return output_size((shape[2], shape[3]), pads, Windows(kernel, stride, dilation), "deform_columns")


def _infer(
    input: Spec, offset: Spec, mask: Spec | None, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Spec:
    return input.like((input.shape[0], input.shape[1] * kernel[0] * kernel[1], offset.shape[2] * offset.shape[3]))


def _columns(
    input: Tensor, offset: Tensor, mask: Tensor | None, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Tensor:
    grid, rest, _ = _grid(input.spec, offset, kernel, stride, padding, dilation)
    values = grid_sample2d(pad(_by_parts(input, grid), rest), grid, *_HOW)
    if mask is not None:
        values = values * mask.reshape(grid.spec.shape[0], 1, 1, -1)
    return values.reshape(input.spec.shape[0], -1, offset.spec.shape[2] * offset.spec.shape[3])


_HOW = "bilinear", "zeros", True


def _by_parts(input: Tensor, grid: Tensor) -> Tensor:
    """(n, c, ...) as one image for each part, of its share of the channels."""
    count = grid.spec.shape[0]
    return input.reshape(count, input.spec.shape[0] * input.spec.shape[1] // count, *input.spec.shape[2:])


def _grid(
    input: Spec, offset: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> tuple[Tensor, list[int], tuple[float, float]]:
    """The places of the columns as `grid_sample` takes them, (n * parts, 1, i * j * y * x, 2), how the images are to be
    padded, and what the grid's numbers change by with the places.

    Of sizes that are a power of two and one, these numbers are exact for whole places, where the side decides the
    derivative.
    """
    numbers = partial(arange, dtype=offset.dtype, device=offset.device)
    count, size = kernel[0] * kernel[1], offset.spec.shape[2:]
    y, x = offset.reshape(-1, count, 2, *size).unbind(2)
    rows, columns = (numbers(k) * d for k, d in zip(kernel, dilation, strict=True))
    down, right = (numbers(n) * s - a for n, s, a in zip(size, stride, padding, strict=True))
    y = y + rows.repeat_interleave(kernel[1]).view(-1, 1, 1) + down.view(-1, 1)
    x = x + columns.repeat(kernel[0]).view(-1, 1, 1) + right
    spans = [1 << max(n - 2, 0).bit_length() for n in input.shape[2:]]
    rest = [0, spans[1] + 1 - input.shape[3], 0, spans[0] + 1 - input.shape[2]]
    slopes = 2 / spans[1], 2 / spans[0]
    places = [place.flatten(1) * slope - 1 for place, slope in zip((x, y), slopes, strict=True)]
    return stack(places, -1).unsqueeze(1), rest, slopes


def _input_grad(grad: Tensor, input: Spec, offset: Tensor, mask: Tensor | None, *how: Pair) -> Tensor:
    grid, rest, _ = _grid(input, offset, *how)
    given = grad.reshape(grid.spec.shape[0], -1, 1, grid.spec.shape[2])
    if mask is not None:
        given = given * mask.reshape(grid.spec.shape[0], 1, 1, -1)
    height, width = input.shape[2:]
    shape = *given.spec.shape[:2], height + rest[3], width + rest[1]
    found = grid_sample2d_input_grad(given, grid, tuple(shape), *_HOW)
    return found[:, :, :height, :width].reshape(input.shape)


def _infer_moved_grad(
    grad: Spec, input: Spec, offset: Spec, mask: Spec | None, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair
) -> Any:
    return offset.like() if mask is None else (offset.like(), mask.like())


@composite(_infer_moved_grad, name="deform_columns_offset_grad")
def _offset_grad(
    grad: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
) -> Any:
    """The gradients of the offset and, if there is one, of the mask."""
    grid, rest, slopes = _grid(input.spec, offset, kernel, stride, padding, dilation)
    images, given = pad(_by_parts(input, grid), rest), grad.reshape(grid.spec.shape[0], -1, 1, grid.spec.shape[2])
    by_mask = None
    if mask is not None:
        by_mask = (given * grid_sample2d(images, grid, *_HOW)).sum(1).reshape(mask.spec.shape)
        given = given * mask.reshape(grid.spec.shape[0], 1, 1, -1)
    x, y = grid_sample2d_grid_grad(given, images, grid, *_HOW).unbind(-1)
    places, size = kernel[0] * kernel[1], offset.spec.shape[2:]
    moves = [part.reshape(-1, places, *size) * slope for part, slope in zip((y, x), reversed(slopes), strict=True)]
    by_offset = stack(moves, 2).reshape(offset.spec.shape)
    return by_offset if by_mask is None else (by_offset, by_mask)


def _rule(
    g: Tensor,
    input: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    kernel: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    needs: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    how = kernel, stride, padding, dilation
    by_input = _input_grad(g, input.spec, offset, mask, *how) if needs[0] else None
    if not (needs[1] or needs[2]):
        return by_input, None, None
    found: Any = _offset_grad(g, input, offset, mask, *how)
    return (by_input, found, None) if mask is None else (by_input, *found)


_deform_columns = composite(_infer, _rule, name="deform_columns", joint=True)(_columns)


check_functions(globals())
