"""The log-normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import exp, expm1
from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import ExpTransform

if TYPE_CHECKING:
    from ..tensor import Tensor


class LogNormal(TransformedDistribution):
    """exp(x) of normal draws x of mean `loc` and standard deviation `scale`."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.positive

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, False), ExpTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm, of shape `batch_shape`."""
        return self.base_dist.loc  # type: ignore[no-any-return]

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm, of shape `batch_shape`."""
        return self.base_dist.scale  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc  # type: ignore[no-any-return]

    @property
    def mean(self) -> Tensor:
        return exp(self.loc + self.scale * self.scale / 2)

    @property
    def mode(self) -> Tensor:
        return exp(self.loc - self.scale * self.scale)

    @property
    def variance(self) -> Tensor:
        square = self.scale * self.scale
        return expm1(square) * exp(2 * self.loc + square)
