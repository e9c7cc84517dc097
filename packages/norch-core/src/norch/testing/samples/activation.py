"""Activations and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .elementwise import by_element, unary
from .record import Array, Sample, case, samples, x


def softmax(v: Array, dim: int) -> Array:
    e = np.exp(v - v.max(dim, keepdims=True))
    return np.asarray(e / e.sum(dim, keepdims=True))


def sigmoid(v: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-v)))


def activation(name: str, oracle: Callable[..., Any], *rest: Any, **more: Any) -> Sample:
    """A floating function of one variable; `rest` are further arguments of further calls."""
    options: dict[str, Any] = {"loose": 4} | more
    cases = (case(x(2, 3, low=-4, high=4)), case(x()), case(x(0, 2)), *[case(x(5), *given) for given in rest])
    return Sample(name, oracle, cases, "float", **options)


def _elu(v: Array, alpha: float = 1.0) -> Array:
    return np.where(v > 0, v, alpha * np.expm1(v))


def _gelu(v: Array, approximate: str = "none") -> Array:
    if approximate == "tanh":
        return np.asarray(0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))))
    return by_element(lambda e: e * 0.5 * math.erfc(-e / math.sqrt(2)))(v)


def _softplus(v: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    return np.where(v * beta > threshold, v, np.log1p(np.exp(v * beta)) / beta)


def _hard(v: Array) -> Array:
    return np.clip(v + 3, 0, 6) / 6


def _glu(v: Array, dim: int = -1) -> Array:
    a, b = np.split(v, 2, dim)
    return a * sigmoid(b)


def _prelu(v: Array, w: Array) -> Array:
    slope = w.reshape(-1, *(1,) * (v.ndim - 2)) if w.size > 1 else w.reshape(())
    return np.where(v > 0, v, v * slope)


ALONG = (case(x(2, 3), 1), case(x(2, 3, 2), 0), case(x(3), -1), case(x(2, 3, low=-30, high=30), dim=0))

SAMPLES = samples(
    unary("relu", lambda v: np.maximum(v, 0), takes="number", strict=False, gives="same"),
    activation("leaky_relu", lambda v, slope=0.01: np.where(v > 0, v, slope * v), (0.2,)),
    activation("elu", _elu, (0.5,)),
    activation("selu", lambda v: 1.0507009873554805 * _elu(v, 1.6732632423543772)),
    activation("celu", lambda v, alpha=1.0: np.where(v > 0, v, alpha * np.expm1(v / alpha)), (0.5,)),
    activation("hardtanh", lambda v, low=-1.0, high=1.0: np.clip(v, low, high), (-0.5, 1.5), strict=False),
    activation("relu6", lambda v: np.clip(v, 0, 6), strict=False),
    activation("hardsigmoid", _hard),
    activation("hardswish", lambda v: v * _hard(v)),
    Sample(
        "threshold",
        lambda v, t, value: np.where(v > t, v, value),
        (case(x(2, 3), 0.5, -1.0), case(x(), 0.1, 20), case(x(0, 2), 0.0, 0.0)),
        "float",
        strict=False,
    ),
    activation("hardshrink", lambda v, lambd=0.5: np.where(np.abs(v) > lambd, v, 0), (1.0,)),
    activation("softshrink", lambda v, lambd=0.5: v - np.clip(v, -lambd, lambd), (1.0,)),
    Sample(
        "prelu",
        _prelu,
        (case(x(2, 3), x(3)), case(x(2, 3, 2), x(1)), case(x(4), x(1)), case(x(), x()), case(x(0, 2), x(2))),
        "float",
    ),
    activation("gelu", _gelu, ("tanh",)),
    activation("silu", lambda v: v * sigmoid(v)),
    activation("mish", lambda v: v * np.tanh(_softplus(v))),
    activation("softplus", _softplus, (2.0, 1.5)),
    activation("softsign", lambda v: v / (1 + np.abs(v)), strict=False),
    activation("logsigmoid", lambda v: -_softplus(-v)),
    Sample("glu", _glu, (case(x(2, 4)), case(x(4, 2), 0)), "float", loose=4),
    Sample("softmax", softmax, ALONG, "float", loose=4),
    Sample("softmin", lambda v, dim: softmax(-v, dim), ALONG, "float", loose=4),
    Sample("log_softmax", lambda v, dim: np.log(softmax(v, dim)), ALONG, "float", loose=16),
)
