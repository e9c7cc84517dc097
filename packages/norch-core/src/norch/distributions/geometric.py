"""The geometric distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import binary_cross_entropy_with_logits, floor, log, log1p, rand_like, zeros_like
from ..special import xlog1py
from . import constraints
from .distribution import Distribution, one_of
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


class Geometric(Distribution):
    """How many trials fail before the first that succeeds, each with probability `probs`, or sigmoid(`logits`). Raises
    ValueError unless one of the two is given, and for a probability of 0.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        one_of("Geometric", probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
        if probs is None:
            self.logits = given
        else:
            self.probs = given
        super().__init__(given.shape, validate_args=validate_args)
        if probs is not None:
            self._must_satisfy(constraints.positive, self.probs, "parameter probs")

    @lazy_property
    def logits(self) -> Tensor:
        """log(probs / (1 - probs)), of shape `batch_shape`."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of success, of shape `batch_shape`."""
        return logits_to_probs(self.logits, is_binary=True)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        probs = self.probs.detach().expand(self._extended_shape(sample_shape))
        drawn = (1 - rand_like(probs)).clamp(min=finfo(probs.dtype).tiny)
        return floor(log(drawn) / log1p(-probs))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value, probs = broadcast_all(value, self.probs)
        return xlog1py(value, -probs) + log(self.probs)

    def entropy(self) -> Tensor:
        found: Tensor = binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return found / self.probs

    @property
    def mean(self) -> Tensor:
        return 1 / self.probs - 1

    @property
    def mode(self) -> Tensor:
        return zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1 / self.probs - 1) / self.probs
