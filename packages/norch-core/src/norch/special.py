"""`norch.special`: special functions under PyTorch's names. Loaded when it is first used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .ops import (
    digamma,
    erf,
    erfc,
    erfinv,
    exp2,
    expm1,
    lgamma,
    log1p,
    log_softmax,
    logit,
    logsumexp,
    polygamma,
    round,
    sigmoid,
    sinc,
    softmax,
    where,
    xlogy,
)
from .ops.elementwise.special import as_floating, entropy, floating_pair
from .ops.upcast import in_float32

if TYPE_CHECKING:
    from .tensor import Tensor

expit, psi, gammaln = sigmoid, digamma, lgamma


@in_float32
def entr(input: Tensor) -> Tensor:
    """-input * log(input): 0 at 0, -inf for negative input."""
    return entropy(as_floating(input))


@in_float32
def ndtr(input: Tensor) -> Tensor:
    """The normal distribution function: how likely a standard normal draw is to be below input."""
    return erfc(as_floating(input) * -math.sqrt(0.5)) * 0.5


@in_float32
def ndtri(input: Tensor) -> Tensor:
    """The inverse of `ndtr`."""
    return erfinv(as_floating(input) * 2 - 1) * math.sqrt(2)


@in_float32
def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log1p(other), 0 where input is 0."""
    x, y = floating_pair("xlog1py", input, other)
    # Where the logarithm is infinite it must not meet the 0.
    out: Tensor = x * log1p(where((x == 0) & ((y <= -1) | (y == math.inf)), 0.0, y))
    return out


__all__ = [
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammaln",
    "log1p",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
]
