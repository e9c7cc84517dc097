"""The inverse gamma distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import digamma, lgamma, log, where
from . import constraints
from .gamma import Gamma
from .transformed_distribution import TransformedDistribution
from .transforms import PowerTransform

if TYPE_CHECKING:
    from ..tensor import Tensor


class InverseGamma(TransformedDistribution):
    """1 / x of gamma draws x of shape `concentration` and `rate`."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.positive

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, False)
        power = PowerTransform(-base.rate.new_ones(()))
        super().__init__(base, power, validate_args=validate_args)

    @property
    def concentration(self) -> Tensor:
        """The shape of the gamma distribution, of shape `batch_shape`."""
        return self.base_dist.concentration  # type: ignore[no-any-return]

    @property
    def rate(self) -> Tensor:
        """The rate of the gamma distribution, of shape `batch_shape`."""
        return self.base_dist.rate  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        a = self.concentration
        return a + log(self.rate) + lgamma(a) - (1 + a) * digamma(a)

    @property
    def mean(self) -> Tensor:
        """Infinite where concentration <= 1, of shape `batch_shape`."""
        a = where(self.concentration > 1, self.concentration, 2.0)
        return where(self.concentration > 1, self.rate / (a - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        """Infinite where concentration <= 2, of shape `batch_shape`."""
        a = where(self.concentration > 2, self.concentration, 3.0)
        return where(self.concentration > 2, self.rate**2 / ((a - 1) ** 2 * (a - 2)), math.inf)
