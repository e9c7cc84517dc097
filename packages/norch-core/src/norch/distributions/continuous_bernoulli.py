"""The continuous Bernoulli distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import (
    atanh,
    binary_cross_entropy_with_logits,
    broadcast_tensors,
    expm1,
    log,
    log1p,
    rand_like,
    sigmoid,
    where,
)
from . import constraints
from .distribution import one_of
from .exp_family import ExponentialFamily
from .utils import broadcast_all, clamp_probs, lazy_property, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


class ContinuousBernoulli(ExponentialFamily):
    """Numbers on [0, 1] of density probs**x * (1 - probs)**(1 - x), normalised (Loaiza-Ganem and Cunningham, 2019).

    Raises ValueError unless one of `probs` and `logits` is given. lims: between which probabilities series about 1/2
    are taken.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        one_of("ContinuousBernoulli", probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
        self._lims = lims
        if probs is None:
            self.logits = given
        else:
            self.probs = given
        super().__init__(given.shape, validate_args=validate_args)
        if probs is not None:
            self.probs = clamp_probs(self.probs)

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs)), of shape `batch_shape`."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter, of shape `batch_shape`: no probability here, nor the mean."""
        return clamp_probs(sigmoid(self.logits))

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._batch_shape

    def _away(self) -> tuple[Tensor, Tensor]:
        """Where the probabilities are away from 1/2, and these, with another in the place of those that are not."""
        away = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        return away, where(away, self.probs, self._lims[0])

    def _log_constant(self) -> Tensor:
        """The logarithm of what makes the density's integral 1."""
        away, p = self._away()
        exact = log((2 * atanh(1 - 2 * p)).abs()) - log((1 - 2 * p).abs())
        x = (self.probs - 0.5) ** 2
        return where(away, exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value)
        found: Tensor = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._log_constant() - found

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.icdf(rand_like(self.probs.detach().expand(self._extended_shape(sample_shape))))

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return (expm1(self._slope() * value) / expm1(self._slope())).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        return log1p(value * expm1(self._slope())) / self._slope()

    def _slope(self) -> Tensor:
        """The logits, which the density's logarithm rises by; never 0."""
        return where(self.logits == 0, finfo(self.logits.dtype).tiny, self.logits)

    def entropy(self) -> Tensor:
        low, high = log(self.probs), log1p(-self.probs)
        return self.mean * (high - low) - self._log_constant() - high

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Tensor:
        away = (x <= self._lims[0] - 0.5) | (x > self._lims[1] - 0.5)
        safe = where(away, x, self._lims[0] - 0.5)
        found: Tensor = where(away, log(expm1(safe).abs()) - log(safe.abs()), 0.5 * x + x * x / 24 - x**4 / 2880)
        return found

    @property
    def mean(self) -> Tensor:
        away, p = self._away()
        exact = p / (2 * p - 1) + 1 / (log1p(-p) - log(p))
        x = self.probs - 0.5
        return where(away, exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x * x) * x)

    @property
    def variance(self) -> Tensor:
        away, p = self._away()
        exact = p * (p - 1) / (1 - 2 * p) ** 2 + 1 / (log1p(-p) - log(p)) ** 2
        x = (self.probs - 0.5) ** 2
        return where(away, exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)
