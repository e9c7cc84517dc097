"""Losses: what training makes small. Those with a margin are in `margin_loss.py`.

A loss whose input and target would only match by broadcasting raises ShapeError, unless made with `strict=False`.
PyTorch's deprecated `size_average` and `reduce` are understood with a warning.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from math import prod
from typing import Any, ClassVar

import norch

from . import functional as F
from .functional.loss_arguments import REDUCTIONS, check_reduction, deprecated_reduction
from .layer import layer
from .linear import Linear
from .module import Module


class _Loss(Module):
    """The base of losses, for those of one's own too: `reduction` is "none", "mean" (the default) or "sum".

    Raises ValueError for another, but in classes of one's own, which may have reductions that they alone know.
    """

    reduction: str
    _reductions: ClassVar[tuple[str, ...]] = REDUCTIONS
    _shown = ()

    def __post_init__(self) -> None:
        if type(self).__module__.startswith(f"{__name__.partition('.')[0]}."):
            check_reduction(type(self).__name__, self.reduction, self._reductions)

    @deprecated_reduction()
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction
        self.__post_init__()


class _WeightedLoss(_Loss):
    """`_Loss` with a buffer `weight`."""

    @deprecated_reduction()
    def __init__(self, weight: norch.Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.register_buffer("weight", weight)
        self.weight: norch.Tensor | None


class Loss(_Loss):
    """Base of the losses here, whose options are annotated names."""

    def __init__(self) -> None:
        Module.__init__(self)


@layer()
class StrictLoss(Loss):
    """Base of the losses whose tensors must have equal shapes, unless `strict=False`."""

    _: KW_ONLY
    strict: bool = True


@layer(F.mse_loss)
class MSELoss(StrictLoss):
    """The squared difference of input and target: its mean, its sum, or each for `reduction="none"`.

    Raises ShapeError where the shapes differ, even if they would broadcast, which is mostly a mistake.
    """

    reduction: str = "mean"


@layer(F.l1_loss)
class L1Loss(StrictLoss):
    """|input - target|."""

    reduction: str = "mean"


@layer(F.smooth_l1_loss)
class SmoothL1Loss(StrictLoss):
    """d ** 2 / (2 beta) where d = |input - target| is below `beta`, else d - beta / 2."""

    reduction: str = "mean"
    beta: float = 1.0


@layer(F.huber_loss)
class HuberLoss(StrictLoss):
    """d ** 2 / 2 where d = |input - target| is below `delta`, else delta * (d - delta / 2)."""

    reduction: str = "mean"
    delta: float = 1.0


# --- By class -------------------------------------------------------------------------------------------------------


@layer(F.nll_loss)
class NLLLoss(Loss, _WeightedLoss):
    """Minus the element of input, logarithms of probabilities (N, C, *), at the class index in target, (N, *).

    `weight`: one factor for each class. Targets equal to `ignore_index` do not count.
    """

    weight: norch.Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"


class NLLLoss2d(NLLLoss):
    """NLLLoss, under the name that PyTorch once had for images."""


@layer(F.cross_entropy)
class CrossEntropyLoss(Loss, _WeightedLoss):
    """How unlikely the target classes are under softmax(input), as -log.

    input: scores of shape (C,), (N, C) or (N, C, *). target: class indices of shape (), (N,) or (N, *), or
    probabilities in the shape of input. `weight`: one factor for each class. Targets equal to `ignore_index` do not
    count. `label_smoothing`, from 0 to 1, mixes the target with the uniform distribution; ValueError for another.
    """

    weight: norch.Tensor | None = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"CrossEntropyLoss: label_smoothing must be from 0 to 1, got {self.label_smoothing}")


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer and the `CrossEntropyLoss` of its scores: the head of a language model with its loss.

    in_features, num_classes: of the layer, whose scores are of shape (N, num_classes, *out_features). ignore_index:
    None stands for -100. `options` choose in PyTorch how the scores are cut into chunks, and are ignored; the others
    are those of `Linear` and `CrossEntropyLoss`. Raises ValueError for a label_smoothing outside of [0, 1], ShapeError
    unless weight has num_classes elements.
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: norch.Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: Any = None,
    ) -> None:
        super().__init__(weight, reduction=reduction)
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise norch.ShapeError(f"LinearCrossEntropyLoss: weight {tuple(weight.shape)} must be ({num_classes},)")
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"LinearCrossEntropyLoss: label_smoothing must be from 0 to 1, got {label_smoothing}")
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.label_smoothing, self.options = ignore_index, label_smoothing, options
        self.linear = Linear(in_features, prod(out_features, start=num_classes), bias, device, dtype)

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape((*shape, self.linear.in_features)),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


@layer(F.ctc_loss)
class CTCLoss(Loss):
    """Minus the log-probability of reading the targets from log_probs, (T, N, C) or (T, C), by any alignment.

    See functional.ctc_loss.
    """

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False


# --- Of probabilities -----------------------------------------------------------------------------------------------


@layer(F.binary_cross_entropy)
class BCELoss(StrictLoss, _WeightedLoss):
    """Binary cross-entropy of input and target, both probabilities. `weight` broadcasts to them."""

    weight: norch.Tensor | None = None
    reduction: str = "mean"


@layer(F.binary_cross_entropy_with_logits)
class BCEWithLogitsLoss(StrictLoss):
    """BCELoss of sigmoid(input), without overflow. `pos_weight`: a factor for the losses of positive targets."""

    weight: norch.Tensor | None = None
    reduction: str = "mean"
    pos_weight: norch.Tensor | None = None


@layer(F.kl_div)
class KLDivLoss(StrictLoss):
    """target * (log(target) - input), input holding logarithms of probabilities, and target too if `log_target`.

    reduction "batchmean" gives the divergence: the sum over the size of the batch.
    """

    reduction: str = "mean"
    log_target: bool = False
    _reductions: ClassVar[tuple[str, ...]] = (*REDUCTIONS, "batchmean")


# --- Of distributions -----------------------------------------------------------------------------------------------


@layer(F.poisson_nll_loss)
class PoissonNLLLoss(StrictLoss):
    """How unlikely the counts in target are under Poisson distributions of rate exp(input), or input unless
    `log_input`; `full` adds Stirling's term; see F.poisson_nll_loss.
    """

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8
    reduction: str = "mean"

    def forward(self, log_input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.poisson_nll_loss(
            *(log_input, target, self.log_input, self.full), eps=self.eps, reduction=self.reduction, strict=self.strict
        )


@layer(F.gaussian_nll_loss)
class GaussianNLLLoss(StrictLoss):
    """How unlikely target is under Gaussians of mean input and variance var; see F.gaussian_nll_loss."""

    _: KW_ONLY
    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"
