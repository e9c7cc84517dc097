"""The distribution of an index, as a vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import eye, one_hot
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

if TYPE_CHECKING:
    from ..tensor import Tensor


class OneHotCategorical(Distribution):
    """Vectors of one 1 and else 0, by the weights in the last dim of `probs`, or the softmax of `logits`. Raises
    ValueError unless one of the two is given.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._categorical = Categorical(probs, logits, validate_args=validate_args)
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

    def sample(self, sample_shape: Any = ()) -> Tensor:
        index = self._categorical.sample(sample_shape)
        return one_hot(index, self._event_shape[0]).to(self._categorical._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n, like = self._event_shape[0], self._categorical._param
        values = eye(n, dtype=like.dtype, device=like.device)
        found = values.reshape((n, *[1] * len(self._batch_shape), n))
        return found.expand((n, *self._batch_shape, n)) if expand else found

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return one_hot(self.probs.argmax(-1), self._event_shape[0]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """OneHotCategorical whose draws have the gradient of the probabilities (Bengio, Leonard and Courville, 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self.sample(sample_shape)
        return drawn + (self.probs - self.probs.detach())
