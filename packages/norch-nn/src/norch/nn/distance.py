"""How far apart two inputs are, as modules."""

from __future__ import annotations

import norch

from . import functional as F
from .module import Module


class CosineSimilarity(Module):
    """The cosine of the angle between two inputs along `dim`, which goes. Norms are at least `eps`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: norch.Tensor, x2: norch.Tensor) -> norch.Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
