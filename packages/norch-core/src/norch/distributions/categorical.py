"""The distribution of an index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..errors import ShapeError
from ..ops import arange, broadcast_tensors, full, gather, log_softmax, multinomial
from . import constraints
from .distribution import Distribution, one_of
from .utils import lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


class Categorical(Distribution):
    """An index from 0 to n - 1, by the weights in the last dim of `probs`, or the softmax of `logits`.

    Raises ShapeError for a 0-d tensor, ValueError unless one of the two is given.
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("Categorical", probs, logits)
        given: Tensor = logits if probs is None else probs
        if not given.ndim:
            raise ShapeError("Categorical(): needs at least 1 dim, that of the categories")
        if probs is None:
            self.logits = log_softmax(logits, -1)
        else:
            self.probs = probs / probs.sum(-1, True)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities, of shape batch_shape + (n)."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities, of shape batch_shape + (n)."""
        return logits_to_probs(self.logits)

    @property
    def _param(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given, with the dim of the categories."""
        return self._param.shape

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rows = self.probs.detach().reshape(-1, self.probs.shape[-1])
        count = math.prod(shape) // max(rows.shape[0], 1)
        drawn = multinomial(rows, max(count, 1), replacement=True)
        return drawn.reshape(shape) if count == 1 else drawn.mT[:count].reshape(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        index, logits = broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return gather(logits, -1, index[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        finite = self.logits.clamp(min=finfo(self.logits.dtype).min)
        return -(self.probs * finite).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._listed(arange(self._num_events, device=self._param.device), expand)

    @property
    def mean(self) -> Tensor:
        """NaN: an index has no mean. Of shape `batch_shape`."""
        return full(self._batch_shape, math.nan, dtype=self._param.dtype, device=self._param.device)

    @property
    def mode(self) -> Tensor:
        """The likeliest index, of shape `batch_shape`."""
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        """NaN: an index has no variance. Of shape `batch_shape`."""
        return self.mean
