"""Losses that leave alone what is right by a margin."""

from __future__ import annotations

from collections.abc import Callable

import norch

from . import functional as F
from .distance import PairwiseDistance
from .loss import Loss, WeightedLoss
from .module import Module


class HingeEmbeddingLoss(Loss):
    """input where target is 1, max(0, margin - input) where it is -1."""

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.margin = margin

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction, strict=self.strict)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * input)), target being 1 or -1."""

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction, strict=self.strict)


class MarginRankingLoss(Loss):
    """max(0, margin - target * (input1 - input2)), target being 1 or -1."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.margin = margin

    def forward(self, input1: norch.Tensor, input2: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction, strict=self.strict)


class CosineEmbeddingLoss(Loss):
    """1 - cos of the angles between rows where target is 1, max(0, cos - margin) where it is -1."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.margin = margin

    def forward(self, input1: norch.Tensor, input2: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.cosine_embedding_loss(
            input1, input2, target, self.margin, reduction=self.reduction, strict=self.strict
        )


class TripletMarginLoss(Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being F.pairwise_distance with `p` and `eps`.

    swap: takes d(positive, negative) where that is smaller. Raises ValueError unless `margin` > 0.
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        strict: bool = True,
    ) -> None:
        super().__init__(size_average, reduce, reduction, strict=strict)
        self.margin = _positive("TripletMarginLoss", margin)
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: norch.Tensor, positive: norch.Tensor, negative: norch.Tensor) -> norch.Tensor:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            self.margin,
            self.p,
            self.eps,
            self.swap,
            reduction=self.reduction,
            strict=self.strict,
        )


class TripletMarginWithDistanceLoss(Loss):
    """TripletMarginLoss with any distance of two tensors, a function or a module; PairwiseDistance() unless given."""

    def __init__(
        self,
        *,
        distance_function: Callable[[norch.Tensor, norch.Tensor], norch.Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
        strict: bool = True,
    ) -> None:
        super().__init__(reduction=reduction, strict=strict)
        self.margin = _positive("TripletMarginWithDistanceLoss", margin)
        self.distance_function: Module | Callable[[norch.Tensor, norch.Tensor], norch.Tensor] = (
            PairwiseDistance() if distance_function is None else distance_function
        )
        self.swap = swap

    def forward(self, anchor: norch.Tensor, positive: norch.Tensor, negative: norch.Tensor) -> norch.Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
            strict=self.strict,
        )


def _positive(title: str, margin: float) -> float:
    if not margin > 0:
        raise ValueError(f"{title}: margin must be greater than 0, got {margin}")
    return margin


# --- Several classes ------------------------------------------------------------------------------------------------


class MultiMarginLoss(WeightedLoss):
    """The mean over the classes i of max(0, margin - input[target] + input[i]) ** p, without i = target.

    input: (N, C) or (C); target: class indices, (N) or (). `weight`: one factor for each class. Raises ValueError
    unless p is 1 or 2.
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: norch.Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: p must be 1 or 2, got {p}")
        self.p = p
        self.margin = margin

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(Loss):
    """How far the classes listed in target (then -1) are from being above all others by 1."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """The mean over the classes, the last dim, of BCEWithLogitsLoss."""

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction, strict=self.strict)
