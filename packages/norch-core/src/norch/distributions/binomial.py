"""The binomial distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..ops import arange, exp, floor, lgamma, logsigmoid, where
from . import constraints
from .distribution import Distribution, one_of
from .draws import binomial
from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits

if TYPE_CHECKING:
    from ..tensor import Tensor


class Binomial(Distribution):
    """How many of `total_count` trials succeed, each with probability `probs`, or sigmoid(`logits`). Raises ValueError
    unless one of the two is given. Large draws by transformed rejection (Hoermann, 1993).
    """

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of("Binomial", probs, logits)
        count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = count.to(given.dtype)
        if probs is None:
            self.logits = given
        else:
            self.probs = given
        super().__init__(given.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

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
            return binomial(self.total_count.expand(shape), self.probs.expand(shape)).to(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        n, logits = self.total_count, self.logits
        ways = lgamma(n + 1) - lgamma(value + 1) - lgamma(n - value + 1)
        return ways + value * logits + n * logsigmoid(-logits)

    def entropy(self) -> Tensor:
        """The entropy, in nats, of shape `batch_shape`. Raises NotImplementedError for different counts."""
        logs = self.log_prob(self.enumerate_support(expand=False))
        return -(exp(logs) * logs).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """As of every distribution. Raises NotImplementedError for different counts."""
        count = int(self.total_count.max().item())
        if int(self.total_count.min().item()) != count:
            raise NotImplementedError("Binomial.enumerate_support(): the counts must all be the same")
        values = arange(1 + count, dtype=self.total_count.dtype, device=self.total_count.device)
        return self._listed(values, expand)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        found = floor((self.total_count + 1) * self.probs)
        return where(found > self.total_count, self.total_count, found)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)
