"""The relaxed Bernoulli distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import log, log1p, rand_like, softplus
from . import constraints
from .distribution import Distribution, one_of
from .transformed_distribution import TransformedDistribution
from .transforms import SigmoidTransform
from .utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


def as_temperature(value: Any, like: Tensor) -> Tensor:
    """A number as a tensor of the dtype and device of `like`."""
    return value if hasattr(value, "spec") else like.new_full((), float(value))


class LogitRelaxedBernoulli(Distribution):
    """The logits of RelaxedBernoulli's draws (Maddison, Mnih and Teh, 2017). Raises ValueError unless one of `probs`
    and `logits` is given. temperature: a positive number or 0-d tensor.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of("LogitRelaxedBernoulli", probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
        self.temperature = as_temperature(temperature, given)
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
        """The probability of 1, of shape `batch_shape`."""
        return logits_to_probs(self.logits, is_binary=True)

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._batch_shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        p = clamp_probs(self.probs.expand(self._extended_shape(sample_shape)))
        u = clamp_probs(rand_like(p.detach()))
        return (log(u) - log1p(-u) + log(p) - log1p(-p)) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        difference = self.logits - value * self.temperature
        return log(self.temperature) + difference - 2 * softplus(difference)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers between 0 and 1 that are, for a low `temperature`, near those that Bernoulli draws, and differentiable
    (Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017). Raises ValueError unless one of `probs` and `logits` is
    given.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far draws are from 0 and 1, a 0-d tensor."""
        return self.base_dist.temperature  # type: ignore[no-any-return]

    @property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs)), of shape `batch_shape`."""
        return self.base_dist.logits  # type: ignore[no-any-return]

    @property
    def probs(self) -> Tensor:
        """The probability of 1, of shape `batch_shape`."""
        return self.base_dist.probs  # type: ignore[no-any-return]
