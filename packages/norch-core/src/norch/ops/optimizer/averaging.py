"""Exponential moving averages, such as the running statistics of batch_norm."""

from __future__ import annotations

from ..elementwise.weighted import lerp
from ..registry import public
from .driver import Tensors, run_step, step_op

_AVERAGES = step_op("update_averages_", "")


@public(method=False)
def update_averages_(averages: Tensors, values: Tensors, *, weight: float) -> None:
    """Moves each average a towards its new value v: a = a + weight * (v - a), in place and unrecorded.

    Raises ShapeError for lists of different lengths and for shapes that differ, DTypeError unless all are floating.
    averages, values: lists of tensors in the same order.
    """
    run_step(_AVERAGES, (), (averages, values), (weight,), lambda a, v: a.copy_(lerp(a, v, weight)))
