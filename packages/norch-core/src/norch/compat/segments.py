"""`norch.segment_reduce`: what a reduction makes of each of the segments of a dim."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import check_functions
from ..errors import DTypeError, ShapeError
from ..ops import arange, cat, searchsorted, where

if TYPE_CHECKING:
    from ..tensor import Tensor

_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -inf, "amax": -inf, "min": inf, "amin": inf}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """The "sum", "mean", "prod", "max" or "min" of each segment of the dim `axis` of `data`, a floating tensor.

    Segments are given by their `lengths` (..., k), or by `offsets` (..., k + 1) where they begin and the last one ends;
    `axis` is the last dim of these, those before it are dims of data. initial: what each segment has besides. Without
    it a segment without elements is 0, NaN, 1, -inf or inf. Unless `unsafe`, lengths are checked, which waits for them.

    Raises ValueError for another `reduce`, unless one of lengths and offsets is given, and for `indices`, which PyTorch
    does not take either; ShapeError for an axis that is not their last dim or lengths that do not add up to it;
    DTypeError unless data is floating and they are integers.
    """
    if reduce not in _STARTS:
        raise ValueError(f"segment_reduce(): reduce must be one of {', '.join(_STARTS)}, got {reduce!r}")
    if (lengths is None) == (offsets is None) or indices is not None:
        raise ValueError("segment_reduce(): give lengths or offsets, and no indices")
    given: Any = lengths if offsets is None else offsets
    if not data.is_floating_point() or given.is_floating_point() or given.dtype.name == "bool":
        raise DTypeError(f"segment_reduce(): data must be floating and segments integers: {data.dtype}, {given.dtype}")
    dim = axis % data.ndim if data.ndim else 0
    if dim != given.ndim - 1 or given.shape[:-1] != data.shape[:dim]:
        raise ShapeError(
            f"segment_reduce(): segments of shape {tuple(given.shape)} are none of dim {axis} of {tuple(data.shape)}"
        )
    if offsets is None:
        if not unsafe and not bool(((given >= 0).all(-1) & (given.sum(-1) == data.shape[dim])).all()):
            raise ShapeError(f"segment_reduce(): lengths must not be negative and add up to {data.shape[dim]}")
        given = cat([given.new_zeros((*given.shape[:-1], 1)), given.cumsum(-1)], -1)
    count = given.shape[-1] - 1
    at = arange(data.shape[dim], dtype=given.dtype, device=data.device).expand(*given.shape[:-1], -1)
    places = searchsorted(given.contiguous(), at.contiguous(), right=True)  # 0 and count + 1 are of no segment
    places = places.reshape(*places.shape, *[1] * (data.ndim - dim - 1)).expand(data.shape)
    kind = {"mean": "sum", "max": "amax", "min": "amin"}.get(reduce, reduce)
    start = _STARTS[reduce] if initial is None or kind in ("amax", "amin") else float(initial)
    filled = data.new_full((*data.shape[:dim], count + 2, *data.shape[dim + 1 :]), start)
    out: Tensor = filled.scatter_reduce(dim, places, data, kind, include_self=kind in ("sum", "prod"))
    out = out.narrow(dim, 1, count)
    if kind in ("amax", "amin") and initial is not None:
        beyond = out < initial if kind == "amax" else out > initial
        out = where(beyond, float(initial), out)
    if reduce == "mean":
        sizes = (given[..., 1:] - given[..., :-1]).reshape(*given.shape[:-1], count, *[1] * (data.ndim - dim - 1))
        out = out / (sizes if initial is None else where(sizes == 0, 1, sizes))
    return out


check_functions(globals())
