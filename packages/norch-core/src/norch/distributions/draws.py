"""Draws that distributions share: of the gamma, Poisson and binomial ones, in float64 and on the tensors' device."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..dtype import float64
from ..ops import (
    cat,
    digamma,
    exp,
    expm1,
    floor,
    lgamma,
    linspace,
    log,
    log1p,
    rand_like,
    sqrt,
    where,
)
from ..ops.generator import keyed
from ..ops.rejection import counts_by_inversion, log_gamma_draw, poisson_draw, transformed

if TYPE_CHECKING:
    from ..tensor import Tensor


def standard_exponential(like: Tensor) -> Tensor:
    """Exponential draws of rate 1, of the shape and dtype of `like`; never 0."""
    return (-log1p(-rand_like(like))).clamp(min=1e-38 if like.dtype.itemsize < 8 else 1e-300)


# --- Gamma ----------------------------------------------------------------------------------------------------------

STEP, COARSE_STEP = 0.055, 0.09  # for 13 digits, and for those of float32
LONG_RANGE = (-3.6, 2.2)  # of the nodes: truncation leaves 1e-13 of the integral
ROWS = 1 << 12  # whose integrands are in memory at once


def half_line(step: float, device: Any) -> tuple[Tensor, Tensor]:
    """Nodes and weights of an integral from 0 on, of what falls as e^-v does, or as a normal density, over a range of
    about 1: the double exponential formula of Takahashi and Mori (1974).
    """
    t = linspace(*LONG_RANGE, round((LONG_RANGE[1] - LONG_RANGE[0]) / step), dtype=float64, device=device)
    nodes = exp(math.pi / 2 * t.sinh())
    return nodes, nodes * t.cosh() * (math.pi / 2 * (LONG_RANGE[1] - LONG_RANGE[0]) / (len(t) - 1))


def _integrals(a: Tensor, log_z: Tensor, step: float = STEP) -> tuple[Tensor, Tensor, Tensor]:
    """Of the gamma distribution with concentration a, at z, over the density at z times z: which side is integrated
    (True: below z), its mass, and the derivative of log z by a where the quantile is kept.

    With t = z e^v, both are integrals of e^(a v - z (e^v - 1)) over one side of v = 0, on which it only falls, but for
    a factor e where z <= 1.
    """
    lower = log_z <= log(a).clamp(min=0)
    z, sign = exp(log_z), where(lower, -1.0, 1.0)
    most = where(a > z, a, z)
    rate = where(z <= 1, a, (a - z).abs()) + where(most > 1, sqrt(most), 0.0)
    nodes, weights = half_line(step, a.device)
    v = nodes * (sign / rate).unsqueeze(-1)
    values = exp(a.unsqueeze(-1) * v - z.unsqueeze(-1) * expm1(v)) * weights
    slopes = values * (v + (log_z - digamma(a)).unsqueeze(-1))
    return lower, values.sum(-1) / rate, slopes.sum(-1) * sign / rate


def _in_rows(a: Tensor, log_z: Tensor, step: float = STEP) -> tuple[Tensor, Tensor, Tensor]:
    if a.numel() <= ROWS:
        return _integrals(a, log_z, step)
    pieces = zip(a.reshape(-1).split(ROWS), log_z.reshape(-1).split(ROWS), strict=True)
    found = zip(*(_integrals(*piece, step) for piece in pieces), strict=True)
    lower, mass, slope = (cat(list(part)).reshape(a.shape) for part in found)
    return lower, mass, slope


class _Slope(Function):
    """The derivative of the logarithm of a gamma draw by the concentration, where its quantile is kept."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, log_z: Tensor, step: float) -> Tensor:
        return _in_rows(a, log_z, step)[2]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("a gamma draw cannot be differentiated twice by its concentration")


class _LogGamma(Function):
    """The logarithms of gamma draws of rate 1 by Marsaglia and Tsang (2000), differentiable by implicit gradients
    (Figurnov, Mohamed and Mnih, 2018).
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, step: float) -> Tensor:
        drawn = log_gamma_draw(*keyed(a))
        ctx.save_for_backward(a, drawn)
        ctx.step = step
        return drawn

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, drawn = ctx.saved_tensors
        return grads[0] * _Slope.apply(a, drawn, ctx.step), None


def log_standard_gamma(concentration: Tensor) -> Tensor:
    """The logarithms of gamma draws of rate 1, float64, differentiable once."""
    found: Tensor = _LogGamma.apply(concentration.to(float64), step_for(concentration))
    return found


def step_for(parameter: Tensor) -> float:
    return STEP if parameter.dtype is float64 else COARSE_STEP


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
        return -grads[0] * share * _Slope.apply(a, log_z, STEP), grads[0] * share / z


def gamma_cdf(concentration: Tensor, value: Tensor) -> Tensor:
    """The regularised lower incomplete gamma function, of tensors of one shape; in float64."""
    found: Tensor = _GammaCdf.apply(concentration.to(float64), value.to(float64))
    return found


# --- Counts ---------------------------------------------------------------------------------------------------------


def poisson(rate: Tensor) -> Tensor:
    """Poisson draws, float64; NaN for rates that are none."""
    found: Tensor = poisson_draw(*keyed(rate.to(float64)))
    return found


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
    drawn = transformed(many, (rand_like, rand_like), b, a, size * q + 0.5, log_alpha, log_mass, *of_mass)
    drawn = where(few, counted, drawn)
    return where(probs > 0.5, n - drawn, drawn)
