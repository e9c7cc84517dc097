"""Losses that leave alone what is right by a margin. Shapes must match, as in `loss.py`."""

from __future__ import annotations

from collections.abc import Callable

import norch

from .loss_arguments import as_floating, deprecated_reduction, floating, indices, matched, reduced, signs, weighted


@deprecated_reduction()
def hinge_embedding_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    margin: float = 1.0,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """input where target is 1, max(0, margin - input) where it is -1.

    target may hold integers. Raises ShapeError where the shapes differ (strict), DTypeError unless input is floating.
    """
    op = "hinge_embedding_loss"
    floating(op, "input", input)
    matched(op, strict, "input target", input, target)
    near = norch.where(target != -1, input, 0.0)
    far = norch.where(target != 1, (margin - input).clamp(min=0), 0.0)
    return reduced(op, near + far, reduction)


@deprecated_reduction()
def soft_margin_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """log(1 + exp(-target * input)), target being 1 or -1, without overflow. Raises as hinge_embedding_loss does."""
    op = "soft_margin_loss"
    floating(op, "input", input)
    matched(op, strict, "input target", input, target)
    signs(op, target)
    return reduced(op, -norch.logsigmoid(target * input), reduction)


@deprecated_reduction()
def margin_ranking_loss(
    input1: norch.Tensor,
    input2: norch.Tensor,
    target: norch.Tensor,
    margin: float = 0,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """max(0, margin - target * (input1 - input2)): target 1 wants input1 the larger, -1 input2.

    All may hold integers. Raises ShapeError where the shapes differ (strict).
    """
    op = "margin_ranking_loss"
    matched(op, strict, "input1 input2 target", input1, input2, target)
    signs(op, target)
    input1, input2 = as_floating(input1, input2)
    return reduced(op, (margin - target * (input1 - input2)).clamp(min=0), reduction)


@deprecated_reduction()
def cosine_embedding_loss(
    input1: norch.Tensor,
    input2: norch.Tensor,
    target: norch.Tensor,
    margin: float = 0,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1, of the angles between rows of `input1` and
    `input2`.

    (N, D), (N, D) and (N) or (1), one label for all rows; or (D), (D) and (). All may hold integers. Raises ShapeError
    for other shapes (with `strict=False` sizes of 1 broadcast).
    """
    op = "cosine_embedding_loss"
    matched(op, strict, "input1 input2", input1, input2)
    input1, input2 = as_floating(input1, input2)
    fitting = (tuple(input1.shape[:-1]), (1,))
    if not input1.ndim == input2.ndim == target.ndim + 1 <= 2 or (strict and tuple(target.shape) not in fitting):
        raise norch.ShapeError(
            f"{op}(): expected (N, D), (N, D) and (N), or (D), (D) and (); got input1 {tuple(input1.shape)}, input2 "
            f"{tuple(input2.shape)} and target {tuple(target.shape)}"
        )
    tiny = 1e-12  # added to the squares, as PyTorch does here and nowhere else
    squares = ((input1 * input1).sum(-1) + tiny) * ((input2 * input2).sum(-1) + tiny)
    cosine = (input1 * input2).sum(-1) / squares.sqrt()
    near = norch.where(target == 1, 1 - cosine, 0.0)
    far = norch.where(target == -1, (cosine - margin).clamp(min=0), 0.0)
    return reduced(op, near + far, reduction)


# --- Triplets -------------------------------------------------------------------------------------------------------


@deprecated_reduction()
def triplet_margin_loss(
    anchor: norch.Tensor,
    positive: norch.Tensor,
    negative: norch.Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d being `pairwise_distance`: (*, D) to (*).

    swap: takes d(positive, negative) where that is smaller (Balntas et al., 2016). Raises ShapeError where the shapes
    differ (strict), ValueError unless `margin` > 0.
    """
    op = "triplet_margin_loss"
    return _triplet(
        op,
        anchor,
        positive,
        negative,
        lambda a, b: norch.pairwise_distance(a, b, p, eps),
        margin,
        swap,
        reduction,
        strict,
    )


def triplet_margin_with_distance_loss(
    anchor: norch.Tensor,
    positive: norch.Tensor,
    negative: norch.Tensor,
    *,
    distance_function: Callable[[norch.Tensor, norch.Tensor], norch.Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
    strict: bool = True,
) -> norch.Tensor:
    """`triplet_margin_loss` with any distance of two tensors; `pairwise_distance` unless given.

    anchor, positive, negative: (N, D) or (D); `strict`: shapes that differ are refused.
    """
    op = "triplet_margin_with_distance_loss"
    distance = norch.pairwise_distance if distance_function is None else distance_function
    return _triplet(op, anchor, positive, negative, distance, margin, swap, reduction, strict)


def _triplet(
    op: str,
    anchor: norch.Tensor,
    positive: norch.Tensor,
    negative: norch.Tensor,
    distance: Callable[[norch.Tensor, norch.Tensor], norch.Tensor],
    margin: float,
    swap: bool,
    reduction: str,
    strict: bool,
) -> norch.Tensor:
    if not margin > 0:
        raise ValueError(f"{op}(): margin must be greater than 0, got {margin}")
    matched(op, strict, "anchor positive negative", anchor, positive, negative)
    far = distance(anchor, negative)
    if swap:
        far = norch.minimum(far, distance(positive, negative))
    return reduced(op, (distance(anchor, positive) - far + margin).clamp(min=0), reduction)


# --- Several classes ------------------------------------------------------------------------------------------------


def _rows(op: str, input: norch.Tensor) -> norch.Tensor:
    """`input` as (N, C). Raises ShapeError unless it is that, (C) or one class, (), with at least one class."""
    if input.ndim > 2 or 0 in input.shape[-1:]:
        raise norch.ShapeError(f"{op}(): input must be (N, C) or (C), got {tuple(input.shape)}")
    return input if input.ndim == 2 else input.reshape(1, -1)


def _gather_class(op: str, input: norch.Tensor, dim: int, index: norch.Tensor, classes: int) -> norch.Tensor:
    """gather, for which a negative index is out of range too."""
    try:
        return norch.gather(input, dim, norch.where(index < 0, classes, index))
    except norch.IndexError:
        raise _out_of_range(op, classes) from None


def _out_of_range(op: str, classes: int) -> Exception:
    return norch.IndexError(f"{op}(): a target is outside [0, {classes}), the classes of input")


@deprecated_reduction()
def multi_margin_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: norch.Tensor | None = None,
    reduction: str = "mean",
) -> norch.Tensor:
    """The mean over the classes i of max(0, margin - input[target] + input[i]) ** p, without i = target.

    input: (N, C) or (C); target: class indices, (N) or (). weight: (C), a factor for each target's class. Raises
    ShapeError for other shapes, DTypeError for a target without integers, IndexError for one outside [0, C), ValueError
    unless p is 1 or 2.
    """
    op = "multi_margin_loss"
    floating(op, "input weight", input, weight)
    indices(op, target)
    if p not in (1, 2):
        raise ValueError(f"{op}(): p must be 1 or 2, got {p}")
    rows = _rows(op, input)
    count, classes = rows.shape
    if tuple(target.shape) != (count,) and (target.ndim or input.ndim > 1):
        raise norch.ShapeError(f"{op}(): target {tuple(target.shape)} does not fit input {tuple(input.shape)}")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise norch.ShapeError(f"{op}(): weight {tuple(weight.shape)} does not fit the {classes} classes of input")
    index = target.reshape(count)
    try:
        loss = norch.multi_margin_rows(rows, index, p, margin)
    except norch.IndexError:
        raise _out_of_range(op, classes) from None
    if weight is not None:
        loss = loss * weight.gather(0, index.long())
    return reduced(op, loss if target.ndim else loss.squeeze(0), reduction)


@deprecated_reduction()
def multilabel_margin_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    reduction: str = "mean",
) -> norch.Tensor:
    """The sum over target classes j and other classes i of max(0, 1 - input[j] + input[i]), over the number of classes.

    input: (N, C) or (C); target: integers in input's shape, in each row the target classes, then -1. Raises ShapeError
    for other shapes, DTypeError for a target without integers, IndexError for a class that is not in [0, C).
    """
    op = "multilabel_margin_loss"
    floating(op, "input", input)
    indices(op, target)
    matched(op, True, "input target", input, target)
    rows = _rows(op, input)
    classes = rows.shape[1]
    index = target.long().reshape(rows.shape)
    listed = (index < 0).long().cumsum(1) == 0
    index = norch.where(listed, index, 0)
    wanted = _gather_class(op, rows, 1, index, classes)
    hits = norch.zeros_like(index).scatter_add(1, index, listed.long()) > 0
    pairs = listed.unsqueeze(2) & ~hits.unsqueeze(1)
    loss = norch.where(pairs, (1 - wanted.unsqueeze(2) + rows.unsqueeze(1)).relu(), 0.0).sum((1, 2)) / classes
    return reduced(op, loss if input.ndim == 2 else loss.squeeze(0), reduction)


@deprecated_reduction()
def multilabel_soft_margin_loss(
    input: norch.Tensor,
    target: norch.Tensor,
    weight: norch.Tensor | None = None,
    reduction: str = "mean",
    *,
    strict: bool = True,
) -> norch.Tensor:
    """The mean over the last dim, the classes, of binary_cross_entropy_with_logits: (*, C) to (*).

    target, 0 or 1, may hold integers; the result has the dtype that the two promote to. `weight` broadcasts. Raises
    ShapeError where the shapes differ (strict), DTypeError unless input is floating.
    """
    op = "multilabel_soft_margin_loss"
    floating(op, "input weight", input, weight)
    matched(op, strict, "input target", input, target)
    input, target = (x.to(norch.result_type(input, target)) for x in (input, target))
    loss = norch.binary_cross_entropy_with_logits(input, target, reduction="none", strict=strict)
    return reduced(op, weighted(op, loss, weight).mean(-1), reduction)
