"""Sums of neighbours along a dim, whose size changes: what interpolation and averages of parts are made of."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...device import Device
from ...dtype import DType, int64
from ...errors import ShapeError
from ...spec import Spec, image_layout, is_channels_last
from ..copying import contiguous
from ..creation import arange
from ..elementwise.arithmetic import where
from ..families import composite
from ..from_data import tensor
from ..indexing import index_select
from ..shape.views import unflatten

if TYPE_CHECKING:
    from ...tensor import Tensor


class Neighbours(NamedTuple):
    """Where the neighbours of each element begin, and their weights (count, taps); then the same of the way back, from
    an element to those that it is in."""

    first: Tensor
    weights: Tensor
    back_first: Tensor
    back_weights: Tensor


def neighbours(places: Any, weights: Any, n: int, dtype: DType, device: Device) -> Neighbours:
    """Arrays (count, taps): of which of n elements each is a sum, both ways in rising order, and with what weights.
    Places outside stand for the element at the border."""
    count = len(places)
    places = np.clip(places.astype(np.int64), 0, n - 1)
    taps = int((places[:, -1] - places[:, 0]).max(initial=0)) + 1
    first = np.minimum(places[:, 0], n - taps)
    rows, at = np.arange(count)[:, None], np.arange(taps)
    near = np.zeros((count, taps), weights.dtype)
    np.add.at(near, (rows, places - first[:, None]), weights)
    # The results that an element may be in are neighbours, as `first` rises.
    elements = np.arange(n)
    start, end = (np.searchsorted(first, elements - back, side="right") for back in (taps, 0))
    many = max(int((end - start).max()), 1) if count else 0
    back_first = np.clip(start, 0, max(count - many, 0))
    back = np.zeros((n, many), weights.dtype)
    np.add.at(back, (first[:, None] + at, rows - back_first[first[:, None] + at]), near)
    ints, numbers = (partial(tensor, dtype=kind, device=device) for kind in (int64, dtype))
    return Neighbours(ints(first), numbers(near), ints(back_first), numbers(back))


@lru_cache(128)
def parts(n: int, count: int, dtype: DType, device: Device) -> Neighbours:
    """The averages of `count` parts of n elements, of which neighbours may overlap."""
    at = np.arange(count)
    first, end = at * n // count, -(-(at + 1) * n // count)
    places = first[:, None] + np.arange(int((end - first).max(initial=1)))
    weights = np.where(places < end[:, None], 1 / (end - first)[:, None], 0.0)
    return neighbours(places, weights, n, dtype, device)


def _infer(input: Spec, dim: int, first: Spec, weights: Spec, back_first: Spec, back_weights: Spec) -> Spec:
    if weights.shape[:1] != first.shape or back_weights.shape[0] != input.shape[dim]:
        raise ShapeError(f"resample(): shape {tuple(input.shape)} with weights {tuple(weights.shape)} along dim {dim}")
    shape = (*input.shape[:dim], weights.shape[0], *input.shape[dim + 1 :])
    return input.like(shape, image_layout(shape, input))


def _rule(g: Tensor, dim: int, first: Tensor, weights: Tensor, back_first: Tensor, back_weights: Tensor) -> Tensor:
    return resampled(g, dim, Neighbours(back_first, back_weights, first, weights))


def resampled(input: Tensor, dim: int, near: Neighbours) -> Tensor:
    """`resample`, of memory that kernels take."""
    spec = input.spec
    if not spec.is_contiguous and not (spec.ndim == 4 and dim > 1 and type(spec) is Spec and is_channels_last(spec)):
        input = contiguous(input)
    return resample(input, dim, *near)


@composite(_infer, {"input": _rule}, native="floating")
def resample(
    input: Tensor, dim: int, first: Tensor, weights: Tensor, back_first: Tensor, back_weights: Tensor
) -> Tensor:
    """Along `dim` the sums of neighbours, from `first` on, with `weights`; what has weight 0 is left out, even NaN."""
    count, taps = weights.spec.shape
    places = (first + arange(taps, device=first.device).unsqueeze(1)).reshape(-1)
    found = unflatten(index_select(input, dim, places), dim, (taps, count))
    factors = weights.detach().t().reshape(taps, count, *(1,) * (input.spec.ndim - dim - 1))
    return where(factors != 0, found * factors, 0.0).sum(dim)
