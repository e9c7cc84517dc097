"""Channels and pixels exchanged: reshapes of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.arguments import check_functions
from ...errors import ShapeError
from ...spec import Spec, as_int, is_channels_last
from ..copying import like_images, row_major_copy
from ..families import composite

if TYPE_CHECKING:
    from ...tensor import Tensor


def _check(op: str, input: Tensor, min_ndim: int, factor: int, what: str) -> tuple[tuple[int, ...], int]:
    shape, n = tuple(input.spec.shape), as_int(factor, op, what)
    if len(shape) < min_ndim or n < 1:
        raise ShapeError(f"{op}(): expected at least {min_ndim} dims and a positive {what}, got {shape} and {factor}")
    return shape, n


def _infer_shuffled(input: Spec, factor: int) -> Spec:
    *lead, c, h, w = input.shape
    return input.like((*lead, c // (factor * factor), h * factor, w * factor))


def _infer_unshuffled(input: Spec, factor: int) -> Spec:
    *lead, c, h, w = input.shape
    return input.like((*lead, c * factor * factor, h // factor, w // factor))


def _shuffled_rule(g: Tensor, factor: int) -> Tensor:
    return _pixel_unshuffle(g, factor)


@composite(_infer_shuffled, _shuffled_rule, name="pixel_shuffle")
def _pixel_shuffle(input: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = input.spec.shape
    blocks = input.reshape(-1, c // (factor * factor), factor, factor, h, w).permute(0, 1, 4, 2, 5, 3)
    return row_major_copy(blocks).reshape((*lead, c // (factor * factor), h * factor, w * factor))


def _unshuffled_rule(g: Tensor, factor: int) -> Tensor:
    return _pixel_shuffle(g, factor)


@composite(_infer_unshuffled, _unshuffled_rule, name="pixel_unshuffle")
def _pixel_unshuffle(input: Tensor, factor: int) -> Tensor:
    *lead, c, h, w = input.spec.shape
    blocks = input.reshape(-1, c, h // factor, factor, w // factor, factor).permute(0, 1, 3, 5, 2, 4)
    return row_major_copy(blocks).reshape((*lead, c * factor * factor, h // factor, w // factor))


def _rows_of_pixels(input: Tensor) -> Tensor | None:
    """(n, h, w, c) of images whose channels lie next to each other, else None."""
    spec = input.spec
    if type(spec) is not Spec or spec.ndim != 4 or spec.is_contiguous or not is_channels_last(spec):
        return None
    rows: Tensor = input.permute((0, 2, 3, 1))
    return rows if rows.spec.is_contiguous else None


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Groups of channels laid out as pixels (Shi et al., 2016): (*, c * r * r, h, w) -> (*, c, h * r, w * r), r being
    `upscale_factor`.

    Raises ShapeError where r * r does not divide the channels, DTypeError for an r that is no int.
    """
    shape, r = _check("pixel_shuffle", input, 3, upscale_factor, "upscale_factor")
    lead, (c, h, w) = shape[:-3], shape[-3:]
    if c % (r * r):
        raise ShapeError(f"pixel_shuffle(): {c} channels of {shape} cannot be divided by {r} * {r}")
    if not input.spec.numel:
        return row_major_copy(input).reshape((*lead, c // (r * r), h * r, w * r))
    rows = _rows_of_pixels(input)
    if rows is None:
        return like_images(_pixel_shuffle(input, r), input)
    n, c = lead[0], c // (r * r)
    # Small transposes, then runs of channels moved, take a third of what one copy of both takes.
    blocks = row_major_copy(rows.reshape((n, h, w, c, r * r)).transpose(3, 4)).reshape((n, h, w, r, r, c))
    return row_major_copy(blocks.transpose(2, 3)).reshape((n, h * r, w * r, c)).permute((0, 3, 1, 2))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Undoes pixel_shuffle, r being `downscale_factor`: (*, c, h * r, w * r) -> (*, c * r * r, h, w). ShapeError where
    r is no divisor.
    """
    shape, r = _check("pixel_unshuffle", input, 3, downscale_factor, "downscale_factor")
    lead, (c, h, w) = shape[:-3], shape[-3:]
    if h % r or w % r:
        raise ShapeError(f"pixel_unshuffle(): height and width of {shape} cannot be divided by {r}")
    if not input.spec.numel:
        return row_major_copy(input).reshape((*lead, c * r * r, h // r, w // r))
    rows = _rows_of_pixels(input)
    if rows is None:
        return like_images(_pixel_unshuffle(input, r), input)
    n, h, w = lead[0], h // r, w // r
    blocks = row_major_copy(rows.reshape((n, h, r, w, r, c)).transpose(2, 3)).reshape((n, h, w, r * r, c))
    return row_major_copy(blocks.transpose(3, 4)).reshape((n, h, w, c * r * r)).permute((0, 3, 1, 2))


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels, dim 1, interleaved: the first of each of `groups` groups, then the second (Zhang et al., 2018).

    Shape kept. Raises ShapeError where the groups do not divide the channels, DTypeError for groups that are no int.
    """
    shape, g = _check("channel_shuffle", input, 3, groups, "groups")
    if shape[1] % g:
        raise ShapeError(f"channel_shuffle(): {shape[1]} channels of {shape} are not {groups} groups")
    rows = _rows_of_pixels(input)
    if rows is not None:
        groups_of = rows.reshape((*rows.shape[:-1], g, shape[1] // g))
        return row_major_copy(groups_of.transpose(3, 4)).reshape(rows.shape).permute((0, 3, 1, 2))
    groups_of = input.reshape((shape[0], g, shape[1] // g, *shape[2:]))
    return like_images(row_major_copy(groups_of.transpose(1, 2)).reshape(shape), input)


check_functions(globals())
