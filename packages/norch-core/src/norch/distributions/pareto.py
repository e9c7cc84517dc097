"""The Pareto distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import log
from . import constraints
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, ExpTransform
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Pareto(TransformedDistribution):
    """The Pareto distribution of type 1 from `scale` on, of shape `alpha`."""

    arg_constraints = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, False)
        super().__init__(base, [ExpTransform(), AffineTransform(0, self.scale)], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        new.scale, new.alpha = self.scale.expand(batch_shape), self.alpha.expand(batch_shape)
        return new

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return log(self.scale / self.alpha) + (1 + 1 / self.alpha)

    @property
    def mean(self) -> Tensor:
        """Infinite where alpha <= 1, of shape `batch_shape`."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        """Infinite where alpha <= 2, of shape `batch_shape`."""
        a = self.alpha.clamp(min=2)
        return self.scale * self.scale * a / ((a - 1) ** 2 * (a - 2))
