"""The gamma distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import as_tensor, broadcast_tensors, digamma, exp, lgamma, log, xlogy
from . import constraints
from .draws import gamma_cdf, log_standard_gamma
from .exp_family import ExponentialFamily
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Gamma(ExponentialFamily):
    """The gamma distribution of shape `concentration` and `rate`.

    Draws by Marsaglia and Tsang (2000), differentiable by implicit gradients (Figurnov, Mohamed and Mnih, 2018), once.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        dtype = self.rate.dtype
        drawn = exp(log_standard_gamma(concentration)).to(dtype) / self.rate
        return drawn.clamp(min=finfo(dtype).tiny)

    def log_prob(self, value: Any) -> Tensor:
        value = as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        if self._validate_args:
            self._validate_sample(value)
        a, rate = self.concentration, self.rate
        found: Tensor = xlogy(a, rate) + xlogy(a - 1, value) - rate * value - lgamma(a)
        return found

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        concentration, scaled = broadcast_tensors(self.concentration, self.rate * value)
        return gamma_cdf(concentration, scaled).to(scaled.dtype)

    def entropy(self) -> Tensor:
        a = self.concentration
        return a - log(self.rate) + lgamma(a) + (1 - a) * digamma(a)

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        found: Tensor = lgamma(x + 1) - (x + 1) * log(-y)
        return found

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / (self.rate * self.rate)
