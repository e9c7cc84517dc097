"""Draws that no op makes: of the gamma, Poisson and binomial distributions, all in float64 and on the tensors' device.

By rejection, in rounds on whole tensors until all elements have a value: how many, Python reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..dtype import float64
from ..ops import (
    cat,
    digamma,
    exp,
    expm1,
    floor,
    full_like,
    lgamma,
    linspace,
    log,
    log1p,
    rand_like,
    randn_like,
    sqrt,
    where,
)
from ..ops.sampling import counts_by_inversion, gamma_proposal, poisson_of_uniform

if TYPE_CHECKING:
    from ..tensor import Tensor


MANY = 1 << 16  # elements: to choose among fewer, in shapes that are always new, takes longer than to compute all


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
    value, left = full_like(wanted, math.nan, dtype=float64), wanted
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


def standard_exponential(like: Tensor) -> Tensor:
    """Exponential draws of rate 1, of the shape and dtype of `like`; never 0."""
    return (-log1p(-rand_like(like))).clamp(min=1e-38 if like.dtype.itemsize < 8 else 1e-300)


# --- Gamma ----------------------------------------------------------------------------------------------------------

STEP = 0.055
LONG_RANGE = (-3.6, 2.2)  # of the nodes: truncation leaves 1e-13 of the integral
ROWS = 1 << 14  # whose integrands are in memory at once


def _integrals(a: Tensor, log_z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of the gamma distribution with concentration a, at z, over the density at z times z: which side is integrated
    (True: below z), its mass, and the derivative of log z by a where the quantile is kept.

    With t = z e^v, both are integrals of e^(a v - z (e^v - 1)) over one side of v = 0, on which it only falls, but for
    a factor e where z <= 1: by the double exponential formula of Takahashi and Mori (1974).
    """
    lower = log_z <= log(a).clamp(min=0)
    z, sign = exp(log_z), where(lower, -1.0, 1.0)
    most = where(a > z, a, z)
    rate = where(z <= 1, a, (a - z).abs()) + where(most > 1, sqrt(most), 0.0)
    t = linspace(*LONG_RANGE, round((LONG_RANGE[1] - LONG_RANGE[0]) / STEP), dtype=float64, device=a.device)
    width = (LONG_RANGE[1] - LONG_RANGE[0]) / (len(t) - 1)
    nodes = exp(math.pi / 2 * t.sinh())
    weights = nodes * t.cosh() * (math.pi / 2 * width)
    v = nodes * (sign / rate).unsqueeze(-1)
    values = exp(a.unsqueeze(-1) * v - z.unsqueeze(-1) * expm1(v)) * weights
    slopes = values * (v + (log_z - digamma(a)).unsqueeze(-1))
    return lower, values.sum(-1) / rate, slopes.sum(-1) * sign / rate


