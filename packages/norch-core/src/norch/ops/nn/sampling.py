"""Values between the elements of images and volumes, at places that a grid names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from ...dispatch.arguments import check_functions
from ...dtype import int64
from ...errors import DTypeError, ShapeError
from ...spec import Spec
from ..creation import arange
from ..elementwise.arithmetic import where
from ..elementwise.special import fmod
from ..elementwise.weighted import addcmul
from ..families import composite, has_kernel, op_of
from ..indexing import scatter_add
from ..shape.joining import stack
from .embedding import embedding

if TYPE_CHECKING:
    from ...tensor import Tensor

Tap = tuple["Tensor", "Tensor", "Tensor"]
Taps = list[list[Tap]]
"""For each spatial dim its neighbours: their indices, their weights, and whether they lie inside; else these are 0."""

Sampler = Callable[..., "Tensor"]

_MANY_CHANNELS = 8


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """The values of `input` at the places of `grid`: (N, C, *in), (N, *out, dims) -> (N, C, *out), for 2 or 3 dims.

    A place is (x, y) or (x, y, z), -1 and 1 being the borders of input, or with `align_corners` the centres of its
    outermost elements. mode: "bilinear" (of volumes trilinear), "nearest" or, of images, "bicubic". padding_mode: what
    is outside: "zeros", "border" or "reflection". Raises ShapeError for shapes that do not fit, DTypeError unless both
    have one floating dtype, ValueError for another mode. After Jaderberg et al. (2015).
    """
    _check(input, grid, mode, padding_mode)
    if input.dtype.itemsize == 2:
        return grid_sample(input.float(), grid.float(), mode, padding_mode, align_corners).to(input.dtype)
    how = mode, padding_mode, bool(align_corners)
    if input.ndim == 4 and mode != "bicubic":
        return grid_sample2d(input, grid, *how)
    sample = grid_sample3d if input.ndim == 5 else grid_sample2d_bicubic
    # The parts have quicker gradients than a composite without a kernel.
    return (sample if has_kernel(op_of(sample), input.spec, grid.spec, *how) else sampled)(input, grid, *how)


def _check(input: Tensor, grid: Tensor, mode: str, padding_mode: str) -> None:
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"grid_sample(): mode must be 'bilinear', 'nearest' or 'bicubic', got {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample(): padding_mode must be 'zeros', 'border' or 'reflection', got {padding_mode!r}")
    shapes = f"got input {tuple(input.shape)} and grid {tuple(grid.shape)}"
    dims = input.ndim - 2
    if dims not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != dims or grid.shape[0] != input.shape[0]:
        raise ShapeError(f"grid_sample(): expected (N, C, *in) and (N, *out, dims) of 2 or 3 dims, {shapes}")
    if 0 in input.shape[2:]:
        raise ShapeError(f"grid_sample(): there is nothing to sample, {shapes}")
    if mode == "bicubic" and dims == 3:
        raise ShapeError(f"grid_sample(): mode 'bicubic' is for images, {shapes}")
    if input.dtype is not grid.dtype or not input.is_floating_point():
        raise DTypeError(f"grid_sample(): expected one floating dtype, got {input.dtype} and {grid.dtype}")


def sampled(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    """`grid_sample` of images or volumes, by gathering the neighbours of every place."""
    taps = _taps(grid, input.spec.shape[2:], mode, padding_mode, align_corners)
    return _gathered(input, taps).reshape(*input.spec.shape[:2], *grid.spec.shape[1:-1])


def _infer(input: Spec, grid: Spec, mode: str, padding_mode: str, align_corners: bool) -> Spec:
    return input.like((*input.shape[:2], *grid.shape[1:-1]))


def _infer_input_grad(
    grad: Spec, grid: Spec, shape: tuple[int, ...], mode: str, padding_mode: str, align_corners: bool
) -> Spec:
    return grad.like(shape)


def _infer_grid_grad(grad: Spec, input: Spec, grid: Spec, mode: str, padding_mode: str, align_corners: bool) -> Spec:
    return grid.like(tuple(grid.shape))


def _composites(name: str) -> tuple[Sampler, Sampler, Sampler]:
    """`grid_sample`, (n, c, *in), (n, *out, dims) -> (n, c, *out), and the gradients of the input, which has
    `shape`, and of the grid."""

    def input_rule(
        g: Tensor, input_spec: Spec, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
    ) -> Tensor:
        return input_grad(g, grid, tuple(input_spec.shape), mode, padding_mode, align_corners)

    def grid_rule(g: Tensor, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
        return grid_grad(g, input, grid, mode, padding_mode, align_corners)

    def grad_rule(g: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
        return sample(g, grid, mode, padding_mode, align_corners)

    def grads_grid_rule(
        g: Tensor, grad: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool
    ) -> Tensor:
        return grid_grad(grad, g, grid, mode, padding_mode, align_corners)

    sample: Sampler = composite(_infer, {"input": input_rule, "grid": grid_rule}, name=name)(sampled)
    rules: dict[str, Callable[..., Any]] = {"grad": grad_rule, "grid": grads_grid_rule}
    input_grad: Sampler = composite(_infer_input_grad, rules, name=f"{name}_input_grad")(_input_grad)
    grid_grad: Sampler = composite(_infer_grid_grad, name=f"{name}_grid_grad")(_grid_grad)
    made: tuple[Any, ...] = (sample, input_grad, grid_grad)
    for each in made:
        each.__name__ = each.__qualname__ = each.op.name
    return sample, input_grad, grid_grad


def _input_grad(
    grad: Tensor, grid: Tensor, shape: tuple[int, ...], mode: str, padding_mode: str, align_corners: bool
) -> Tensor:
    (n, c), sizes = shape[:2], shape[2:]
    values = grad.reshape(n, c, prod(grid.spec.shape[1:-1]))
    total = grad.new_zeros(n, c, prod(sizes))
    for corner in itertools.product(*_taps(grid, sizes, mode, padding_mode, align_corners)):
        index, weight, inside = (part.unsqueeze(1) for part in _joined(corner, sizes))
        given = where(inside, values, 0.0)
        total = scatter_add(total, 2, index.expand(values.spec.shape), given * weight)
    return total.reshape(shape)


def _grid_grad(grad: Tensor, input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    if mode == "nearest":
        return grid.new_zeros(grid.spec.shape)
    (n, c), sizes = input.spec.shape[:2], input.spec.shape[2:]
    count = prod(grid.spec.shape[1:-1])
    taps = _taps(grid, sizes, mode, padding_mode, align_corners)
    values = grad.reshape(n, c, count)
    parts = []
    for d in reversed(range(len(sizes))):
        number = grid[..., -1 - d].reshape(n, count)
        if mode == "bicubic":
            by = _cubic_changes(number, sizes[d], align_corners)
        else:
            slope = _slope(number.detach(), sizes[d], padding_mode, align_corners)
            by = [-slope, slope]
        changes = list(taps)
        changes[d] = [(i, where(inside, w, 0.0), inside) for (i, _, inside), w in zip(taps[d], by, strict=True)]
        parts.append((values * _gathered(input, changes)).sum(1))
    return stack(parts, -1).reshape(grid.spec.shape)


# Of bilinear and nearest ones, and apart from them of bicubic ones, for which few backends have kernels.
grid_sample2d, grid_sample2d_input_grad, grid_sample2d_grid_grad = _composites("grid_sample2d")
grid_sample3d, grid_sample3d_input_grad, grid_sample3d_grid_grad = _composites("grid_sample3d")
grid_sample2d_bicubic, grid_sample2d_bicubic_input_grad, grid_sample2d_bicubic_grid_grad = _composites(
    "grid_sample2d_bicubic"
)


def _slope(x: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """What a place in the input changes by with the grid's number."""
    x = _unnormalised(x, size, align)
    factor = (size - 1 if align else size) / 2
    slope = x.new_full(x.spec.shape, factor)
    if padding_mode == "zeros":
        return slope
    place = x
    if padding_mode == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if not span:
            return slope * 0
        away = x - low
        slope = where(away < 0, -slope, slope)
        slope = where((away.abs() / span).floor() % 2 != 0, -slope, slope)
        place = _reflected(x, low, span)
    return where((place > 0) & (place < size - 1.0), slope, 0.0)


