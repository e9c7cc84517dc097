"""`norch.special`: special functions under PyTorch's names. Loaded when it is first used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .dispatch.arguments import check_functions
from .dtype import float64
from .ops import abs as absolute
from .ops import (
    arange,
    broadcast_tensors,
    digamma,
    eq,
    erf,
    erfc,
    erfinv,
    exp,
    exp2,
    expm1,
    lgamma,
    log,
    log1p,
    log_softmax,
    logit,
    logsumexp,
    ones_like,
    polygamma,
    round,
    sigmoid,
    sin,
    sinc,
    softmax,
    sqrt,
    square,
    where,
    xlogy,
)
from .ops.elementwise.special import as_floating, entropy, floating_pair, polynomial
from .ops.elementwise.special import xlog1py as _xlog1py
from .ops.upcast import in_float32
from .special_functions import airy, bessel, bessel_k, incomplete_gamma
from .special_functions.orthogonal import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from .special_functions.zeta import zeta as _zeta

if TYPE_CHECKING:
    from .tensor import Tensor

expit, psi, gammaln = sigmoid, digamma, lgamma


@in_float32
def entr(input: Tensor) -> Tensor:
    """-input * log(input): 0 at 0, -inf for negative input."""
    return entropy(as_floating(input))


@in_float32
def ndtr(input: Tensor) -> Tensor:
    """The normal distribution function: how likely a standard normal draw is to be below input. Shape kept."""
    return erfc(as_floating(input) * -math.sqrt(0.5)) * 0.5


@in_float32
def ndtri(input: Tensor) -> Tensor:
    """The inverse of `ndtr`: infinite at 0 and 1, NaN beyond. As exact for small input as for large.

    By `erfinv`, and in the tails by Newton's method on the logarithm of `ndtr`, from the approximation 26.2.23 of
    Abramowitz and Stegun. In float64. Shape kept.
    """
    x = as_floating(input)
    p = x.to(float64)
    tail = where(p < 0.5, p, 1 - p)
    inside = tail > 0
    tail = where(inside, tail, 0.01)
    t = sqrt(log(tail) * -2.0)
    size = t - (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)))
    for _ in range(3):
        found = erfc(size * math.sqrt(0.5)) * 0.5
        size = size + log(found / tail) * found * exp(size * size / 2) * math.sqrt(2 * math.pi)
    size = where(inside, size, -log(where(inside, 1.0, where(p < 0.5, p, 1 - p))))  # infinite, as its slope, or NaN
    centre = erfinv(where(tail > 0.1, p, 0.5) * 2 - 1) * math.sqrt(2)
    return where(tail > 0.1, centre, where(p < 0.5, -size, size)).to(x.dtype)


def erfcx(input: Tensor) -> Tensor:
    """exp(input**2) * erfc(input), which for large input is near 1 / (input * sqrt(pi)) and does not underflow.

    Beyond 8 by the asymptotic series 7.1.23 of Abramowitz and Stegun. In float64. Shape kept.
    """
    x = as_floating(input)
    t = x.to(float64)
    far = t > 8
    near = where(far, 0.0, t)
    z = 0.5 / square(where(far, t, 8.0))
    series = ones_like(z)
    for k in range(14, 0, -1):
        series = 1 - (2 * k - 1) * z * series
    tail = series / (where(far, t, 8.0) * math.sqrt(math.pi))
    return where(far, tail, exp(square(near)) * erfc(near)).to(x.dtype)


def log_ndtr(input: Tensor) -> Tensor:
    """The logarithm of `ndtr`, by `erfcx` below -1, so that it does not underflow.

    In float64. Shape kept, dtype too. See 26.2.29 of Abramowitz and Stegun (1964) for `ndtr` as erfc.
    """
    x = as_floating(input)
    t = x.to(float64) * math.sqrt(0.5)
    low = x < -1
    below = where(low, t, -1.0)
    return where(low, log(erfcx(-below) * 0.5) - square(below), log1p(erfc(where(low, 0.0, t)) * -0.5)).to(x.dtype)


def multigammaln(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p.

    That is p (p - 1) / 4 log(pi), and the sum over j below p of lgamma(input - j / 2). Shape kept. Raises ValueError
    for a p below 1.
    """
    if p < 1:
        raise ValueError(f"multigammaln(): p must be at least 1, got {p}")
    x = as_floating(input)
    return lgamma(x.unsqueeze(-1) - arange(p, dtype=x.dtype, device=x.device) * 0.5).sum(-1) + (
        p * (p - 1) / 4 * math.log(math.pi)
    )


