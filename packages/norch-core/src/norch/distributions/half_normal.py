"""The half-normal distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import where, zeros_like
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import AbsTransform

if TYPE_CHECKING:
    from ..tensor import Tensor


class HalfNormal(TransformedDistribution):
    """|x| of normal draws x of mean 0 and standard deviation `scale`."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, False), AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The standard deviation before, of shape `batch_shape`."""
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
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale * self.scale * (1 - 2 / math.pi)