def _taps(grid: Tensor, sizes: tuple[int, ...], mode: str, padding_mode: str, align: bool) -> Taps:
    count = prod(grid.spec.shape[1:-1])
    taps: Taps = []
    for d, n in enumerate(sizes):
        x = _unnormalised(grid[..., -1 - d].reshape(grid.spec.shape[0], count), n, align)
        if mode == "bicubic":
            taps.append([_tap(_padded(i, n, padding_mode, align), w, n) for i, w in _cubic(x)])
            continue
        x = _padded(x, n, padding_mode, align)
        first = x.detach().round() if mode == "nearest" else x.detach().floor()
        # Of the nearest one the weight is 1, whatever the place; its gradient is 0.
        near = [(first, x * 0 + 1)] if mode == "nearest" else [(first, 1 - (x - first)), (first + 1, x - first)]
        taps.append([_tap(i, w, n) for i, w in near])
    return taps


def _unnormalised(x: Tensor, size: int, align: bool) -> Tensor:
    return (x + 1) / 2 * (size - 1) if align else ((x + 1) * size - 1) / 2


def _padded(x: Tensor, size: int, padding_mode: str, align: bool) -> Tensor:
    """Places brought inside. What is moved to the border, or lies on it, has no gradient; NaN is 0."""
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        x = _reflected(x, 0.0, size - 1.0) if align else _reflected(x, -0.5, float(size))
    last = size - 1.0
    return where(x > 0, where(x < last, x, last), 0.0)


