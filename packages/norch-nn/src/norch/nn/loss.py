"""Losses: what training makes small. Those with a margin are in `margin_loss.py`.

A loss whose input and target would only match by broadcasting raises ShapeError, unless made with `strict=False`.
PyTorch's deprecated `size_average` and `reduce` are understood with a warning.
"""

from __future__ import annotations

from typing import Any

import norch

from . import functional as F
from .functional.loss_arguments import chosen
from .module import Module


class Loss(Module):
    """Base of the losses: keeps how their parts are reduced ("none", "mean" or "sum") and whether shapes must match.

    Raises ValueError for another reduction.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__()
        self.reduction = chosen(type(self).__name__, reduction, size_average, reduce)
        self.strict = strict


class WeightedLoss(Loss):
    """Base of the losses with a buffer `weight`."""

    weight: norch.Tensor | None

    def __init__(
        self,
        weight: norch.Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.register_buffer("weight", weight)


class MSELoss(Loss):
    """The squared difference of input and target: its mean, its sum, or each for `reduction="none"`."""

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where the shapes differ, even if they would broadcast, which is mostly a mistake."""
        return norch.mse_loss(input, target, reduction=self.reduction, strict=self.strict)


class L1Loss(Loss):
    """|input - target|."""

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.l1_loss(input, target, reduction=self.reduction, strict=self.strict)


class SmoothL1Loss(Loss):
    """d ** 2 / (2 beta) where d = |input - target| is below `beta`, else d - beta / 2."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.beta = beta

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta, strict=self.strict)


class HuberLoss(Loss):
    """d ** 2 / 2 where d = |input - target| is below `delta`, else delta * (d - delta / 2)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0, *, strict: bool = True) -> None:
        super().__init__(reduction=reduction, strict=strict)
        self.delta = delta

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.huber_loss(input, target, reduction=self.reduction, delta=self.delta, strict=self.strict)


# --- By class -------------------------------------------------------------------------------------------------------


class NLLLoss(WeightedLoss):
    """Minus the element of input, logarithms of probabilities (N, C, *), at the class index in target, (N, *).

    `weight`: one factor for each class. Targets equal to `ignore_index` do not count.
    """

    def __init__(
        self,
        weight: norch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """NLLLoss, under the name that PyTorch once had for images."""


class CrossEntropyLoss(WeightedLoss):
    """How unlikely the target classes are under softmax(input), as -log.

    input: scores of shape (C,), (N, C) or (N, C, *). target: class indices of shape (), (N,) or (N, *), or
    probabilities in the shape of input. `weight`: one factor for each class. Targets equal to `ignore_index` do not
    count. `label_smoothing`, from 0 to 1, mixes the target with the uniform distribution.
    """

    def __init__(
        self,
        weight: norch.Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"CrossEntropyLoss: label_smoothing must be from 0 to 1, got {label_smoothing}")
        self.label_smoothing = label_smoothing

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class CTCLoss(Loss):
    """Minus the log-probability of reading the targets from log_probs, (T, N, C) or (T, C), by any alignment."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: norch.Tensor, targets: norch.Tensor, input_lengths: Any, target_lengths: Any
    ) -> norch.Tensor:
        """The arguments and errors are those of `F.ctc_loss`."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


# --- Of probabilities -----------------------------------------------------------------------------------------------


class BCELoss(WeightedLoss):
    """Binary cross-entropy of input and target, both probabilities. `weight` broadcasts to them."""

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.binary_cross_entropy(input, target, self.weight, reduction=self.reduction, strict=self.strict)


class BCEWithLogitsLoss(WeightedLoss):
    """BCELoss of sigmoid(input), without overflow. `pos_weight`: a factor for the losses of positive targets."""

    pos_weight: norch.Tensor | None

    def __init__(
        self,
        weight: norch.Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: norch.Tensor | None = None,
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction, strict=strict)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight, strict=self.strict
        )


class KLDivLoss(Loss):
    """target * (log(target) - input), input holding logarithms of probabilities, and target too if `log_target`.

    reduction "batchmean" gives the divergence: the sum over the size of the batch.
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, "mean" if reduction == "batchmean" else reduction, strict=strict)
        if reduction == "batchmean" and size_average is None and reduce is None:
            self.reduction = reduction
        self.log_target = log_target

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return norch.kl_div(input, target, reduction=self.reduction, log_target=self.log_target, strict=self.strict)


# --- Of distributions -----------------------------------------------------------------------------------------------


class PoissonNLLLoss(Loss):
    """How unlikely the counts in target are under Poisson distributions of rate exp(input); see F.poisson_nll_loss."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.poisson_nll_loss(
            log_input,
            target,
            self.log_input,
            self.full,
            eps=self.eps,
            reduction=self.reduction,
            strict=self.strict,
        )


class GaussianNLLLoss(Loss):
    """How unlikely target is under Gaussians of mean input and variance var; see F.gaussian_nll_loss."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean", strict: bool = True) -> None:
        super().__init__(reduction=reduction, strict=strict)
        self.full = full
        self.eps = eps

    def forward(self, input: norch.Tensor, target: norch.Tensor, var: norch.Tensor | float) -> norch.Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction, strict=self.strict)
