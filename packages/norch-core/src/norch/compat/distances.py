"""Distances between vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import ops
from ..dispatch.arguments import check_functions

if TYPE_CHECKING:
    from ..tensor import Tensor


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The `p`-norm of x1 - x2 + eps along the last dim: (*, D) and (*, D), which broadcast, to (*), or (*, 1).

    Integers give the default dtype.
    """
    return ops.norm(x1 - x2 + eps, p, -1, keepdim)


check_functions(globals())
