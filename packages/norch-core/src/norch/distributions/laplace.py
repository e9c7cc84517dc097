"""The Laplace distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import expm1, log, log1p, rand_like, sign
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Laplace(Distribution):
    """The Laplace distribution of mean `loc`: density exp(-|x - loc| / scale) / (2 * scale)."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = rand_like(self.loc.detach().expand(self._extended_shape(sample_shape)))
        u = (2 * drawn - 1).clamp(finfo(drawn.dtype).eps - 1)
        return self.loc - self.scale * sign(u) * log1p(-u.abs())

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return -log(2 * self.scale) - (value - self.loc).abs() / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        distance = value - self.loc
        return 0.5 - 0.5 * sign(distance) * expm1(-distance.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * sign(term) * log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + math.log(2) + log(self.scale)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def stddev(self) -> Tensor:
        return math.sqrt(2) * self.scale

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale * self.scale
