"""How values of several processes become one."""

from __future__ import annotations

from enum import Enum
from typing import Any


class ReduceOp(Enum):
    """The reductions of collectives. AVG divides by the number of members; BAND, BOR and BXOR are for integers."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # PyTorch's name for the type of SUM and the others


def __getattr__(name: str) -> Any:
    """The reductions, as `distributed.reduce_op.SUM`: PyTorch's older name for `ReduceOp.SUM`."""
    if name in ReduceOp.__members__:
        return ReduceOp[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
