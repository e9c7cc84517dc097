"""Special functions, signs and divisors."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from .elementwise import binary, by_element, unary
from .record import Array, Sample, case, exactly, samples, x


def _erfinv(v: float) -> float:
    if not -1 < v < 1:
        return math.copysign(math.inf, v) if abs(v) == 1 else math.nan
    y = NormalDist().inv_cdf((v + 1) / 2) / math.sqrt(2)
    for _ in range(2):
        y += (math.erfc(abs(y)) - (1 - abs(v))) * math.copysign(math.exp(y * y), y) * math.sqrt(math.pi) / 2
    return y


def _logit(v: Array, eps: float | None = None) -> Array:
    p = v if eps is None else np.clip(v, eps, 1 - eps)
    return np.log(p / (1 - p))


def _xlogy(a: Array, b: Array) -> Array:
    return np.where((a == 0) & ~np.isnan(b), 0.0, np.asarray(a, float) * np.log(b))


def _digamma(v: float) -> float:
    if v <= 0 and v == int(v):
        return math.nan if v else -math.inf
    steps = 0.0
    while v < 30:
        steps, v = steps - 1 / v, v + 1
    return steps + math.log(v) - 1 / (2 * v) - 1 / (12 * v**2) + 1 / (120 * v**4) - 1 / (252 * v**6)


def _trigamma(v: float) -> float:
    steps = 0.0
    while v < 30:
        steps, v = steps + 1 / v**2, v + 1
    return steps + 1 / v + 1 / (2 * v**2) + 1 / (6 * v**3) - 1 / (30 * v**5) + 1 / (42 * v**7)


def _flag(name: str, oracle: Any) -> Sample:
    return unary(name, oracle, gives="bool", grad=False)


SAMPLES = samples(
    unary("erfc", by_element(math.erfc)),
    Sample("erfinv", by_element(_erfinv), (case(x(2, 3, low=-0.95, high=0.95)), case(x(low=0.1, high=0.9)),
           case(x(0, 3)), case(exactly([0.999, -0.9999, 0.0]))), gives="float", loose=30,
           takes="float", strict=False),
    unary("lgamma", by_element(lambda v: math.inf if v <= 0 and v == int(v) else math.lgamma(v)), 0.2, 5, special=False,
          loose=4),
    unary("digamma", by_element(_digamma), 0.2, 5, special=False, loose=4),
    Sample("polygamma", lambda n, v: by_element(_trigamma)(v), (case(1, x(2, 3, low=0.2, high=5)),), "float",
           strict=False, loose=8),
    unary("exp2", lambda v: np.exp2(v.astype(float))),
    Sample("logit", _logit, (case(x(2, 3, low=0.1, high=0.9)), case(x(3, low=0.1, high=0.9), 0.25), case(x(0, 2))),
           "float", strict=False, loose=4),
    unary("sinc", lambda v: np.sinc(v.astype(float)), special=False, loose=4),
    unary("sgn", lambda v: v if v.dtype == bool else np.sign(v), gives="same"),
    _flag("signbit", lambda v: np.signbit(v) if v.dtype != bool else v & False),
    _flag("isposinf", np.isposinf),
    _flag("isneginf", np.isneginf),
    _flag("isreal", lambda v: np.ones(v.shape, bool)),
    binary("xlogy", _xlogy, (0.2, 3), (0.2, 3), gives="float"),
    binary("copysign", np.copysign, gives="float", scalars=False),
    binary("logaddexp2", np.logaddexp2, takes="float", scalars=False, loose=4),
    Sample("nextafter", np.nextafter, (  # of float64: the dtype's own is an ulp away
        case(x(2, 3), x(3)), case(x(), x(2)), case(x(0, 2), x(2))), "float", loose=4),
    Sample("ldexp", lambda a, b: a * np.exp2(b), (case(x(2, 3), x(3)), case(x(), x(2)), case(x(0, 2), x(2))), "float",
           strict=False, loose=4),
    Sample("heaviside", lambda a, b: np.heaviside(a, b).astype(a.dtype), (
        case(exactly([[1, 0, 2], [0, 0, 1]]), x(3)), case(x(), x(2))), grad=False),
    Sample("rsub", lambda a, b, alpha=1: b - alpha * a, (case(x(2, 3), x(3)), case(x(2), 2), case(x(2), x(2), alpha=3)),
           "number", strict=False, loose=2),
    Sample("gcd", np.gcd, (case(exactly([[12, 0, 35], [7, 90, 16]]), exactly([8, 6, 14])), case(x(2, 3), x()),
           case(x(0, 2), x(2))), "ints"),
    Sample("lcm", np.lcm, (case(exactly([[12, 0, 5], [7, 9, 16]]), exactly([8, 6, 10])), case(x(2, 3), x())), "ints"),
)  # fmt: skip
