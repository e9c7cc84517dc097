"""The beta distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import digamma, lgamma, stack, xlogy
from ..special import xlog1py
from . import constraints
from .dirichlet import Dirichlet
from .exp_family import ExponentialFamily
from .simplex_draws import dirichlet_draw
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class _OfBeta(Dirichlet):
    """The Dirichlet distribution of x and 1 - x: its concentrations are those of the beta distribution, set too."""

    def __init__(self, beta: Beta) -> None:
        self._beta = beta
        super().__init__(stack([beta.concentration1, beta.concentration0], -1), validate_args=False)

    @property
    def concentration(self) -> Tensor:
        return stack([self._beta.concentration1, self._beta.concentration0], -1)

    @concentration.setter
    def concentration(self, value: Tensor) -> None:
        first, second = value.unbind(-1)
        vars(self._beta).update(concentration1=first, concentration0=second)  # past what subclasses do when one is set


class Beta(ExponentialFamily):
    """The beta distribution on [0, 1]: density x**(concentration1 - 1) * (1 - x)**(concentration0 - 1), normalised.
    Draws are differentiable once.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        super().__init__(self.concentration1.shape, validate_args=validate_args)

    @property
    def _dirichlet(self) -> Dirichlet:
        """What PyTorch's is made of, for subclasses that set its concentration."""
        return _OfBeta(self)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape, info = self._extended_shape(sample_shape), finfo(self.concentration1.dtype)
        drawn = dirichlet_draw(stack([c.expand(shape) for c in (self.concentration1, self.concentration0)], -1))[..., 0]
        drawn = drawn.to(self.concentration1.dtype)
        return drawn.clamp(info.tiny, 1 - info.eps / 2)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1, value) + xlog1py(b - 1, -value) - self._log_normalizer(a, b)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        total = (a + b - 2) * digamma(a + b)
        return self._log_normalizer(a, b) - (a - 1) * digamma(a) - (b - 1) * digamma(b) + total

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return self.concentration1, self.concentration0

    @property
    def _mean_carrier_measure(self) -> Tensor:
        """Of 1 / (x * (1 - x))."""
        a, b = self.concentration1, self.concentration0
        return 2 * digamma(a + b) - digamma(a) - digamma(b)

    def _log_normalizer(self, x: Any, y: Any) -> Tensor:
        found: Tensor = lgamma(x) + lgamma(y) - lgamma(x + y)
        return found

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return Dirichlet(stack([self.concentration1, self.concentration0], -1), False).mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total * total * (total + 1))