def _in_rows(a: Tensor, log_z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if a.numel() <= ROWS:
        return _integrals(a, log_z)
    pieces = zip(a.reshape(-1).split(ROWS), log_z.reshape(-1).split(ROWS), strict=True)
    found = zip(*(_integrals(*piece) for piece in pieces), strict=True)
    lower, mass, slope = (cat(list(part)).reshape(a.shape) for part in found)
    return lower, mass, slope


class _Slope(Function):
    """The derivative of the logarithm of a gamma draw by the concentration, where its quantile is kept."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, log_z: Tensor) -> Tensor:
        return _in_rows(a, log_z)[2]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("a gamma draw cannot be differentiated twice by its concentration")


class _LogGamma(Function):
    """The logarithms of gamma draws of rate 1 by Marsaglia and Tsang (2000), differentiable by implicit gradients
    (Figurnov, Mohamed and Mnih, 2018).
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        def propose(normal: Tensor, uniform: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
            proposed = gamma_proposal(normal, uniform, a)
            return proposed, proposed == proposed

        drawn = until_accepted((a > 0) & (a < math.inf), (randn_like, rand_like), propose, a)
        drawn = where(a < 1, drawn - standard_exponential(a) / a, drawn)
        ctx.save_for_backward(a, drawn)
        return drawn

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, drawn = ctx.saved_tensors
        return grads[0] * _Slope.apply(a, drawn)


def log_standard_gamma(concentration: Tensor) -> Tensor:
    """The logarithms of gamma draws of rate 1, float64, differentiable once."""
    found: Tensor = _LogGamma.apply(concentration.to(float64))
    return found


class _GammaCdf(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, z: Tensor) -> Tensor:
        log_z = log(z.clamp(min=1e-300))
        lower, mass, _ = _in_rows(a, log_z)
        part = exp(a * log_z - exp(log_z) - lgamma(a)) * mass
        ctx.save_for_backward(a, z)
        found = where(lower, part, 1 - part)
        return where(z <= 0, 0.0, where(z < math.inf, found, 1.0))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, z = ctx.saved_tensors
        log_z = log(z.clamp(min=1e-300))
        share = exp(a * log_z - z - lgamma(a))
        return -grads[0] * share * _Slope.apply(a, log_z), grads[0] * share / z


def gamma_cdf(concentration: Tensor, value: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function, of tensors of one shape; in float64."""
    found: Tensor = _GammaCdf.apply(concentration.to(float64), value.to(float64))
    return found


# --- Counts ---------------------------------------------------------------------------------------------------------


def _transformed(
    wanted: Tensor,
    b: Tensor,
    a: Tensor,
    centre: Tensor,
    log_alpha: Tensor,
    log_mass: Callable[..., Tensor],
    *of_mass: Tensor,
) -> Tensor:
    """Draws of counts by transformed rejection (Hoermann, 1993): of these constants, each a tensor, and of
    log_mass(k, *of_mass), the logarithm of the probability of k."""

    def propose(u: Tensor, v: Tensor, b: Tensor, a: Tensor, centre: Tensor, log_alpha: Tensor, *of_mass: Tensor) -> Any:
        u = u - 0.5
        us = (0.5 - u.abs()).clamp(min=1e-12)
        k = floor((2 * a / us + b) * u + centre)
        return k, log1p(-v) + log_alpha - log(a / (us * us) + b) <= log_mass(k, *of_mass)

    return until_accepted(wanted, (rand_like, rand_like), propose, b, a, centre, log_alpha, *of_mass)


def poisson(rate: Tensor) -> Tensor:
    """Poisson draws, float64; NaN for rates that are none."""
    rate = rate.to(float64)
    few, many = (rate >= 0) & (rate < 10), (rate >= 10) & (rate < math.inf)
    small = where(few, rate, 1.0)
    counted = poisson_of_uniform(rand_like(small), exp(-small), small)
    if not bool(many.any()):
        return where(few, counted, math.nan)
    large = where(many, rate, 10.0)
    log_rate, b = log(large), 0.931 + 2.53 * sqrt(large)

    def log_mass(k: Tensor, rate: Tensor, log_rate: Tensor) -> Tensor:
        return where(k < 0, -math.inf, k * log_rate - rate - lgamma(k.clamp(min=0) + 1))

    log_alpha = log(1.1239 + 1.1328 / (b - 3.4))
    drawn = _transformed(many, b, 0.02483 * b - 0.059, large + 0.43, log_alpha, log_mass, large, log_rate)
    return where(few, counted, drawn)


def binomial(count: Tensor, probs: Tensor) -> Tensor:
    """Binomial draws of tensors of one shape, float64; NaN where these are no counts and probabilities."""
    n, probs = count.to(float64), probs.to(float64)
    p = where(probs > 0.5, 1 - probs, probs)
    valid = (n >= 0) & (n < math.inf) & (p >= 0)
    few, many = valid & (n * p < 10), valid & (n * p >= 10)
    odds = p / (1 - p)
    mass = exp(n * log1p(-p))
    drawn = rand_like(mass)
    counted = counts_by_inversion(drawn, mass, few & (drawn >= mass), lambda k: odds * ((n + 1 - k).clamp(min=0) / k))
    size, q = where(many, n, 40.0), where(many, p, 0.5)
    spread, logits = sqrt(size * q * (1 - q)), log(q / (1 - q))
    b = 1.15 + 2.53 * spread
    mode = floor((size + 1) * q)

    def log_factorials(k: Tensor, size: Tensor) -> Tensor:
        return lgamma(k + 1) + lgamma(size - k + 1)

    def log_mass(k: Tensor, size: Tensor, mode: Tensor, at_mode: Tensor, logits: Tensor) -> Tensor:
        inside = (k >= 0) & (k <= size)
        k = where(inside, k, 0.0)
        return where(inside, at_mode - log_factorials(k, size) + (k - mode) * logits, -math.inf)

    a = 0.0248 * b + 0.01 * q - 0.0873
    log_alpha, of_mass = log((2.83 + 5.1 / b) * spread), (size, mode, log_factorials(mode, size), logits)
    drawn = _transformed(many, b, a, size * q + 0.5, log_alpha, log_mass, *of_mass)
    drawn = where(few, counted, drawn)
    return where(probs > 0.5, n - drawn, drawn)
