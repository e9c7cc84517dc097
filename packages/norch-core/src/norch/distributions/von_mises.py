"""The von Mises distribution, of angles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..dtype import float64
from ..ops import acos, arange, cos, exp, log, ones_like, rand_like, sign, sqrt, where
from ..ops.rejection import until_accepted
from . import constraints
from .distribution import Distribution
from .utils import broadcast_all, lazy_property

if TYPE_CHECKING:
    from ..tensor import Tensor

NODES = 64


def _scaled_bessel(order: int, x: Tensor) -> Tensor:
    """The modified Bessel function of the first kind times exp(-x), of order 0 or 1; in float64.

    Up to 30 by the trapezoidal rule for its integral over the circle, which is exact there, above by the asymptotic
    series (DLMF 10.32.1 and 10.40.1).
    """
    x = x.to(float64)
    near = x < 30
    angles = cos((arange(NODES, dtype=float64, device=x.device) + 0.5) * (math.pi / NODES))
    terms = exp(where(near, x, 1.0).unsqueeze(-1) * (angles - 1))
    mean = (terms * angles if order else terms).mean(-1)
    far = where(near, 30.0, x)
    total = term = ones_like(far)
    for k in range(1, 25):
        term = term * ((2 * k - 1) ** 2 - 4 * order * order) / (8 * k * far)
        total = total + term
    return where(near, mean, total / sqrt(2 * math.pi * far))


class VonMises(Distribution):
    """Angles, in radians, about `loc`, the closer the greater `concentration`. Draws by Best's and Fisher's rejection
    (1979), in float64. `variance` is the circular one.
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        normaliser = log(_scaled_bessel(0, self.concentration)).to(self.loc.dtype) + math.log(2 * math.pi)
        return self.concentration * (cos(value - self.loc) - 1) - normaliser

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws, of shape sample_shape + batch_shape, from -pi to pi."""
        shape = self._extended_shape(sample_shape)
        with no_grad():
            k = self.concentration.to(float64).expand(shape)
            tau = 1 + sqrt(1 + 4 * k * k)
            rho = 2 * k / (tau + sqrt(2 * tau))  # (tau - sqrt(2 tau)) / (2 k), without cancellation
            r = (1 + rho * rho) / (2 * rho)

            def propose(turn: Tensor, v: Tensor, side: Tensor, k: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
                z = cos(math.pi * turn)
                f = (1 + r * z) / (r + z)
                c, u = k * (r - f), 1 - v
                accepted = (c * (2 - c) > u) | (log(c / u) + 1 - c >= 0)
                return sign(side - 0.5) * acos(f.clamp(-1, 1)), accepted

            angle = until_accepted((k > 0) & (k < math.inf), (rand_like,) * 3, propose, k, r)
            return ((angle + math.pi + self.loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """`loc`, the circular mean, of shape `batch_shape`."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance, of shape `batch_shape`."""
        ratio = _scaled_bessel(1, self.concentration) / _scaled_bessel(0, self.concentration)
        return (1 - ratio).to(self.loc.dtype)