def _reflected(x: Tensor, low: float, span: float) -> Tensor:
    if not span:
        return x * 0
    away = x - low
    away = where(away < 0, -away, away)
    rest = fmod(away, span)
    odd = (away.detach() / span).floor() % 2 != 0
    return where(odd, span - rest, rest) + low


_KEYS = -0.75


def _cubic(x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The four neighbours of each place and their weights (Keys, 1981, with a = -0.75)."""
    a, first = _KEYS, x.detach().floor()
    t = x - first

    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    return [(first + i - 1, w) for i, w in enumerate(weights)]


def _cubic_changes(number: Tensor, size: int, align: bool) -> list[Tensor]:
    """What the weights of `_cubic` change by with the grid's number."""
    a, x, factor = _KEYS, _unnormalised(number, size, align), (size - 1 if align else size) / 2
    t = x - x.detach().floor()

    def near(d: Tensor) -> Tensor:
        return (3 * (a + 2) * d - 2 * (a + 3)) * d * factor

    def far(d: Tensor) -> Tensor:
        return ((3 * a * d - 10 * a) * d + 8 * a) * factor

    return [far(t + 1), near(t), -near(1 - t), -far(2 - t)]


def _tap(index: Tensor, weight: Tensor, size: int) -> Tap:
    inside = (index >= 0) & (index <= size - 1)
    return where(inside, index, 0.0).to(int64), where(inside, weight, 0.0), inside


def _joined(corner: tuple[Tap, ...], sizes: tuple[int, ...]) -> Tap:
    """One neighbour of each place: its index among the elements, its weight, and whether it lies inside."""
    index, weight, inside = corner[0]
    for size, (i, w, a) in zip(sizes[1:], corner[1:], strict=True):
        index, weight, inside = index * size + i, weight * w, inside & a
    return index, weight, inside


def _gathered(input: Tensor, taps: Taps) -> Tensor:
    """(N, C, places): the sums of elements, of many channels as rows of a table, of few one by one."""
    n, c = input.spec.shape[:2]
    flat = input.reshape(n, c, prod(input.spec.shape[2:]))
    count, as_rows = flat.spec.shape[2], c >= _MANY_CHANNELS
    table = flat.transpose(1, 2).reshape(n * count, c) if as_rows else flat
    first = arange(n, device=input.device).unsqueeze(1) * count
    total: Tensor | None = None
    for corner in itertools.product(*taps):
        index, weight, inside = _joined(corner, input.spec.shape[2:])
        weight, inside = (part.unsqueeze(-1 if as_rows else 1) for part in (weight, inside))
        if as_rows:
            values = embedding(index + first, table)
        else:
            values = table.gather(2, index.unsqueeze(1).expand(-1, c, -1))
        values = where(inside, values, 0.0)
        total = values * weight if total is None else addcmul(total, values, weight)
    assert total is not None
    return total.transpose(1, 2) if as_rows else total


check_functions(globals())
