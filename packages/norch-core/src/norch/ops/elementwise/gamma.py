"""The logarithm of the gamma function and its derivatives. Computed in float64, whatever the dtype."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...dtype import float64
from ..families import composite
from ..registry import public
from .arithmetic import abs as absolute
from .arithmetic import eq, log, log1p, lt, sin, tan, where
from .arithmetic import round as rounded
from .special import as_floating, infer_unary

if TYPE_CHECKING:
    from ...tensor import Tensor

# Stirling's series: Bernoulli's numbers B2, B4, ... over what each function divides them by. From 10 on it is exact to
# rounding; smaller input is brought there by the recurrence.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_SHIFT = 10


def _series(x: Tensor, coefficients: list[float]) -> Tensor:
    """c0 + c1 / x**2 + c2 / x**4 + ..."""
    y = 1 / (x * x)
    out = y * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        out = out * y + c
    return out


def _off_integer(x: Tensor) -> Tensor:
    """x less the nearest integer, which neither the sine's size nor the tangent of pi times x needs; -0 stays."""
    return where(eq(x, 0), x, x - rounded(x))


# (-1)**k (zeta(k) - 1) / k from k = 2 on: Taylor's series of log gamma(2 + z) after its first term (Abramowitz and
# Stegun, 6.1.33).
_NEAR_TWO = (
    0.3224670334241132, -0.0673523010531981, 0.020580808427784546, -0.007385551028673986, 0.0028905103307415234,
    -0.001192753911703261, 0.0005096695247430425, -0.00022315475845357939, 9.945751278180853e-05,
    -4.492623673813314e-05, 2.050721277567069e-05, -9.439488275268397e-06, 4.374866789907488e-06,
    -2.039215753801366e-06, 9.55141213040742e-07, -4.492469198764566e-07, 2.1207184805554665e-07,
    -1.0043224823968099e-07, 4.7698101693639804e-08, -2.2711094608943164e-08, 1.0838659214896955e-08,
    -5.183475041970047e-09, 2.4836745438024785e-09, -1.1921401405860912e-09, 5.731367241678862e-10,
)  # fmt: skip
_ONE_MINUS_EULER = 0.42278433509846713


def _positive_lgamma(x: Tensor) -> Tensor:
    """For x >= 0.5. Its zeros at 1 and 2 are exact."""
    product = x
    for k in range(1, _SHIFT):
        product = product * (x + k)
    small = x < _SHIFT
    z = where(small, x + _SHIFT, x)
    series = _series(z, [b / (2 * n * (2 * n - 1)) for n, b in enumerate(_BERNOULLI, 1)]) / z
    out = (z - 0.5) * log(z) - z + 0.5 * math.log(2 * math.pi) + series
    out = out - log(where(small, product, 1.0))
    off = where(lt(x, 1.5), x - 1, where(lt(x, 2.5), x - 2, 0.0))
    sum = off * _NEAR_TWO[-1]
    for c in reversed(_NEAR_TWO[:-1]):
        sum = (sum + c) * off
    near = (sum + _ONE_MINUS_EULER) * off - log1p(where(lt(x, 1.5), off, 0.0))
    return where(eq(x, math.inf), math.inf, where(lt(x, 2.5), near, out))


def _positive_digamma(x: Tensor) -> Tensor:
    small = x < _SHIFT
    safe = where(small, x, 1.0)
    steps = 1 / safe
    for k in range(1, _SHIFT):
        steps = steps + 1 / (safe + k)
    z = where(small, x + _SHIFT, x)
    series = _series(z, [b / (2 * n) for n, b in enumerate(_BERNOULLI, 1)]) / (z * z)
    return log(z) - 0.5 / z - series - where(small, steps, 0.0)


def _positive_polygamma(n: int, x: Tensor) -> Tensor:
    """n! times Hurwitz's zeta of n + 1, the size of the n-th derivative: a sum, and Euler's and Maclaurin's formula."""
    steps: Any = 0.0
    for k in range(_SHIFT + n):
        steps = steps + (x + k) ** -(n + 1)
    far = x + (_SHIFT + n)
    # B2, B4, ... times (n + 1) ... (n + 2 k - 1) / (2 k)!
    tail = [b * math.comb(n + 2 * k - 1, 2 * k - 1) / (2 * k) for k, b in enumerate(_BERNOULLI, 1)]
    out: Tensor = steps + far**-n * (1 / n + 0.5 / far + _series(far, tail) / (far * far))
    return out


