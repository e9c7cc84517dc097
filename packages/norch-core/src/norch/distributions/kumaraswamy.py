"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import digamma, exp, full_like, lgamma, log, where
from . import constraints
from .distribution import EULER
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .uniform import Uniform
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Kumaraswamy(TransformedDistribution):
    """The Kumaraswamy distribution on [0, 1]: 1 - (1 - x**concentration1)**concentration0 is how likely a draw is to be
    below x.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(full_like(self.concentration0, 0), full_like(self.concentration0, 1), False)
        transforms = [
            PowerTransform(1 / self.concentration0),
            AffineTransform(1.0, -1.0),
            PowerTransform(1 / self.concentration1),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.concentration1 = self.concentration1.expand(batch_shape)
        new.concentration0 = self.concentration0.expand(batch_shape)
        return new

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return 1 - 1 / b + (1 - 1 / a) * (digamma(b + 1) + EULER) - log(a) - log(b)

    def _moment(self, n: int) -> Tensor:
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * exp(lgamma(a) + lgamma(b) - lgamma(a + b))

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        """NaN where a concentration is below 1, of shape `batch_shape`."""
        a, b = self.concentration1, self.concentration0
        found = ((a - 1) / (a * b - 1)) ** (1 / a)
        return where((a < 1) | (b < 1), math.nan, found)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self._moment(1) ** 2
