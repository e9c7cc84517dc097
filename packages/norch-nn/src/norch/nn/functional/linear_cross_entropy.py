"""The cross-entropy of a linear layer's scores, as a language model's head has it."""

from __future__ import annotations

from math import prod
from typing import Any

import norch


def linear_cross_entropy(
    input: norch.Tensor,
    linear_weight: norch.Tensor,
    target: norch.Tensor,
    *,
    linear_bias: norch.Tensor | None = None,
    weight: norch.Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> norch.Tensor:
    """`cross_entropy` of `linear(input, linear_weight, linear_bias)`.

    input: (N, in) or (in). linear_weight: (C, in), or (C, d1, ..., in) for scores of shape (N, C, d1, ...);
    linear_bias: its shape without the last dim. target, weight, reduction and label_smoothing as of `cross_entropy`;
    ignore_index None stands for -100. `options` choose in PyTorch how the scores are cut into chunks, and are ignored.

    Raises ShapeError for an input of more dims, or of one where linear_weight has more than two, and for shapes that do
    not fit.
    """
    if input.ndim not in (1, 2) or (input.ndim == 1 and linear_weight.ndim > 2):
        raise norch.ShapeError(
            f"linear_cross_entropy(): input of shape {tuple(input.shape)} does not fit linear_weight "
            f"{tuple(linear_weight.shape)}: expected (N, in)" + (" or (in)" if linear_weight.ndim <= 2 else "")
        )
    *sizes, size = linear_weight.shape
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    scores = norch.linear(input, linear_weight.reshape(prod(sizes), size), bias)
    return norch.cross_entropy(
        scores.reshape((*input.shape[:-1], *sizes)),
        target,
        weight,
        -100 if ignore_index is None else ignore_index,
        reduction,
        label_smoothing,
    )
