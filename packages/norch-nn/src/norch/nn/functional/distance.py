"""Distances between vectors."""

from __future__ import annotations

import norch

pdist = norch.pdist


def pairwise_distance(
    x1: norch.Tensor, x2: norch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> norch.Tensor:
    """The `p`-norm of x1 - x2 + eps along the last dim: (*, D) and (*, D), which broadcast, to (*), or (*, 1).

    Integers give the default dtype.
    """
    return norch.norm(x1 - x2 + eps, p, -1, keepdim)
