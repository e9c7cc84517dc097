"""The Airy function."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from ..dtype import float64
from ..ops import atan, clamp, cos, eq, exp, hypot, sin, where, zeros_like

if TYPE_CHECKING:
    from ..tensor import Tensor

_NEAR = 2.0
"""Below this size it is computed by its series."""


@cache
def _series(count: int = 24) -> tuple[list[float], list[float]]:
    """The coefficients of x**3 in Ai's two series, that of 1 and that of x (9.4.1 of DLMF, the Digital Library of
    Mathematical Functions)."""
    first, second = [3 ** (-2 / 3) / math.gamma(2 / 3)], [-(3 ** (-1 / 3)) / math.gamma(1 / 3)]
    for k in range(1, count):
        first.append(first[-1] / ((3 * k - 1) * 3 * k))
        second.append(second[-1] / (3 * k * (3 * k + 1)))
    return first, second


@cache
def _nodes(count: int = 36) -> list[tuple[float, float]]:
    """Nodes and weights for integrals of f(t) t**(-1/6) exp(-t) over t > 0, by G. Golub and J. Welsch, "Calculation of
    Gauss quadrature rules" (1969)."""
    power, k = -1 / 6, np.arange(count)
    beside = np.sqrt((k * (k + power))[1:])
    found, vectors = np.linalg.eigh(np.diag(2 * k + power + 1) + np.diag(beside, 1) + np.diag(beside, -1))
    return list(zip(found.tolist(), (math.gamma(power + 1) * vectors[0] ** 2).tolist(), strict=True))


_FACTOR = 1 / (math.sqrt(math.pi) * 48 ** (1 / 6) * math.gamma(5 / 6))


def airy_ai(x: Tensor) -> Tensor:
    """By its series near 0, and elsewhere by an integral (9.5.8 of DLMF), as A. Gil, J. Segura and N. Temme,
    "Computing complex Airy functions by numerical quadrature" (2002), take it."""
    wide = x.to(float64)
    near = clamp(wide, -_NEAR, _NEAR)
    cube, first, second = near**3, zeros_like(wide), zeros_like(wide)
    for one, other in zip(*map(reversed, _series()), strict=True):
        first, second = first * cube + one, second * cube + other
    series = first + second * near
    size = clamp(where(wide < 0, -wide, wide), _NEAR, 1e10)
    zeta = size**1.5 * (2 / 3)
    decaying, real, imaginary = zeros_like(zeta), zeros_like(zeta), zeros_like(zeta)
    for t, weight in _nodes():
        u = t / zeta
        decaying = decaying + weight * (2 + u) ** (-1 / 6)
        turned, length = atan(u * 0.5) / 6, hypot(u, zeros_like(u) + 2) ** (-1 / 6)
        real, imaginary = real + weight * length * cos(turned), imaginary + weight * length * sin(turned)
    right = _FACTOR * exp(-zeta) * zeta ** (-1 / 6) * decaying
    # Ai(-x) is twice the real part of exp(i pi / 3) Ai(x exp(i pi / 3)), whose zeta is i times that of x.
    angle = math.pi / 4 - zeta
    left = 2 * _FACTOR * zeta ** (-1 / 6) * (real * cos(angle) - imaginary * sin(angle))
    found = where(wide < -_NEAR, left, where(wide > _NEAR, right, series))
    found = where(eq(wide, math.inf) | eq(wide, -math.inf), 0.0, found)
    return where(eq(wide, wide), found, wide).to(x.dtype)