def _cotangent_derivative(n: int, c: Tensor) -> Tensor:
    """The n-th derivative of cot, as a polynomial in the cotangent: each is -(1 + c**2) times the last one's slope."""
    polynomial = [0.0, 1.0]
    for _ in range(n):
        slope = [i * p for i, p in enumerate(polynomial)][1:]
        polynomial = [-(a + b) for a, b in zip([*slope, 0.0, 0.0], [0.0, 0.0, *slope])]
    out = c * polynomial[-1]
    for p in reversed(polynomial[1:-1]):
        out = (out + p) * c
    return out + polynomial[0]


def _lgamma_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * digamma(input)


@composite(infer_unary("lgamma"), _lgamma_rule, name="lgamma")
def _lgamma(input: Tensor) -> Tensor:
    x = input.to(float64)
    below = lt(x, 0.5)
    # Euler's reflection; at 0 and negative integers the sine is 0 and the result infinite.
    size = absolute(sin(_off_integer(x) * math.pi))
    out = _positive_lgamma(where(below, 1 - x, x))
    reflected = math.log(math.pi) - log(where(below, size, 1.0)) - out
    reflected = where(eq(x, -math.inf), math.inf, reflected)
    return where(below, reflected, out).to(input.spec.dtype)


@public(inplace=True)
def lgamma(input: Tensor) -> Tensor:
    """log |gamma(input)|; infinite at 0 and negative integers. Integers and bools give the default dtype.

    By Stirling's series after the recurrence up to 10, and Euler's reflection formula below 1/2.
    """
    return _lgamma(as_floating(input))


def _digamma_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * polygamma(1, input)


@composite(infer_unary("digamma"), _digamma_rule, name="digamma")
def _digamma(input: Tensor) -> Tensor:
    x = input.to(float64)
    below = lt(x, 0.5)
    out = _positive_digamma(where(below, 1 - x, x))
    reflection = math.pi / tan(where(below, _off_integer(x), 0.5) * math.pi)
    out = where(below, out - reflection, out)
    return where(lt(x, 0) & eq(x, rounded(x)), math.nan, out).to(input.spec.dtype)


@public(inplace=True)
def digamma(input: Tensor) -> Tensor:
    """The derivative of `lgamma`, by the same series; -inf at 0, NaN at negative integers. Integers give floats."""
    return _digamma(as_floating(input))


@public(method=False)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of `digamma`; infinite at 0 and negative integers. Integers and bools give the default dtype.

    By Euler's and Maclaurin's formula for Hurwitz's zeta function, and reflection below 1/2. Raises ValueError for n
    below 0 or above 170, whose factorial no float holds.
    """
    x = as_floating(input)
    if n == 0:
        return digamma(x)
    if not 0 < n <= 170:
        raise ValueError(f"polygamma(): n must be from 0 to 170, got {n}")
    return _trigamma(x) if n == 1 else _polygamma(n, x)


@composite(infer_unary("trigamma"), lambda g, input: g * polygamma(2, input), name="trigamma")
def _trigamma(input: Tensor) -> Tensor:
    return _polygamma(1, input)


def _polygamma(n: int, x: Tensor) -> Tensor:
    wide = x.to(float64)
    below = lt(wide, 0.5)
    size = _positive_polygamma(n, where(below, 1 - wide, wide)) * float(math.factorial(n))
    pole = below & eq(wide, rounded(wide))
    off = where(below & ~pole, _off_integer(wide), 0.25)
    reflected = _cotangent_derivative(n, 1 / tan(off * math.pi)) * -(math.pi ** (n + 1)) - size
    out = where(pole, math.inf, where(below, reflected * (-1) ** (n + 1), size))
    found: Tensor = (out * (-1) ** (n + 1)).to(x.spec.dtype)
    return found
