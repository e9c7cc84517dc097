"""The distribution of one trial."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import arange, binary_cross_entropy_with_logits, broadcast_tensors, softplus, where
from ..ops import bernoulli as draw
from . import constraints
from .distribution import one_of
from .exp_family import ExponentialFamily
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


class Bernoulli(ExponentialFamily):
    """1 with probability `probs`, or sigmoid(`logits`), else 0. Raises ValueError unless one of the two is given."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.boolean
    has_enumerate_support = True
    _mean_carrier_measure = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("Bernoulli", probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
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
    def _param(self) -> Any:
        return self.__dict__["probs" if "probs" in self.__dict__ else "logits"]

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter that was given."""
        return self._batch_shape

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return draw(self.probs.detach().expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        logits, value = broadcast_tensors(self.logits, value.to(self.logits.dtype))
        found: Tensor = binary_cross_entropy_with_logits(logits, value, reduction="none")
        return -found

    def entropy(self) -> Tensor:
        found: Tensor = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return found

    def enumerate_support(self, expand: bool = True) -> Tensor:
        given = self._param
        return self._listed(arange(2, dtype=given.dtype, device=given.device), expand)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Tensor:
        return softplus(x)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)
