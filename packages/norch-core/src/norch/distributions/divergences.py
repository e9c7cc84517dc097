"""The divergences of distributions of one kind."""

from __future__ import annotations

import math
from typing import Any

from ..ops import binary_cross_entropy_with_logits, broadcast_tensors, digamma, exp, lgamma, log, log1p, where
from .bernoulli import Bernoulli
from .beta import Beta
from .binomial import Binomial
from .categorical import Categorical
from .cauchy import Cauchy
from .continuous_bernoulli import ContinuousBernoulli
from .dirichlet import Dirichlet
from .distribution import EULER
from .exp_family import ExponentialFamily
from .exponential import Exponential
from .gamma import Gamma
from .geometric import Geometric
from .gumbel import Gumbel
from .half_normal import HalfNormal
from .independent import Independent
from .kl import kl_divergence, register_kl
from .laplace import Laplace
from .normal import Normal
from .one_hot_categorical import OneHotCategorical
from .pareto import Pareto
from .poisson import Poisson
from .transformed_distribution import TransformedDistribution
from .uniform import Uniform
from .utils import sum_rightmost


def _none(p: Any, q: Any, why: str) -> NotImplementedError:
    return NotImplementedError(f"kl_divergence(): norch has none of {type(p).__name__} and {type(q).__name__}{why}")


# --- Discrete -------------------------------------------------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    logits, probs, theirs = broadcast_tensors(q.logits, p.probs, q.probs)
    found = binary_cross_entropy_with_logits(logits, probs, reduction="none") - p.entropy()
    never = ((theirs == 0) & (probs > 0)) | ((theirs == 1) & (probs < 1))
    return where(never, math.inf, found)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if q._reads(q.total_count) and bool((p.total_count < q.total_count).any()):
        raise _none(p, q, " where p has a smaller total_count")
    one = p.probs * (p.logits - q.logits) + log1p(-p.probs) - log1p(-q.probs)
    return where(p.total_count > q.total_count, math.inf, p.total_count * one)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = where(q.probs == 0, math.inf, terms)
    return where(p.probs == 0, 0.0, terms).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (log(p.rate) - log(q.rate)) - (p.rate - q.rate)


# --- Continuous -----------------------------------------------------------------------------------------------------


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    a, b = p.concentration1, p.concentration0
    c, d = q.concentration1, q.concentration0
    normalisers = q._log_normalizer(c, d) - p._log_normalizer(a, b)
    return normalisers + (a - c) * digamma(a) + (b - d) * digamma(b) + (c + d - a - b) * digamma(a + b)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    return log(((p.scale + q.scale) ** 2 + (p.loc - q.loc) ** 2) / (4 * p.scale * q.scale))


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    constants = p._log_constant() + log1p(-p.probs) - q._log_constant() - log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + constants


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    total = a.sum(-1, True)
    normalisers = lgamma(total.squeeze(-1)) - lgamma(b.sum(-1)) - (lgamma(a) - lgamma(b)).sum(-1)
    return normalisers + ((a - b) * (digamma(a) - digamma(total))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1 - log(ratio)


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    found = b * log(p.rate / q.rate) + lgamma(b) - lgamma(a) + (a - b) * digamma(a)
    return found + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return distance - log(ratio) + ratio * EULER + exp(lgamma(1 + ratio) - distance) - (1 + EULER)


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale - log(ratio) + ratio * exp(-distance / p.scale) - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return 0.5 * (ratio * ratio + distance * distance - 1) - log(ratio)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    found = q.alpha * log(p.scale / q.scale) - log(ratio) + ratio - 1
    return where(p.scale < q.scale, math.inf, found)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    return where((q.low > p.low) | (q.high < p.high), math.inf, log((q.high - q.low) / (p.high - p.low)))


# --- Of others ------------------------------------------------------------------------------------------------------


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Any:
    if type(p) is not type(q):
        raise _none(p, q, "")
    normaliser, parameters, expected = p._expected()
    others = q._natural_params
    result = q._log_normalizer(*others) - normaliser
    for own, other, g in zip(parameters, others, expected, strict=True):
        result = result - sum_rightmost((other - own) * g, len(q.event_shape))
    return result


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise _none(p, q, " of different reinterpreted_batch_ndims")
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise _none(p, q, " with different transforms or event shapes")
    return kl_divergence(p.base_dist, q.base_dist)
