"""The negative binomial distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..ops import exp, floor, lgamma, logsigmoid
from . import constraints
from .distribution import Distribution, one_of
from .draws import log_standard_gamma, poisson
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


class NegativeBinomial(Distribution):
    """How many trials succeed before `total_count` have failed, each with probability `probs`, or sigmoid(`logits`).
    Raises ValueError unless one of the two is given.
    """

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of("NegativeBinomial", probs, logits)
        count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = count.to(given.dtype)
        if probs is None:
            self.logits = given
        else:
            self.probs = given
        super().__init__(given.shape, validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs)), of shape `batch_shape`."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of success, of shape `batch_shape`."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._batch_shape

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with no_grad():
            log_rate = log_standard_gamma(self.total_count.expand(shape)) + self.logits.double()
            rate = exp(log_rate).masked_fill(self.total_count == 0, 0.0)
            return poisson(rate).to(self.logits.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = lgamma(n + value) - lgamma(1 + value) - lgamma(n)
        ways = ways.masked_fill(n + value == 0, 0.0)
        return n * logsigmoid(-logits) + value * logsigmoid(logits) + ways

    @property
    def mean(self) -> Tensor:
        return self.total_count * exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return floor((self.total_count - 1) * exp(self.logits)).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.mean / (1 - self.probs)
