"""Where composites on 16-bit floats compute: in float32, rounded once at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtype import DType, float32

if TYPE_CHECKING:
    from ..tensor import Tensor


def upcast(x: Tensor) -> Tensor:
    """`x` in float32 if it is a 16-bit float, else `x` itself."""
    return x if x.spec.dtype.itemsize >= 4 else x.to(float32)


def upcast_dtype(dtype: DType) -> DType:
    """What `upcast` makes of a floating dtype."""
    return dtype if dtype.itemsize >= 4 else float32
