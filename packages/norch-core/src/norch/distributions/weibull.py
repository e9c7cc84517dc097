"""The Weibull distribution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ops import exp, lgamma, log, ones_like
from . import constraints
from .distribution import EULER
from .exponential import Exponential
from .transformed_distribution import TransformedDistribution
from .transforms import AffineTransform, PowerTransform
from .utils import broadcast_all

if TYPE_CHECKING:
    from ..tensor import Tensor


class Weibull(TransformedDistribution):
    """The Weibull distribution of `scale` and shape `concentration`."""

    arg_constraints = {"scale": constraints.positive, "concentration": constraints.positive}
    support = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = 1 / self.concentration
        base = Exponential(ones_like(self.scale), False)
        transforms = [PowerTransform(self.concentration_reciprocal), AffineTransform(0, self.scale)]
        super().__init__(base, transforms, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = super().expand(batch_shape, _instance)
        for name in ("scale", "concentration", "concentration_reciprocal"):
            setattr(new, name, getattr(self, name).expand(batch_shape))
        return new

    def entropy(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return EULER * (1 - inverse) + log(self.scale * inverse) + 1

    @property
    def mean(self) -> Tensor:
        return self.scale * exp(lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Tensor:
        return self.scale * (1 - self.concentration_reciprocal).clamp(min=0) ** self.concentration_reciprocal

    @property
    def variance(self) -> Tensor:
        inverse = self.concentration_reciprocal
        return self.scale**2 * (exp(lgamma(1 + 2 * inverse)) - exp(2 * lgamma(1 + inverse)))
