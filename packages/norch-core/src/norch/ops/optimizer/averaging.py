"""Exponential moving averages, such as the running statistics of batch_norm."""

from __future__ import annotations

from .descent import sgd_step_
from .driver import Tensors


def update_averages_(averages: Tensors, values: Tensors, *, weight: float) -> None:
    """Moves each average a towards its new value v: a = a + weight * (v - a), in place and unrecorded.

    Raises ShapeError for lists of different lengths and for shapes that differ, DTypeError unless all are floating.
    """
    # Gradient descent on (v - a)**2 / 2, for which every backend has one kernel for all tensors.
    sgd_step_(averages, values, lr=weight, weight_decay=1.0, maximize=True)
