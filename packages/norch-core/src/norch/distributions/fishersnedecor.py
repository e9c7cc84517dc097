"""The F distribution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import finfo
from ..ops import exp, lgamma, log, log1p, where
from . import constraints
from .distribution import Distribution
from .draws import log_standard_gamma
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class FisherSnedecor(Distribution):
    """Fisher's and Snedecor's F distribution of `df1` and `df2` degrees of freedom. Draws, of two gamma draws, are
    differentiable as those are.
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape, dtype = self._extended_shape(sample_shape), self.df1.dtype
        logs = [log_standard_gamma((0.5 * df).expand(shape)) - log(df.double()) for df in (self.df1, self.df2)]
        return exp(logs[0] - logs[1]).to(dtype).clamp(min=finfo(dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        a, b, ratio = self.df1 * 0.5, self.df2 * 0.5, self.df1 / self.df2
        gammas = lgamma(a + b) - lgamma(a) - lgamma(b)
        return gammas + a * log(ratio) + (a - 1) * log(value) - (a + b) * log1p(ratio * value)

    @property
    def mean(self) -> Tensor:
        """NaN where df2 <= 2, of shape `batch_shape`."""
        df2 = where(self.df2 <= 2, math.nan, self.df2)
        return df2 / (df2 - 2)

    @property
    def mode(self) -> Tensor:
        """NaN where df1 <= 2, of shape `batch_shape`."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return where(self.df1 <= 2, math.nan, found)

    @property
    def variance(self) -> Tensor:
        """NaN where df2 <= 4, of shape `batch_shape`."""
        df2 = where(self.df2 <= 4, math.nan, self.df2)
        return 2 * df2 * df2 * (self.df1 + df2 - 2) / (self.df1 * (df2 - 2) * (df2 - 2) * (df2 - 4))
