"""The generalised Pareto distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import exp, expm1, log, log1p, rand_like, where
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class GeneralizedPareto(Distribution):
    """The generalised Pareto distribution from `loc` on, of `scale` and shape `concentration`: how far draws exceed a
    threshold. Exponential where that is 0, and bounded where it is negative.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        bounded = self.concentration < 0
        end = self.loc - self.scale / where(bounded, self.concentration, -1.0)
        return constraints.interval(self.loc, where(bounded, end, math.inf))

    def _shape(self) -> tuple[Tensor, Tensor]:
        """Where the concentration counts as 0, and the concentration, 1 there."""
        zero = self.concentration.abs() <= 1e-8
        return zero, where(zero, 1.0, self.concentration)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of how likely a draw is to be above `value`, elementwise. Raises ValueError for values that
        cannot be.
        """
        if self._validate_args:
            self._validate_sample(value)
        z = (value - self.loc) / self.scale
        zero, c = self._shape()
        return where(zero, -z, -log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of `cdf`, elementwise."""
        return log1p(-exp(self.log_survival_function(value)))

    def log_prob(self, value: Tensor) -> Tensor:
        return (1 + self.concentration) * self.log_survival_function(value) - log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        return -expm1(self.log_survival_function(value))

    def icdf(self, value: Tensor) -> Tensor:
        zero, c = self._shape()
        log_rest = log1p(-value)
        return self.loc + self.scale * where(zero, -log_rest, expm1(-c * log_rest) / c)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand_like(self.loc.detach().expand(self._extended_shape(sample_shape))))

    def entropy(self) -> Tensor:
        return log(self.scale) + self.concentration + 1

    @property
    def mean(self) -> Tensor:
        """NaN where concentration >= 1, of shape `batch_shape`."""
        c = where(self.concentration < 1, self.concentration, math.nan)
        return self.loc + self.scale / (1 - c)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """NaN where concentration >= 1 / 2, of shape `batch_shape`."""
        c = where(self.concentration < 0.5, self.concentration, math.nan)
        return (self.scale / (1 - c)) ** 2 / (1 - 2 * c)
