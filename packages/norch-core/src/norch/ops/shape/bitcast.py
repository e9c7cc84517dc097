"""The same bytes read as another dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtype import DType
from ...errors import ShapeError
from ...spec import Spec
from ..families import view

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer_bitcast(spec: Spec, dtype: DType, offset: int) -> tuple[Spec, int]:
    old, new = spec.dtype.itemsize, dtype.itemsize
    shape, strides = spec.shape, spec.strides
    if old == new:
        return spec.like(shape, strides, dtype), 0
    what = f"view(): a tensor of {spec.dtype}, shape {tuple(shape)} and strides {strides} cannot be viewed as {dtype}"
    if not shape:
        raise ShapeError(f"{what}: it has no last dim, whose size would change")
    if strides[-1] != 1:
        raise ShapeError(f"{what}: the elements of its last dim are not side by side; use contiguous()")
    times, parts = max(old // new, 1), max(new // old, 1)
    if shape[-1] % parts or any(s % parts for s in strides[:-1]):
        raise ShapeError(f"{what}: its last dim and its other strides must be divisible by {parts}")
    changed = [s * times // parts for s in strides[:-1]]
    return spec.like((*shape[:-1], shape[-1] * times // parts), (*changed, 1), dtype), 0


BITCAST = view("bitcast", "x dtype offset", _infer_bitcast, lambda g, x_spec: g.new_zeros(x_spec.shape), place="offset")


def bitcast(input: Tensor, dtype: DType) -> Tensor:
    """The same bytes read as another dtype: of another size, the last dim is so much longer or shorter.

    No gradient flows through it. Raises ShapeError where the layout does not allow that, as PyTorch does.
    """
    offset, old, new = input.offset, input.spec.dtype.itemsize, dtype.itemsize
    if offset * old % new:
        raise ShapeError(
            f"view(): a tensor of {input.spec.dtype} that starts {offset} elements into its memory cannot be viewed as "
            f"{dtype}; use clone()"
        )
    out: Tensor = BITCAST.call(input.detach(), dtype, offset, offset * old // new - offset)
    return out
