"""Draws by rejection, in rounds until each element has a value: of the gamma and the Poisson distribution, in float64.

They are keyed as draws of `random` are, by the seed and the offset that their generator gives: the first numbers are
drawn at that offset, those of the rounds at others, 2**48 apart, which no count of draws comes to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from ..dtype import float64
from ..spec import Spec
from .creation import fill_spec
from .elementwise.arithmetic import abs as absolute
from .elementwise.arithmetic import exp, floor, gt, log, log1p, lt, sqrt, where
from .elementwise.gamma import lgamma
from .families import composite, infer_elementwise
from .generator import draw_keyed

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .creation import Scalar

MANY = 1 << 16  # elements: to choose among fewer, in shapes that are always new, takes longer than to compute all
_MOST = 120  # counts of an expectation below 10 are less, but for 1 of 10 ** 80


def until_accepted(
    wanted: Tensor,
    draws: Sequence[Callable[[Tensor], Tensor]],
    propose: Callable[..., tuple[Tensor, Tensor]],
    *given: Tensor,
) -> Tensor:
    """Where `wanted`, the first of the proposals that was accepted; else NaN.

    propose(*drawn, *given) gives a round's proposals and which it accepts, of what `draws`, such as rand_like, have
    drawn. Of many elements those that are left after the first round are proposed for alone, with the same draws.
    """
    value, left = fill_spec(wanted.spec.like(dtype=float64), math.nan), wanted
    while bool(left.any()):
        drawn = [draw(given[0]) for draw in draws]
        if left is wanted or wanted.numel() < MANY:
            proposed, accepted = propose(*drawn, *given)
            value = where(left & accepted, proposed, value)
            left = left & ~accepted
        else:
            places = left.reshape(-1).nonzero().reshape(-1)
            proposed, accepted = propose(*[x.reshape(-1)[places] for x in (*drawn, *given)])
            found = where(accepted, proposed, math.nan)
            value = value.reshape(-1).index_put((places,), found).reshape(wanted.shape)
            left = left.reshape(-1).index_put((places,), ~accepted).reshape(wanted.shape)
    return value


def _keyed(kinds: Sequence[str], seed: int, offset: int) -> list[Callable[[Tensor], Tensor]]:
    """What draws the numbers of these kinds of one round after another."""
    numbers = count(1)

    def drawing(kind: str) -> Callable[[Tensor], Tensor]:
        return lambda like: draw_keyed(like.spec.like(), kind, seed, (offset + (next(numbers) << 48)) % 2**64)

    return [drawing(kind) for kind in kinds]


def _infer_drawn(parameter: Spec, seed: type, offset: type) -> Spec:
    return parameter.like()


# --- Gamma ----------------------------------------------------------------------------------------------------------


@composite(
    lambda normal, uniform, concentration: infer_elementwise("gamma_proposal", (normal, uniform, concentration)),
    name="gamma_proposal",
    elementwise=True,
)
def gamma_proposal(normal: Tensor, uniform: Tensor, concentration: Tensor) -> Tensor:
    """The logarithm of a gamma draw, of a concentration below 1 that of one more (Marsaglia and Tsang, 2000); NaN where
    these draws give none."""
    x, a = normal, concentration
    d = where(lt(a, 1), a + 1, a) - 1 / 3
    root = 1 + x * (1 / sqrt(9 * d))
    v = root * root * root
    is_positive = gt(v, 0)
    bound = 0.5 * x * x + d - d * v + d * log(where(is_positive, v, 1.0))
    return where(is_positive & lt(log(uniform), bound), log(d * v.clamp(min=1e-300)), math.nan)


@composite(_infer_drawn, name="log_gamma_draw")
def log_gamma_draw(concentration: Tensor, seed: Scalar, offset: Scalar) -> Tensor:
    """Logarithms of gamma draws of rate 1, float64; NaN for concentrations that are not positive and finite.

    After Marsaglia and Tsang (2000): a round is a normal and a uniform draw. Of a concentration a below 1 the draw of
    one more is made smaller by a uniform number to the power of 1 / a, drawn first.
    """

    def propose(normal: Tensor, uniform: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        proposed = gamma_proposal(normal, uniform, a)
        return proposed, proposed == proposed

    a = concentration
    uniform = draw_keyed(a.spec.like(), "uniform", int(seed), int(offset))
    draws = _keyed(("normal", "uniform"), int(seed), int(offset))
    drawn = until_accepted((a > 0) & (a < math.inf), draws, propose, a)
    return where(a < 1, drawn + log1p(-uniform.clamp(min=1e-300)) / a, drawn)


# --- Poisson --------------------------------------------------------------------------------------------------------


def counts_by_inversion(drawn: Tensor, mass: Tensor, left: Tensor, ratio: Callable[[int], Tensor]) -> Tensor:
    """The counts where uniform draws lie, of those `left`: `mass` is the probability of 0, and ratio(k) that of k over
    that of k - 1."""
    below, value = mass, fill_spec(mass.spec, 0)
    for k in range(1, _MOST):
        if not bool(left.any().item()):
            break
        value = where(left, float(k), value)
        mass = mass * ratio(k)
        below = below + mass
        left = left & (drawn >= below)
    return value


@composite(lambda drawn, mass, rate: drawn.like(tuple(drawn.shape)), name="poisson_of_uniform")
def poisson_of_uniform(drawn: Tensor, mass: Tensor, rate: Tensor) -> Tensor:
    """Poisson draws of rates below 10 from uniform ones; mass: exp(-rate)."""
    return counts_by_inversion(drawn, mass, drawn >= mass, lambda k: rate / k)


def transformed(
    wanted: Tensor,
    draws: Sequence[Callable[[Tensor], Tensor]],
    b: Tensor,
    a: Tensor,
    centre: Tensor,
    log_alpha: Tensor,
    log_mass: Callable[..., Tensor],
    *of_mass: Tensor,
) -> Tensor:
    """Draws of counts by transformed rejection (Hoermann, 1993): of these constants, each a tensor, and of
    log_mass(k, *of_mass), the logarithm of the probability of k. draws: what makes two uniform draws."""

    def propose(u: Tensor, v: Tensor, b: Tensor, a: Tensor, centre: Tensor, log_alpha: Tensor, *of_mass: Tensor) -> Any:
        u = u - 0.5
        us = (0.5 - absolute(u)).clamp(min=1e-12)
        k = floor((2 * a / us + b) * u + centre)
        return k, log1p(-v) + log_alpha - log(a / (us * us) + b) <= log_mass(k, *of_mass)

    return until_accepted(wanted, draws, propose, b, a, centre, log_alpha, *of_mass)


@composite(_infer_drawn, name="poisson_draw")
def poisson_draw(rate: Tensor, seed: Scalar, offset: Scalar) -> Tensor:
    """Poisson draws, float64; NaN for rates that are not from 0 on and finite. Those below 10 by inversion of a uniform
    draw, others by transformed rejection (Hoermann, 1993), whose rounds are two uniform draws."""
    few, many = (rate >= 0) & (rate < 10), (rate >= 10) & (rate < math.inf)
    small = where(few, rate, 1.0)
    uniform = draw_keyed(rate.spec.like(), "uniform", int(seed), int(offset))
    counted = poisson_of_uniform(uniform, exp(-small), small)
    if not bool(many.any()):
        return where(few, counted, math.nan)
    large = where(many, rate, 10.0)
    log_rate, b = log(large), 0.931 + 2.53 * sqrt(large)

    def log_mass(k: Tensor, rate: Tensor, log_rate: Tensor) -> Tensor:
        return where(k < 0, -math.inf, k * log_rate - rate - lgamma(k.clamp(min=0) + 1))

    log_alpha = log(1.1239 + 1.1328 / (b - 3.4))
    draws = _keyed(("uniform", "uniform"), int(seed), int(offset))
    drawn = transformed(many, draws, b, 0.02483 * b - 0.059, large + 0.43, log_alpha, log_mass, large, log_rate)
    return where(few, counted, drawn)
