"""The multinomial distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import arange, exp, lgamma, where, xlogy, zeros_like
from ..special import xlog1py
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

if TYPE_CHECKING:
    from ..tensor import Tensor


class Multinomial(Distribution):
    """How often each of n outcomes is drawn in `total_count` draws, a number, by the weights in the last dim of
    `probs`, or the softmax of `logits`. Raises ValueError unless one of the two is given,
    NotImplementedError for a tensor of counts.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("Multinomial(): total_count must be one int for all of the batch")
        self.total_count = total_count
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
        shape = self._categorical.param_shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

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

    def sample(self, sample_shape: Any = ()) -> Tensor:
        lead = (sample_shape,) if isinstance(sample_shape, int) else tuple(sample_shape)
        drawn = self._categorical.sample((self.total_count, *lead))
        index = drawn.movedim(0, -1)
        counts = zeros_like(self.probs.detach().expand(self._extended_shape(sample_shape)))
        return counts.scatter_add(-1, index, counts.new_ones(()).expand(index.shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        impossible = (value == 0) & (self.logits == -math.inf)
        terms = where(impossible, 0.0, self.logits) * value
        return lgamma(value.sum(-1) + 1) - lgamma(value + 1).sum(-1) + terms.sum(-1)

    def entropy(self) -> Tensor:
        probs = self.probs
        n = probs.new_full((), self.total_count)
        counts = arange(self.total_count + 1, dtype=probs.dtype, device=probs.device)
        k = counts[1:].reshape((-1, *[1] * probs.ndim))
        logs = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + xlogy(k, probs) + xlog1py(n - k, -probs)
        masses = exp(logs)
        return self.total_count * self._categorical.entropy() - lgamma(n + 1) + (masses * lgamma(k + 1)).sum((0, -1))

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)
