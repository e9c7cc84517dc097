"""Losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .activation import sigmoid, softmax
from .record import Array, Sample, case, exactly, index, samples, x


def reduced(loss: Array, reduction: str) -> Any:
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def elementwise(loss: Callable[..., Array]) -> Callable[..., Any]:
    """A loss of each element, then reduced."""
    return lambda a, b, *rest, reduction="mean", **options: reduced(loss(a, b, *rest, **options), reduction)


def between(name: str, loss: Callable[..., Array], low: float = -2.0, high: float = 2.0, **options: Any) -> Sample:
    """A loss between a prediction and a target of its shape."""

    def pair(*shape: int) -> tuple[Any, Any]:
        return x(*shape, low=low, high=high), x(*shape, low=low, high=high)

    cases = (
        case(*pair(2, 3)),
        case(*pair(2, 3), reduction="sum"),
        case(*pair(2, 3), reduction="none", **options),
        case(*pair(), **options),
    )
    return Sample(name, elementwise(loss), cases, "float", loose=4)


def _huber(a: Array, b: Array, delta: float = 1.0) -> Array:
    d = np.abs(a - b)
    return np.where(d < delta, d * d / 2, delta * (d - delta / 2))


def _entropy(p: Array, t: Array, weight: Any = 1) -> Array:
    return -(t * np.log(p) + (1 - t) * np.log(1 - p)) * weight


def _with_logits(v: Array, t: Array, weight: Any = 1, pos_weight: Any = 1) -> Array:
    return -(pos_weight * t * np.log(sigmoid(v)) + (1 - t) * np.log(sigmoid(-v))) * weight


def _divergence(v: Array, t: Array, reduction: str = "mean", log_target: bool = False) -> Any:
    loss = np.exp(t) * (t - v) if log_target else t * (np.log(t) - v)
    return loss.sum() / len(v) if reduction == "batchmean" else reduced(loss, reduction)


def _nll(v: Array, t: Array, weight: Any = None, ignore_index: int = -100, reduction: str = "mean") -> Any:
    """One target at a time."""
    v, t = (v[None], t[None]) if v.ndim == 1 else (v, t)
    losses, total = np.zeros(t.shape), 0.0
    for place in np.ndindex(t.shape):
        if t[place] != ignore_index:
            factor = 1.0 if weight is None else weight[t[place]]
            losses[place] = -factor * v[(place[0], t[place], *place[1:])]
            total += factor
    if reduction == "none":
        return losses
    return losses.sum() / total if reduction == "mean" else losses.sum()


def _cross_entropy(v: Array, t: Array, weight: Any = None, label_smoothing: float = 0.0, **options: Any) -> Any:
    logs = np.log(softmax(v, 1 if v.ndim > 1 else 0))
    if t.dtype.kind == "f":
        classes = v.shape[1]
        smooth = t * (1 - label_smoothing) + label_smoothing / classes
        return reduced(-(smooth * logs).sum(1), options.get("reduction", "mean"))
    hard = _nll(logs, t, weight, **options)
    if not label_smoothing:
        return hard
    return (1 - label_smoothing) * hard - label_smoothing * logs.mean(1).mean()


CLASSES = index([2, 0, 1])
INDEXED = (
    case(x(3, 4), CLASSES),
    case(x(3, 4), CLASSES, reduction="sum"),
    case(x(3, 4), CLASSES, reduction="none"),
    case(x(3, 4), CLASSES, ignore_index=0),
    case(x(2, 3, 2), index([[0, 2], [1, 1]])),
    case(x(4), index(3)),
)
WEIGHTED = (case(x(3, 4), CLASSES, x(4, low=0.5, high=2)),)

SAMPLES = samples(
    between("mse_loss", lambda a, b: (a - b) ** 2),
    between("l1_loss", lambda a, b: np.abs(a - b)),
    between("huber_loss", _huber, delta=0.7),
    between("smooth_l1_loss", lambda a, b, beta=1.0: _huber(a, b, beta) / beta, beta=0.7),
    Sample("binary_cross_entropy", elementwise(_entropy), (
        case(x(2, 3, low=0.1, high=0.9), x(2, 3, low=0, high=1)),
        case(x(2, 3, low=0.1, high=0.9), x(2, 3, low=0, high=1), x(3, low=0.5, high=2), reduction="none"),
    ), "float", loose=8),
    Sample("binary_cross_entropy_with_logits", elementwise(_with_logits), (
        case(x(2, 3), x(2, 3, low=0, high=1)),
        case(x(2, 3, low=-30, high=30), x(2, 3, low=0, high=1), reduction="sum"),
        case(x(2, 3), x(2, 3, low=0, high=1), x(3, low=0.5, high=2), reduction="none"),
        case(x(2, 3), x(2, 3, low=0, high=1), pos_weight=x(3, low=0.5, high=2)),
    ), "float", loose=8),
    Sample("kl_div", _divergence, (
        case(x(2, 3), x(2, 3, low=0.1, high=1)),
        case(x(2, 3), x(2, 3, low=0.1, high=1), reduction="batchmean"),
        case(x(2, 3), x(2, 3), reduction="none", log_target=True),
    ), "float", loose=8),
    Sample("nll_loss", _nll, INDEXED, "float", loose=4),
    Sample("nll_loss.weight", _nll, WEIGHTED, "float", loose=4, grad=False, call=lambda *a: _call(*a)),
    Sample("cross_entropy", _cross_entropy, (
        *INDEXED,
        case(x(3, 4), CLASSES, label_smoothing=0.1),
        case(x(3, 4), exactly(np.eye(4)[[1, 3, 0]] * 0.75 + 0.0625)),
        case(x(3, 4), exactly(np.eye(4)[[1, 3, 0]]), label_smoothing=0.25, reduction="sum"),
    ), "float", loose=8),
)  # fmt: skip


def _call(*args: Any) -> Any:
    from ...ops import nll_loss

    return nll_loss(*args)
