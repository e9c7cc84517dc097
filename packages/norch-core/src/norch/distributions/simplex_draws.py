"""Draws of the Dirichlet distribution from gamma draws, with gradients of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..autograd.function import Function
from ..dtype import float64
from ..ops import cat, digamma, exp, expm1, log, logsumexp, sigmoid, softplus, sqrt, where
from .draws import ROWS, half_line, log_standard_gamma, step_for

if TYPE_CHECKING:
    from ..tensor import Tensor


def _slopes(a: Tensor, b: Tensor, logit: Tensor, step: float) -> Tensor:
    """The derivative by a of the logit of x, of the beta distribution of a and b, where the quantile is kept.

    That is minus the derivative of the distribution function by a, over the density of the logit. With a logit greater
    by v, the former is an integral of (log t - digamma(a) + digamma(a + b)) e^(a v - (a + b) log(1 - x + x e^v)) over
    the side of v = 0 on which this only falls.
    """
    total, x, rest = a + b, sigmoid(logit), sigmoid(-logit)
    lower = logit <= log(a) - log(b)
    spread = total * x * rest
    spread = where(spread > a * b / total, spread, a * b / total)
    rate = (a * rest - b * x).abs() + where(spread < 1, spread**0.75, sqrt(spread))
    nodes, weights = half_line(step, a.device)
    sign = where(lower, -1.0, 1.0)
    v = nodes * (sign / rate).unsqueeze(-1)
    there = logit.unsqueeze(-1) + v
    grown = softplus(there, threshold=50.0)
    values = exp(a.unsqueeze(-1) * v - total.unsqueeze(-1) * (grown - softplus(logit, threshold=50.0).unsqueeze(-1)))
    mean = digamma(a) - digamma(total)
    return (values * weights * (there - grown - mean.unsqueeze(-1))).sum(-1) * sign / rate


class _Slopes(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, logit: Tensor, step: float) -> Tensor:
        if a.numel() <= ROWS:
            return _slopes(a, b, logit, step)
        first, second, third = (x.reshape(-1).split(ROWS) for x in (a, b, logit))
        pieces = zip(first, second, third, strict=True)
        return cat([_slopes(*piece, step) for piece in pieces]).reshape(a.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError("a Dirichlet draw cannot be differentiated twice by its concentration")


class _Shares(Function):
    """The softmax of gamma draws' logarithms, as a function of the concentrations: by implicit gradients (Figurnov,
    Mohamed and Mnih, 2018), for each of them that of its own element, a beta draw, beside which the others keep their
    ratios (Jankowiak and Obermeyer, 2018).
    """

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, logs: Tensor, step: float) -> Tensor:
        log_shares = logs - logsumexp(logs, -1, True)
        shares = exp(log_shares)
        ctx.save_for_backward(concentration, log_shares, shares)
        ctx.step = step
        return shares

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        a, log_shares, shares = ctx.saved_tensors
        logit = log_shares - log((-expm1(log_shares)).clamp(min=1e-300))
        slopes = _Slopes.apply(a, a.sum(-1, True) - a, logit, ctx.step)
        along = grads[0] - (grads[0] * shares).sum(-1, True)
        return slopes * shares * along, None, None


def dirichlet_draw(concentration: Tensor) -> Tensor:
    """Draws of the weights in the last dim of `concentration`, float64, differentiable once."""
    found: Tensor = _Shares.apply(
        concentration.to(float64), log_standard_gamma(concentration.detach()), step_for(concentration)
    )
    return found
