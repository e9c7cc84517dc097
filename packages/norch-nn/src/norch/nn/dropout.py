"""Dropout layers: random zeros in training, nothing in evaluation."""

from __future__ import annotations

import norch

from . import functional as F
from .module import Module


class _Dropout(Module):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: p must be from 0 to 1, got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Each element 0 with probability `p`, the others divided by 1 - p. Shape kept."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        if self.inplace:
            return F.dropout(input, self.p, self.training, True)
        return norch.dropout(input, self.p, self.training)


class Dropout1d(_Dropout):
    """Each channel of (n, c, w) or (c, w) 0 with probability `p`, the others divided by 1 - p."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """Each channel of (n, c, h, w) 0 with probability `p`, the others divided by 1 - p."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """Each channel of (n, c, d, h, w) or (c, d, h, w) 0 with probability `p`, the others divided by 1 - p."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """Dropout that keeps the mean 0 and variance 1 that SELU gives (Klambauer et al., 2017)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.alpha_dropout(input, self.p, self.training, self.inplace)


class FeatureAlphaDropout(_Dropout):
    """AlphaDropout of whole channels of (n, c, ...)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training, self.inplace)
