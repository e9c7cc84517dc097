"""Student's t distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..ops import digamma, exp, lgamma, log, log1p, randn_like, rsqrt, where
from . import constraints
from .distribution import Distribution
from .draws import log_standard_gamma
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class StudentT(Distribution):
    """Student's t distribution of `df` degrees of freedom, moved by `loc` and stretched by `scale`. Draws, of normal
    and gamma draws, are differentiable as those are.
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        half = (0.5 * self.df).expand(self._extended_shape(sample_shape))
        spread = (exp(log_standard_gamma(half)).clamp(min=1e-300) / half).to(self.df.dtype)
        return self.loc + self.scale * randn_like(half.detach()) * rsqrt(spread)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        y = (value - self.loc) / self.scale
        return -0.5 * (self.df + 1) * log1p(y * y / self.df) - self._log_normaliser()

    def _log_normaliser(self) -> Tensor:
        half = 0.5 * self.df
        return log(self.scale) + 0.5 * log(math.pi * self.df) + lgamma(half) - lgamma(half + 0.5)

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        return self._log_normaliser() + (half + 0.5) * (digamma(half + 0.5) - digamma(half))

    @property
    def mean(self) -> Tensor:
        """`loc`, or NaN where df <= 1, of shape `batch_shape`."""
        return where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """Infinite where 1 < df <= 2, NaN below, of shape `batch_shape`."""
        wide = where(self.df > 2, self.df, 3.0)
        found = where(self.df > 2, self.scale * self.scale * wide / (wide - 2), math.inf)
        return where(self.df <= 1, math.nan, found)
