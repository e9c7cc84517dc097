"""Distances and similarities of vectors, as modules."""

from __future__ import annotations

import norch

from . import functional as F
from .layer import layer
from .module import Module


class PairwiseDistance(Module):
    """The `p`-norm of x1 - x2 + eps along the last dim."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: norch.Tensor, x2: norch.Tensor) -> norch.Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


@layer(F.cosine_similarity)
class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along `dim`."""

    dim: int = 1
    eps: float = 1e-8
    _shown = ()
