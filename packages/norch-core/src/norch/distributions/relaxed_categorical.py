"""The relaxed distribution of an index, as a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import lgamma, log, log_softmax, rand_like
from . import constraints
from .categorical import Categorical
from .distribution import Distribution
from .relaxed_bernoulli import as_temperature
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform
from .utils import clamp_probs

if TYPE_CHECKING:
    from ..tensor import Tensor


class ExpRelaxedCategorical(Distribution):
    """The logarithms of RelaxedOneHotCategorical's draws (Maddison, Mnih and Teh, 2017). Raises ValueError unless one
    of `probs` and `logits` is given. temperature: a positive number or 0-d tensor.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        self.temperature = as_temperature(temperature, self._categorical._param)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape batch_shape + (n)."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape batch_shape + (n)."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = clamp_probs(rand_like(self.logits.detach().expand(self._extended_shape(sample_shape))))
        return log_softmax((self.logits - log(-log(u))) / self.temperature, -1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n = self._event_shape[0]
        scale = lgamma(self.temperature.new_full((), n)) + (n - 1) * log(self.temperature)
        return log_softmax(self.logits - value * self.temperature, -1).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """Vectors that sum to 1 and are, for a low `temperature`, near those that OneHotCategorical draws, and
    differentiable (Maddison, Mnih and Teh, 2017; Jang, Gu and Poole, 2017). Raises ValueError unless one of `probs` and
    `logits` is given.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """How far draws are from one 1 and else 0, a 0-d tensor."""
        return self.base_dist.temperature  # type: ignore[no-any-return]

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape batch_shape + (n)."""
        return self.base_dist.logits  # type: ignore[no-any-return]

    @property
    def probs(self) -> Tensor:
        """The probabilities, of shape batch_shape + (n)."""
        return self.base_dist.probs  # type: ignore[no-any-return]
