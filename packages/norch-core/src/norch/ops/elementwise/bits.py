"""Floating numbers by their bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dtype import int16, int32, int64
from ...errors import DTypeError
from ..families import composite, infer_elementwise
from ..registry import public
from ..shape.bitcast import bitcast
from ..shape.views import broadcast_tensors
from .arithmetic import eq, where
from .special import copysign, floating_pair

if TYPE_CHECKING:
    from ...tensor import Tensor

_INTEGERS = {2: int16, 4: int32, 8: int64}


@composite(
    lambda *values: infer_elementwise("nextafter", values),
    {"x": lambda g, x, y: where(eq(x, y), 0.0, g)},
    name="nextafter",
)
def _nextafter(x: Tensor, y: Tensor) -> Tensor:
    x, y = broadcast_tensors(x.detach(), y.detach())
    bits = bitcast(x, _INTEGERS[x.dtype.itemsize])
    # Of numbers of one sign, those with larger bits are farther from 0.
    moved = bitcast(bits + where((y > x) == (x > 0), 1, -1).to(bits.dtype), x.dtype)
    least = copysign(bitcast(bits * 0 + 1, x.dtype), y)
    out = where(x == y, y, where(x == 0, least, moved))
    return where((x != x) | (y != y), x + y, out)


@public(inplace=True)
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next number of the dtype after `input` towards `other`, which is `other` where they are equal.

    The two promote and broadcast. Its derivative by input is 1, and 0 where they are equal. Raises DTypeError for two
    that are not floating.
    """
    if not (input.dtype.is_floating_point or other.dtype.is_floating_point):
        raise DTypeError(f"nextafter(): needs a floating dtype, got {input.dtype} and {other.dtype}")
    return _nextafter(*floating_pair("nextafter", input, other))
