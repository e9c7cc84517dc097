"""Losses between an input and a target, with PyTorch's arguments. Those with a margin are in `margin_loss.py`.

Shapes that would only match by broadcasting are an error unless `strict=False`. `size_average` and `reduce`, which
PyTorch deprecates in favour of `reduction`, are understood with a warning.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import norch

from .loss_arguments import as_floating, deprecated_reduction, floating, matched, reduced


@deprecated_reduction()
def mse_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
    weight: norch.Tensor | None = None,
    *,
    strict: bool = True,
) -> norch.Tensor:
    """(input - target) ** 2, as its "mean" (weighted where there is a `weight`), "sum", or elementwise ("none").

    weight: a factor for each element, in input's shape. Raises ShapeError where the shapes differ (strict), DTypeError
    unless all are floating.
    """
    if weight is None:
        return norch.mse_loss(input, target, reduction=reduction, strict=strict)
    return _weighted(norch.mse_loss, input, target, reduction, weight, strict)


@deprecated_reduction()
def l1_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
    weight: norch.Tensor | None = None,
    *,
    strict: bool = True,
) -> norch.Tensor:
    """|input - target|, with the arguments and errors of mse_loss."""
    if weight is None:
        return norch.l1_loss(input, target, reduction=reduction, strict=strict)
    return _weighted(norch.l1_loss, input, target, reduction, weight, strict)


def _weighted(
    op: Callable[..., norch.Tensor],
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str,
    weight: norch.Tensor,
    strict: bool,
    **options: float,
) -> norch.Tensor:
    """`op` with a factor for each element; a mean is the sum over that of the weights."""
    name = op.__name__
    loss = op(input, target, reduction="none", strict=strict, **options)
    floating(name, "weight", weight)
    if weight.shape != input.shape:
        raise norch.ShapeError(f"{name}(): weight {tuple(weight.shape)} must have input's shape {tuple(input.shape)}")
    if reduction == "mean":
        return (loss * weight).sum() / weight.sum()
    return reduced(name, loss * weight, reduction)


@deprecated_reduction()
def smooth_l1_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
    beta: float = 1.0,
    *,
    strict: bool = True,
) -> norch.Tensor:
    """d ** 2 / (2 beta) where d = |input - target| is below `beta`, else d - beta / 2; l1_loss for beta 0.

    Raises as mse_loss does, and ValueError for a negative `beta`.
    """
    return norch.smooth_l1_loss(input, target, reduction=reduction, beta=beta, strict=strict)


def huber_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: norch.Tensor | None = None,
    *,
    strict: bool = True,
) -> norch.Tensor:
    """d ** 2 / 2 where d = |input - target| is below `delta`, delta * (d - delta / 2) elsewhere (Huber, 1964).

    weight: a factor for each element, in input's shape; the mean is over the number of elements, as PyTorch's. Raises
    as mse_loss does, and ValueError unless `delta` > 0.
    """
    if weight is None:
        return norch.huber_loss(input, target, reduction=reduction, delta=delta, strict=strict)
    loss = _weighted(norch.huber_loss, input, target, "none", weight, strict, delta=delta)
    return reduced("huber_loss", loss, reduction)


# --- By class -------------------------------------------------------------------------------------------------------


@deprecated_reduction("ignore_index")
def nll_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    weight: norch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> norch.Tensor:
    """`norch.nll_loss`: minus the logarithm of a probability that each class index in target names."""
    return norch.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


@deprecated_reduction("ignore_index")
def cross_entropy(
    input: norch.Tensor,
    target: norch.Tensor,
    weight: norch.Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> norch.Tensor:
    """`norch.cross_entropy`: minus the log_softmax of input at the classes (or with the probabilities) of target."""
    return norch.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


# --- Of probabilities -----------------------------------------------------------------------------------------------


@deprecated_reduction()
def binary_cross_entropy(
    input: norch.Tensor,
    target: norch.Tensor,
    weight: norch.Tensor | None = None,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """`norch.binary_cross_entropy`, of probabilities: NaN where input is outside [0, 1]."""
    return norch.binary_cross_entropy(input, target, weight, reduction=reduction, strict=strict)


@deprecated_reduction()
def binary_cross_entropy_with_logits(
    input: norch.Tensor,
    target: norch.Tensor,
    weight: norch.Tensor | None = None,
    reduction: str = "mean",
    pos_weight: norch.Tensor | None = None,
    *,
    strict: bool = True,
) -> norch.Tensor:
    """`norch.binary_cross_entropy_with_logits`: binary_cross_entropy of sigmoid(input), without overflow."""
    return norch.binary_cross_entropy_with_logits(
        input, target, weight, reduction=reduction, pos_weight=pos_weight, strict=strict
    )


@deprecated_reduction()
def kl_div(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
    log_target: bool = False,
    *,
    strict: bool = True,
) -> norch.Tensor:
    """`norch.kl_div`: target * (log(target) - input). reduction "batchmean" gives the divergence, "mean" less."""
    return norch.kl_div(input, target, reduction=reduction, log_target=log_target, strict=strict)


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
    log(2 pi) / 2. Raises ShapeError where the shapes do not fit (strict), DTypeError unless input is floating.
    """
    op = "gaussian_nll_loss"
    floating(op, "input", input)
    matched(op, strict, "input target", input, target)
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
