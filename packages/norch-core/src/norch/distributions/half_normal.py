"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .folded import Folded
from .normal import Normal

if TYPE_CHECKING:
    from ..tensor import Tensor


class HalfNormal(Folded):
    """|x| of normal draws x of mean 0 and standard deviation `scale`."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, False), validate_args)

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale * (1 - 2 / math.pi)
