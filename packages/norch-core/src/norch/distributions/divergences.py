"""The divergences of distributions of one kind."""

from __future__ import annotations

import math
from typing import Any

from ..ops import binary_cross_entropy_with_logits, broadcast_tensors, log, where
from .bernoulli import Bernoulli
from .categorical import Categorical
from .kl import register_kl
from .normal import Normal


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return 0.5 * (ratio * ratio + distance * distance - 1) - log(ratio)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    terms = p.probs * (p.logits - q.logits)
    terms = where(q.probs == 0, math.inf, terms)
    return where(p.probs == 0, 0.0, terms).sum(-1)


def _crossed(p: Any, q: Any) -> Any:
    logits, probs = broadcast_tensors(q.logits, p.probs)
    return binary_cross_entropy_with_logits(logits, probs, reduction="none")


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    return _crossed(p, q) - p.entropy()
