"""The uniform distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import log, rand_like, where
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Uniform(Distribution):
    """The uniform distribution on [low, high). Raises ValueError unless low < high."""

    arg_constraints = {name: constraints.dependent(is_discrete=False, event_dim=0) for name in ("low", "high")}
    has_rsample = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        super().__init__(self.low.shape, validate_args=validate_args)
        self._must_satisfy(constraints.greater_than(self.low), self.high, "parameter high")

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.low + rand_like(self.low.detach().expand(shape)) * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        inside = (value >= self.low) & (value < self.high)
        return where(inside, -log(self.high - self.low), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        return log(self.high - self.low)

    @property
    def mean(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def mode(self) -> Tensor:
        """NaN: all are as likely. Of shape `batch_shape`."""
        return self.high * math.nan

    @property
    def variance(self) -> Tensor:
        width = self.high - self.low
        return width * width / 12
