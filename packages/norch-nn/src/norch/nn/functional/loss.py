"""Losses between an input and a target, with PyTorch's arguments. Those with a margin are in `margin_loss.py`.

Shapes that would only match by broadcasting are an error unless `strict=False`. `size_average` and `reduce`, which
PyTorch deprecates in favour of `reduction`, are understood with a warning.
"""

from __future__ import annotations

import math

import norch

from .loss_arguments import as_floating, deprecated_reduction, floating, matched, reduced

mse_loss = deprecated_reduction()(norch.mse_loss)
l1_loss = deprecated_reduction()(norch.l1_loss)
smooth_l1_loss = deprecated_reduction()(norch.smooth_l1_loss)
huber_loss = norch.huber_loss
nll_loss = deprecated_reduction("ignore_index")(norch.nll_loss)
cross_entropy = deprecated_reduction("ignore_index")(norch.cross_entropy)
binary_cross_entropy = deprecated_reduction()(norch.binary_cross_entropy)
binary_cross_entropy_with_logits = deprecated_reduction()(norch.binary_cross_entropy_with_logits)
kl_div = deprecated_reduction()(norch.kl_div)
ctc_loss = norch.ctc_loss


# --- Of distributions -----------------------------------------------------------------------------------------------


@deprecated_reduction("eps")
def poisson_nll_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """Minus the logarithm of the Poisson probability of target, without log(target!).

    input: the logarithm of the rate, exp(input) - target * input; or with `log_input=False` the rate itself,
    input - target * log(input + eps). full: adds Stirling's approximation of log(target!) where target > 1. Both may
    hold integers. Raises ShapeError where the shapes differ (strict).
    """
    op = "poisson_nll_loss"
    matched(op, strict, "input target", input, target)
    (input,) = as_floating(input)
    if not target.is_floating_point():
        target = target.to(input.dtype)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        many = target > 1
        count = norch.where(many, target, 1.0)
        stirling = count * count.log() - count + 0.5 * (2 * math.pi * count).log()
        loss = loss + norch.where(many, stirling, 0.0)
    return reduced(op, loss, reduction)


def gaussian_nll_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    var: norch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """(log(var) + (input - target) ** 2 / var) / 2, var being at least `eps`: how unlikely target is under a Gaussian.

    var: variances, in input's shape, without its last dim, or with one dim of size 1; or a number. Its gradient is that
    at the held value. A negative variance gives NaN: to raise for one in a tensor would wait for the device. full: adds
    log(2 pi) / 2. input and target may hold integers. Raises ShapeError where the shapes do not fit (strict),
    DTypeError unless var is floating, ValueError for a negative number.
    """
    op = "gaussian_nll_loss"
    matched(op, strict, "input target", input, target)
    (input,) = as_floating(input)
    loss = (input - target) ** 2
    if isinstance(var, int | float):
        if var < 0:
            raise ValueError(f"{op}(): var must not be negative, got {var}")
        clamped = max(float(var), eps)
        loss = loss * (0.5 / clamped) + 0.5 * math.log(clamped)
    else:
        variance = _variance(op, input, var).clone()
        least = variance.detach()  # in place and unrecorded: the gradient passes where the variance is held
        least.copy_(norch.where(least < 0, math.nan, least.clamp(min=eps)))
        loss = 0.5 * (variance.log() + loss / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(op, loss, reduction)


def _variance(op: str, input: norch.Tensor, var: norch.Tensor) -> norch.Tensor:
    floating(op, "var", var)
    shape, given = tuple(input.shape), tuple(var.shape)
    if given == shape:
        return var
    if given == shape[:-1]:
        return var.unsqueeze(-1)
    if len(given) == len(shape) and [n for n, m in zip(given, shape, strict=True) if n != m] == [1]:
        return var
    raise norch.ShapeError(
        f"{op}(): var {given} does not fit input {shape}: expected input's shape, the same without the last dim, or "
        "with one dim of size 1"
    )
