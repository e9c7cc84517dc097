"""The Poisson distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..ops import exp, floor, lgamma, log, xlogy
from . import constraints
from .draws import poisson
from .exp_family import ExponentialFamily
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Poisson(ExponentialFamily):
    """Counts of events at `rate`, which is their mean. Large draws by transformed rejection (Hoermann, 1993)."""

    arg_constraints = {"rate": constraints.nonnegative}
    support = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(self.rate.shape, validate_args=validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return poisson(self.rate.expand(self._extended_shape(sample_shape))).to(self.rate.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return xlogy(value, self.rate) - self.rate - lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (log(self.rate),)

    def _log_normalizer(self, x: Any) -> Tensor:
        return exp(x)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return floor(self.rate)

    @property
    def variance(self) -> Tensor:
        return self.rate
