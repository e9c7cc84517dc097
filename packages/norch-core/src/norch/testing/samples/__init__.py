"""Sample records: for each op what to call it with, and what should come out. They drive the tests of every backend.

`SAMPLES` has them by name; `record` says what one is, `checks` what is checked of it.
"""

from __future__ import annotations

from . import (
    activation,
    arranging,
    elementwise,
    indexing,
    linalg,
    loss,
    movement,
    network,
    products,
    recurrence,
    reduction,
    special,
    statistics,
    volumes,
)
from .record import LAYOUTS, Case, Operand, Sample, build

SAMPLES: dict[str, Sample] = {}
"""All records by name."""

for _family in (
    elementwise, special, activation, reduction, statistics, linalg, products, movement, arranging, indexing, loss,
    network, volumes, recurrence,
):  # fmt: skip
    for _sample in _family.SAMPLES:
        if _sample.name in SAMPLES:
            raise ValueError(f"two records are named {_sample.name}")
        SAMPLES[_sample.name] = _sample

__all__ = ["LAYOUTS", "SAMPLES", "Case", "Operand", "Sample", "build"]
