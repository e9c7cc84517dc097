"""Losses that leave alone what is right by a margin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY

import norch

from . import functional as F
from .distance import PairwiseDistance
from .layer import layer
from .loss import Loss, StrictLoss, _WeightedLoss


@layer(F.hinge_embedding_loss)
class HingeEmbeddingLoss(StrictLoss):
    """input where target is 1, max(0, margin - input) where it is -1."""

    margin: float = 1.0
    reduction: str = "mean"


@layer(F.soft_margin_loss)
class SoftMarginLoss(StrictLoss):
    """log(1 + exp(-target * input)), target being 1 or -1."""

    reduction: str = "mean"


@layer(F.margin_ranking_loss)
class MarginRankingLoss(StrictLoss):
    """max(0, margin - target * (input1 - input2)), target being 1 or -1."""

    margin: float = 0.0
    reduction: str = "mean"


@layer(F.cosine_embedding_loss)
class CosineEmbeddingLoss(StrictLoss):
    """1 - cos of the angles between rows where target is 1, max(0, cos - margin) where it is -1."""

    margin: float = 0.0
    reduction: str = "mean"


class _Triplet(StrictLoss):
    margin: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.margin > 0:
            raise ValueError(f"{type(self).__name__}: margin must be greater than 0, got {self.margin}")


@layer(F.triplet_margin_loss)
class TripletMarginLoss(_Triplet):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being F.pairwise_distance with `p` and `eps`.

    swap: takes d(positive, negative) where that is smaller. Raises ValueError unless `margin` > 0.
    """

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: str = "mean"


@layer(F.triplet_margin_with_distance_loss)
class TripletMarginWithDistanceLoss(_Triplet):
    """TripletMarginLoss (Balntas et al., 2016) with any distance of two tensors, a function or a module;
    PairwiseDistance() unless given.
    """

    _: KW_ONLY
    distance_function: Callable[[norch.Tensor, norch.Tensor], norch.Tensor] | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance_function is None:
            self.distance_function = PairwiseDistance()


# --- Several classes ------------------------------------------------------------------------------------------------


@layer(F.multi_margin_loss)
class MultiMarginLoss(Loss, _WeightedLoss):
    """The mean over the classes i of max(0, margin - input[target] + input[i]) ** p, without i = target.

    input: (N, C) or (C); target: class indices, (N) or (). `weight`: one factor for each class. Raises ValueError
    unless p is 1 or 2.
    """

    p: int = 1
    margin: float = 1.0
    weight: norch.Tensor | None = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: p must be 1 or 2, got {self.p}")


@layer(F.multilabel_margin_loss)
class MultiLabelMarginLoss(Loss):
    """How far the classes listed in target (then -1) are from being above all others by 1."""

    reduction: str = "mean"


@layer(F.multilabel_soft_margin_loss)
class MultiLabelSoftMarginLoss(StrictLoss, _WeightedLoss):
    """The mean over the classes, the last dim, of BCEWithLogitsLoss."""

    weight: norch.Tensor | None = None
    reduction: str = "mean"
