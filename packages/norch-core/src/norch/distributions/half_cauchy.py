"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import full_like
from .cauchy import Cauchy
from .folded import Folded

if TYPE_CHECKING:
    from ..tensor import Tensor


class HalfCauchy(Folded):
    """|x| of Cauchy draws x of median 0 and half width `scale`. It has neither mean nor variance."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, False), validate_args)

    @property
    def mean(self) -> Tensor:
        """Infinite, of shape `batch_shape`."""
        return full_like(self.scale, math.inf)

    @property
    def variance(self) -> Tensor:
        """Infinite, of shape `batch_shape`."""
        return full_like(self.scale, math.inf)
