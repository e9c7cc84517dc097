"""Losses: what training makes small."""

from __future__ import annotations

import norch

from . import functional as F
from .module import Module


def _check_reduction(title: str, reduction: str) -> str:
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{title}: reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    return reduction


class MSELoss(Module):
    """The squared difference of input and target: its mean, its sum, or each for `reduction="none"`."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = _check_reduction("MSELoss", reduction)

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where the shapes differ, even if they would broadcast, which is mostly a mistake."""
        return F.mse_loss(input, target, reduction=self.reduction)


class CrossEntropyLoss(Module):
    """How unlikely the target classes are under softmax(input), as -log.

    input: scores of shape (C,), (N, C) or (N, C, *). target: class indices of shape (), (N,) or (N, *), or
    probabilities in the shape of input. `weight`: one factor for each class. Targets equal to `ignore_index` do not
    count. `label_smoothing`, from 0 to 1, mixes the target with the uniform distribution.
    """

    weight: norch.Tensor | None

    def __init__(
        self,
        weight: norch.Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = _check_reduction("CrossEntropyLoss", reduction)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"CrossEntropyLoss: label_smoothing must be from 0 to 1, got {label_smoothing}")
        self.label_smoothing = label_smoothing

    def forward(self, input: norch.Tensor, target: norch.Tensor) -> norch.Tensor:
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
