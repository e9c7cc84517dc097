"""The Dirichlet distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..errors import ShapeError
from ..ops import digamma, lgamma, one_hot, where, xlogy
from . import constraints
from .exp_family import ExponentialFamily
from .simplex_draws import dirichlet_draw

if TYPE_CHECKING:
    from ..tensor import Tensor


class Dirichlet(ExponentialFamily):
    """Vectors of numbers that sum to 1, by the positive weights in the last dim of `concentration`. Raises ShapeError
    for a 0-d tensor. Draws are differentiable once.
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if not concentration.ndim:
            raise ShapeError("Dirichlet(): needs at least 1 dim, that of the weights")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        concentration = self.concentration.expand(self._extended_shape(sample_shape))
        drawn = dirichlet_draw(concentration)
        return drawn.to(self.concentration.dtype).clamp(min=finfo(self.concentration.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a = self.concentration
        return xlogy(a - 1, value).sum(-1) + lgamma(a.sum(-1)) - lgamma(a).sum(-1)

    def entropy(self) -> Tensor:
        a = self.concentration
        count, total = a.shape[-1], a.sum(-1)
        normaliser = lgamma(a).sum(-1) - lgamma(total)
        return normaliser - (count - total) * digamma(total) - ((a - 1) * digamma(a)).sum(-1)

    @property
    def _natural_params(self) -> tuple[Tensor]:
        return (self.concentration - 1,)

    def _log_normalizer(self, x: Any) -> Tensor:
        found: Tensor = lgamma(x + 1).sum(-1) - lgamma((x + 1).sum(-1))
        return found

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0)
        found = above / above.sum(-1, True)
        corner = one_hot(found.argmax(-1), found.shape[-1]).to(found.dtype)
        return where((self.concentration < 1).all(-1, keepdim=True), corner, found)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total * total * (total + 1))
