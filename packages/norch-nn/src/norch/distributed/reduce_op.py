"""How values of several processes become one."""

from __future__ import annotations

from enum import Enum


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
