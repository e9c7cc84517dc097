"""Dropout layers: random zeros in training, nothing in evaluation."""

from __future__ import annotations

import norch

from . import functional as F
from .layer import layer
from .module import Module

_DROPOUT = F.dropout  # unless a program has put another in its place


@layer()
class _DropoutNd(Module):
    p: float = 0.5
    inplace: bool = False
    _shown = ("p", "inplace")

    def __post_init__(self) -> None:
        if not 0 <= self.p <= 1:
            raise ValueError(f"{type(self).__name__}: p must be from 0 to 1, got {self.p}")


class Dropout(_DropoutNd):
    """Each element 0 with probability `p`, the others divided by 1 - p. Shape kept. After Srivastava et al. (2014)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        function = F.dropout
        if self.inplace or function is not _DROPOUT:
            return function(input, self.p, self.training, self.inplace)
        return norch.dropout(input, self.p, self.training)


@layer(F.dropout1d)
class Dropout1d(_DropoutNd):
    """Each channel of (n, c, w) or (c, w) 0 with probability `p`, the others divided by 1 - p."""


@layer(F.dropout2d)
class Dropout2d(_DropoutNd):
    """Each channel of (n, c, h, w) 0 with probability `p`, the others divided by 1 - p.

    After Tompson et al. (2015).
    """


@layer(F.dropout3d)
class Dropout3d(_DropoutNd):
    """As `Dropout2d`: each channel of (n, c, d, h, w) or (c, d, h, w) 0 with probability `p`, the others divided by 1 -
    p.
    """


@layer(F.alpha_dropout)
class AlphaDropout(_DropoutNd):
    """Dropout that keeps the mean 0 and variance 1 that SELU gives (Klambauer et al., 2017)."""


@layer(F.feature_alpha_dropout)
class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels of (n, c, ...), each with probability `p` (Klambauer et al., 2017)."""