def i0(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0: even, 1 at 0, NaN at infinity. Shape kept.

    By the power series 9.6.10 of Abramowitz and Stegun (1964), from 25 on by the asymptotic expansion 9.7.1, in
    float64; within 10 ulp of sums of 60 digits. Differentiable, as `i0e`, `i1` and `i1e`.
    """
    found: Tensor = bessel.i0(as_floating(input))
    return found


def i0e(input: Tensor) -> Tensor:
    """exp(-abs(input)) * i0(input), which does not overflow: by the same series, as exact. Shape kept.

    See 9.6.10 and 9.7.1 of Abramowitz and Stegun (1964).
    """
    found: Tensor = bessel.i0e(as_floating(input))
    return found


def i1(input: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1, the derivative of `i0`: odd, as exact. Shape kept.

    See 9.6.10 and 9.7.1 of Abramowitz and Stegun (1964).
    """
    found: Tensor = bessel.i1(as_floating(input))
    return found


def i1e(input: Tensor) -> Tensor:
    """exp(-abs(input)) * i1(input), which does not overflow: by the series of `i0`, as exact. Shape kept.

    See 9.6.10 and 9.7.1 of Abramowitz and Stegun (1964).
    """
    found: Tensor = bessel.i1e(as_floating(input))
    return found


modified_bessel_i0, modified_bessel_i1 = i0, i1


def airy_ai(input: Tensor) -> Tensor:
    """The Airy function Ai: 0 at both infinities. Shape kept. Differentiable.

    By the series and the integral of chapter 9 of the Digital Library of Mathematical Functions, the latter by Gauss
    quadrature after Gil, Segura and Temme (2002), in float64. Its error is below 1e-13, relative to its amplitude.
    """
    return airy.airy_ai(as_floating(input))


def bessel_j0(input: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 0: even, 1 at 0, NaN at infinity. Shape kept.

    By the power series 9.1.10 of Abramowitz and Stegun (1964), from 2 on by Miller's backward recurrence (9.12),
    from 25 on by Hankel's expansion (9.2.5), in float64. Its error is below 1e-14, beside integrals.
    Differentiable, as the others.
    """
    found: Tensor = bessel.bessel_j0(as_floating(input))
    return found


def bessel_j1(input: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 1: odd; computed, and as exact, as `bessel_j0`. Shape kept.

    See chapter 9 of Abramowitz and Stegun (1964).
    """
    found: Tensor = bessel.bessel_j1(as_floating(input))
    return found


def bessel_y0(input: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 0: -inf at 0, NaN below. Shape kept.

    As `bessel_j0`, with the series 9.1.13 and Neumann's 9.1.89 of Abramowitz and Stegun (1964); its error is below
    1e-14 of 1 or of a larger value.
    """
    found: Tensor = bessel.bessel_y0(as_floating(input))
    return found


def bessel_y1(input: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 1: -inf at 0, NaN below; computed, and as exact, as `bessel_y0`.

    Shape kept. See chapter 9 of Abramowitz and Stegun (1964).
    """
    found: Tensor = bessel.bessel_y1(as_floating(input))
    return found


def modified_bessel_k0(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 0: inf at 0, NaN below. Shape kept. Differentiable.

    By the power series 9.6.13 of Abramowitz and Stegun (1964), from 1 on by the integral 9.6.24, in float64; within
    20 ulp of integrals of 30 digits.
    """
    found: Tensor = bessel_k.k0(as_floating(input))
    return found


def modified_bessel_k1(input: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 1; computed, and as exact, as `modified_bessel_k0`.

    Shape kept. See 9.6.11 and 9.6.24 of Abramowitz and Stegun (1964).
    """
    found: Tensor = bessel_k.k1(as_floating(input))
    return found


def scaled_modified_bessel_k0(input: Tensor) -> Tensor:
    """exp(input) * modified_bessel_k0(input), which does not underflow: as exact. Shape kept."""
    found: Tensor = bessel_k.k0e(as_floating(input))
    return found


def scaled_modified_bessel_k1(input: Tensor) -> Tensor:
    """exp(input) * modified_bessel_k1(input), which does not underflow: as exact. Shape kept."""
    found: Tensor = bessel_k.k1e(as_floating(input))
    return found


def spherical_bessel_j0(input: Tensor) -> Tensor:
    """sin(input) / input: 1 at 0, 0 at infinity. Shape kept. Differentiable. In float64; near 0 by the power series."""
    x = as_floating(input)
    wide = x.to(float64)
    near, far = absolute(wide) < 0.5, eq(absolute(wide), math.inf)
    small, large = where(near, wide, 0.0), where(near | far, 1.0, wide)
    series = polynomial(small * small, [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)])
    return where(near, series, where(far, 0.0, sin(large) / large)).to(x.dtype)


def gammainc(input: Any, other: Any) -> Tensor:
    """The regularised lower incomplete gamma function: the integral of t**(input - 1) exp(-t) from 0 to other, over
    gamma(input). The two broadcast, and one may be a number; NaN where one is negative.

    By the series 6.5.29 and the continued fraction 6.5.31 of Abramowitz and Stegun (1964); for an input above 100
    by Gauss's quadrature. In float64; beside sums of 400 digits within 2e-14 of a value, in tails below 1e-3 within
    3e-13. There is no derivative by input: the backward pass raises AutogradError.
    """
    a, x = broadcast_tensors(*floating_pair("gammainc", input, other))
    found: Tensor = incomplete_gamma.gammainc(a, x)
    return found


def gammaincc(input: Any, other: Any) -> Tensor:
    """The regularised upper incomplete gamma function, 1 - gammainc(input, other) without cancellation: computed, and
    as exact, as that is. The two broadcast; the backward pass raises AutogradError for a derivative by input.
    """
    a, x = broadcast_tensors(*floating_pair("gammaincc", input, other))
    found: Tensor = incomplete_gamma.gammaincc(a, x)
    return found


def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function, the sum of (k + other)**-input over k from 0 on: inf for an input of 1, NaN below, and
    where other is negative, unless input is whole. The two broadcast, and one may be a number.

    By Euler's and Maclaurin's formula (23.2 of Abramowitz and Stegun, 1964), in float64; within 8 ulp where other
    is positive, as identities show. There is no derivative by input: the backward pass raises AutogradError.
    """
    found: Tensor = _zeta(*broadcast_tensors(*floating_pair("zeta", input, other)))
    return found


@in_float32
def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log1p(other), 0 where input is 0."""
    return _xlog1py(*floating_pair("xlog1py", input, other))


__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]


check_functions(globals())
