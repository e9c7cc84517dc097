"""The divergences of distributions of different kinds: minus the entropy of p and the expectation of log q.

Infinite where p has draws that q has not.
"""

from __future__ import annotations

import math
from typing import Any

from ..ops import digamma, erf, exp, full_like, lgamma, log, log1p, where, xlogy
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .continuous_bernoulli import ContinuousBernoulli
from .distribution import EULER, HALF_LOG_2_PI
from .exponential import Exponential
from .gamma import Gamma
from .gumbel import Gumbel
from .kl import register_kl
from .laplace import Laplace
from .normal import Normal
from .pareto import Pareto
from .poisson import Poisson
from .uniform import Uniform


def _bounds(p: Any) -> tuple[Any, Any]:
    if isinstance(p, Uniform):
        return p.low, p.high
    if isinstance(p, Pareto):
        return p.scale, math.inf
    if isinstance(p, Beta | ContinuousBernoulli):
        return 0.0, 1.0
    return (0.0, math.inf) if isinstance(p, Exponential | Gamma) else (-math.inf, math.inf)


# --- Expectations ---------------------------------------------------------------------------------------------------


def _mean_log_of_uniform(low: Any, high: Any) -> Any:
    low = low.clamp(min=0)
    return (xlogy(high, high) - xlogy(low, low)) / (high - low) - 1


def _mean_log(p: Any) -> Any:
    """The expectation of log x."""
    if isinstance(p, Beta):
        return digamma(p.concentration1) - digamma(p.concentration1 + p.concentration0)
    if isinstance(p, Gamma):
        return digamma(p.concentration) - log(p.rate)
    if isinstance(p, Exponential):
        return -EULER - log(p.rate)
    if isinstance(p, Pareto):
        return log(p.scale) + 1 / p.alpha
    return _mean_log_of_uniform(p.low, p.high)


def _mean_log_rest(p: Any) -> Any:
    """The expectation of log(1 - x)."""
    if isinstance(p, Beta):
        return digamma(p.concentration0) - digamma(p.concentration1 + p.concentration0)
    return _mean_log_of_uniform(1 - p.high, 1 - p.low)


def _mean_exp(p: Any, t: Any) -> Any:
    """The expectation of exp(-t * x)."""
    if isinstance(p, Normal):
        return exp(t * t * p.variance / 2 - t * p.loc)
    if isinstance(p, Gamma):
        return (1 + t / p.rate) ** -p.concentration
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    return (exp(-t * p.low) - exp(-t * p.high)) / (t * (p.high - p.low))


def _mean_distance(p: Normal, loc: Any) -> Any:
    """The expectation of |x - loc|."""
    z = (p.loc - loc) / (math.sqrt(2) * p.scale)
    return p.scale * math.sqrt(2 / math.pi) * exp(-z * z) + (p.loc - loc) * erf(z)


# --- The expectation of log q ---------------------------------------------------------------------------------------


def _of_beta(p: Any, q: Beta) -> Any:
    a, b = q.concentration1, q.concentration0
    return (a - 1) * _mean_log(p) + (b - 1) * _mean_log_rest(p) - q._log_normalizer(a, b)


def _of_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Any:
    return q._log_constant() + p.mean * q.logits + log1p(-q.probs)


def _of_exponential(p: Any, q: Exponential) -> Any:
    return log(q.rate) - q.rate * p.mean


def _of_gamma(p: Any, q: Gamma) -> Any:
    a = q.concentration
    return a * log(q.rate) + (a - 1) * _mean_log(p) - q.rate * p.mean - lgamma(a)


def _of_gumbel(p: Any, q: Gumbel) -> Any:
    return (q.loc - p.mean) / q.scale - exp(q.loc / q.scale) * _mean_exp(p, 1 / q.scale) - log(q.scale)


def _of_laplace(p: Any, q: Laplace) -> Any:
    return -log(2 * q.scale) - _mean_distance(p, q.loc) / q.scale


def _of_normal(p: Any, q: Normal) -> Any:
    squares = p.variance + (p.mean - q.loc) ** 2
    return -log(q.scale) - HALF_LOG_2_PI - squares / (2 * q.variance)


def _of_pareto(p: Any, q: Pareto) -> Any:
    return log(q.alpha) + q.alpha * log(q.scale) - (q.alpha + 1) * _mean_log(p)


def _of_uniform(p: Any, q: Uniform) -> Any:
    return -log(q.high - q.low)


_OF = {
    Beta: (_of_beta, (Uniform,)),
    ContinuousBernoulli: (_of_continuous_bernoulli, (Beta, Uniform)),
    Exponential: (_of_exponential, (Beta, ContinuousBernoulli, Gamma, Pareto, Uniform)),
    Gamma: (_of_gamma, (Beta, Exponential, Pareto, Uniform)),
    Gumbel: (_of_gumbel, (Exponential, Gamma, Normal, Uniform)),
    Laplace: (_of_laplace, (Normal,)),
    Normal: (_of_normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Laplace, Pareto, Uniform)),
    Pareto: (_of_pareto, (Exponential, Gamma, Uniform)),
    Uniform: (_of_uniform, (Beta, ContinuousBernoulli)),
}
"""By the kind of q: the expectation of its log_prob, and the kinds of p whose draws it can have, in closed form."""

_ALWAYS_OUTSIDE = {
    Beta: (Exponential, Gamma, Gumbel, Laplace, Normal, Pareto),
    ContinuousBernoulli: (Exponential, Gamma, Gumbel, Laplace, Normal, Pareto),
    Exponential: (Gumbel, Laplace, Normal),
    Gamma: (Gumbel, Laplace, Normal),
    Pareto: (Beta, ContinuousBernoulli, Gumbel, Laplace, Normal),
    Uniform: (Exponential, Gamma, Gumbel, Laplace, Normal, Pareto),
}


def _register(type_p: type, type_q: type, expected: Any) -> None:
    @register_kl(type_p, type_q)
    def divergence(p: Any, q: Any) -> Any:
        found = -p.entropy() - expected(p, q)
        (low, high), (lowest, highest) = _bounds(p), _bounds(q)
        low, high = found.new_ones(()) * low, found.new_ones(()) * high
        return where((low < lowest) | (high > highest), math.inf, found)


for _q, (_expected, _kinds) in _OF.items():
    for _p in _kinds:
        _register(_p, _q, _expected)


def _infinite(p: Any, q: Any) -> Any:
    return full_like(p.mean + q.mean, math.inf)


for _q, _kinds in _ALWAYS_OUTSIDE.items():
    for _p in _kinds:
        register_kl(_p, _q)(_infinite)
for _q in (Bernoulli, Binomial):
    register_kl(Poisson, _q)(_infinite)


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * log(q.rate) - q.rate)
