"""The exponential distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import exp, log, log1p, zeros_like
from . import constraints
from .draws import standard_exponential
from .exp_family import ExponentialFamily
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Exponential(ExponentialFamily):
    """The exponential distribution of `rate`."""

    arg_constraints = {"rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return standard_exponential(self.rate.detach().expand(self._extended_shape(sample_shape))) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return log(self.rate) - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return 1 - exp(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - log(self.rate)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Tensor:
        return -log(-x)

    @property
    def mean(self) -> Tensor:
        return 1 / self.rate

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return 1 / self.rate

    @property
    def variance(self) -> Tensor:
        return 1 / (self.rate * self.rate)
