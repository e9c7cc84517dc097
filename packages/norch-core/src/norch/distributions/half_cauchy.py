"""The half-Cauchy distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import full_like, where, zeros_like
from . import constraints
from .cauchy import Cauchy
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

if TYPE_CHECKING:
    from ..tensor import Tensor


class HalfCauchy(TransformedDistribution):
    """|x| of Cauchy draws x of median 0 and half width `scale`. It has neither mean nor variance."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The half width, of shape `batch_shape`."""
        return self.base_dist.scale  # type: ignore[no-any-return]

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 2 * self.base_dist.cdf(value) - 1  # type: ignore[no-any-return]

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)  # type: ignore[no-any-return]

    @property
    def mean(self) -> Tensor:
        """Infinite, of shape `batch_shape`."""
        return full_like(self.scale, math.inf)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        """Infinite, of shape `batch_shape`."""
        return full_like(self.scale, math.inf)
