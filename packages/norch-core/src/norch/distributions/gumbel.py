"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import exp, full_like, log
from . import constraints
from .distribution import EULER
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .uniform import Uniform
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Gumbel(TransformedDistribution):
    """The Gumbel distribution of mode `loc`, stretched by `scale`: that of the maximum of many draws."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = finfo(self.loc.dtype)
        base = Uniform(full_like(self.loc, info.tiny), full_like(self.loc, 1 - info.eps), False)
        transforms = [
            ExpTransform().inv,
            AffineTransform(0, -1),
            ExpTransform().inv,
            AffineTransform(self.loc, -self.scale),
        ]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.loc, new.scale = self.loc.expand(batch_shape), self.scale.expand(batch_shape)
        return new

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (self.loc - value) / self.scale
        return y - exp(y) - log(self.scale)

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return exp(-exp((self.loc - value) / self.scale))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc - self.scale * log(-log(value))

    def entropy(self) -> Tensor:
        return log(self.scale) + (1 + EULER)

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * EULER

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev * self.stddev
