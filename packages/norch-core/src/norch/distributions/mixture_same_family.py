"""Mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..errors import ShapeError
from ..ops import gather, log_softmax, logsumexp
from . import constraints
from .categorical import Categorical
from .distribution import Distribution

if TYPE_CHECKING:
    from ..tensor import Tensor


class MixtureSameFamily(Distribution):
    """A draw of one of the distributions in the last batch dim of `component_distribution`, which
    `mixture_distribution`, a Categorical, chooses. Raises ValueError for another, ShapeError where they do not fit.
    """

    arg_constraints: Any = {}

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(mixture_distribution, Categorical) or not isinstance(component_distribution, Distribution):
            raise ValueError("MixtureSameFamily(): expected a Categorical and a Distribution")
        mixture, components = tuple(mixture_distribution.batch_shape), tuple(component_distribution.batch_shape)
        count = mixture_distribution._num_events
        fits = all(a == b or 1 in (a, b) for a, b in zip(reversed(mixture), reversed(components[:-1])))
        if not components or components[-1] != count or not fits:
            raise ShapeError(
                f"MixtureSameFamily(): {count} weights of batch shape {mixture} do not fit components of batch shape "
                f"{components}"
            )
        self._mixture_distribution, self._component_distribution = mixture_distribution, component_distribution
        self._num_component = count
        super().__init__(components[:-1], component_distribution.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """What chooses the component."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components, in the last dim of the batch."""
        return self._component_distribution

    def _weighted(self, values: Tensor) -> Tensor:
        """The weighted sum of values that have the components before the event's dims."""
        dims = len(self._event_shape)
        probs = self._mixture_distribution.probs
        return (values * probs.reshape((*probs.shape, *[1] * dims))).sum(-1 - dims)

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        distance = self._component_distribution.mean - self._padded(self.mean)
        return self._weighted(self._component_distribution.variance + distance * distance)

    def _padded(self, value: Tensor) -> Tensor:
        return value.unsqueeze(-1 - len(self._event_shape))

    def cdf(self, value: Tensor) -> Tensor:
        found = self._component_distribution.cdf(self._padded(value))
        return (found * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        found = self._component_distribution.log_prob(self._padded(value))
        return logsumexp(found + log_softmax(self._mixture_distribution.logits, -1), -1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            dims = len(self._event_shape)
            drawn = self._component_distribution.sample(sample_shape)
            chosen = self._mixture_distribution.expand(self._batch_shape).sample(sample_shape)
            index = chosen.reshape((*chosen.shape, *[1] * (dims + 1)))
            index = index.expand((*chosen.shape, 1, *self._event_shape))
            return gather(drawn, drawn.ndim - dims - 1, index).squeeze(-1 - dims)

    def __repr__(self) -> str:
        return f"MixtureSameFamily({self._mixture_distribution!r}, {self._component_distribution!r})"
