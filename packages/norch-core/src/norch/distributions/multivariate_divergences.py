"""The divergences of normal distributions of vectors, and of Wishart distributions."""

from __future__ import annotations

from typing import Any

from ..ops import sqrt
from .kl import register_kl
from .lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate_normal import MultivariateNormal, half_log_det, inverse_of_lower, times
from .wishart import Wishart


def _half_log_det(p: Any) -> Any:
    if isinstance(p, LowRankMultivariateNormal):
        return p._half_log_det()
    return half_log_det(p._unbroadcasted_scale_tril)


def _squares(matrix: Any, p: Any) -> Any:
    """The trace of matrix @ covariance of p @ matrix.mT."""
    if isinstance(p, LowRankMultivariateNormal):
        narrow, wide = matrix @ p.cov_factor, matrix * sqrt(p.cov_diag).unsqueeze(-2)
        return (narrow * narrow).sum((-2, -1)) + (wide * wide).sum((-2, -1))
    found = matrix @ p._unbroadcasted_scale_tril
    return (found * found).sum((-2, -1))


def _multivariate(p: Any, q: Any) -> Any:
    """Of p and q, each of full or low rank: only matrices of q's kind are made (Woodbury, 1950)."""
    distance = q.loc - p.loc
    if isinstance(q, LowRankMultivariateNormal):
        inside = inverse_of_lower(q._capacitance_tril) @ q._scaled()
        whole = ((p.variance + distance * distance) / q.cov_diag).sum(-1)
        squares = whole - _squares(inside, p) - (times(inside, distance) ** 2).sum(-1)
    else:
        inverse = inverse_of_lower(q._unbroadcasted_scale_tril)
        squares = _squares(inverse, p) + (times(inverse, distance) ** 2).sum(-1)
    return _half_log_det(q) - _half_log_det(p) + 0.5 * (squares - q.event_shape[0])


@register_kl(Wishart, Wishart)
def _wishart(p: Any, q: Any) -> Any:
    trace = _squares(inverse_of_lower(q._unbroadcasted_scale_tril), p)
    expected = (p.df - q.df) / 2 * p._expected_log_det() + p.df / 2 * (trace - p.event_shape[-1])
    return expected + q._normaliser() - p._normaliser()


for _p in (MultivariateNormal, LowRankMultivariateNormal):
    for _q in (MultivariateNormal, LowRankMultivariateNormal):
        register_kl(_p, _q)(_multivariate)
