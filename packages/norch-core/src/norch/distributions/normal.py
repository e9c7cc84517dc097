"""The normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import log, randn_like
from ..special import ndtr, ndtri
from . import constraints
from .distribution import HALF_LOG_2_PI
from .exp_family import ExponentialFamily
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Normal(ExponentialFamily):
    """The normal distribution of mean `loc` and standard deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.loc + randn_like(self.loc.detach().expand(shape)) * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = (value - self.loc) / self.scale
        return -0.5 * distance * distance - log(self.scale) - HALF_LOG_2_PI

    def entropy(self) -> Tensor:
        return log(self.scale) + (0.5 + HALF_LOG_2_PI)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ndtr((value - self.loc) / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ndtri(value)

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        variance = self.variance
        return self.loc / variance, -0.5 / variance

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        found: Tensor = -0.25 * x * x / y + 0.5 * log(-math.pi / y)
        return found

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale

    @property
    def stddev(self) -> Tensor:
        return self.scale
