"""The Cauchy distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import atan, full_like, log, log1p, rand_like, tan
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Cauchy(Distribution):
    """The Cauchy distribution of median `loc` and half width `scale`. It has neither mean nor variance."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = rand_like(self.loc.detach().expand(self._extended_shape(sample_shape)))
        return self.loc + self.scale * tan((drawn - 0.5) * math.pi)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -math.log(math.pi) - log(self.scale) - log1p(distance * distance)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + log(self.scale)

    @property
    def mean(self) -> Tensor:
        """NaN, of shape `batch_shape`."""
        return full_like(self.loc, math.nan)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite, of shape `batch_shape`."""
        return full_like(self.loc, math.inf)
