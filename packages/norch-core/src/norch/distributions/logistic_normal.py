"""The logistic-normal distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import constraints
from .normal import Normal
from .transformed_distribution import TransformedDistribution
from .transforms import StickBreakingTransform

if TYPE_CHECKING:
    from ..tensor import Tensor


class LogisticNormal(TransformedDistribution):
    """Vectors of n + 1 numbers that sum to 1, what StickBreakingTransform makes of n normal draws of means `loc` and
    standard deviations `scale`, in the last dim.
    """

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.simplex

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, False)
        if not base.batch_shape:
            base = base.expand((1,))
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Tensor:
        """The means, of shape batch_shape + (n)."""
        return self.base_dist.base_dist.loc  # type: ignore[no-any-return]

    @property
    def scale(self) -> Tensor:
        """The standard deviations, of shape batch_shape + (n)."""
        return self.base_dist.base_dist.scale  # type: ignore[no-any-return]
