"""What the losses share: their reductions, and the rule that shapes must match."""

from __future__ import annotations

import warnings

import norch

REDUCTIONS = ("none", "mean", "sum")


def chosen(op: str, reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction that PyTorch's deprecated `size_average` and `reduce` ask for, or `reduction` without them.

    Raises ValueError for a reduction that is not "none", "mean" or "sum", DTypeError where the deprecated ones are no
    bools, as a reduction in their place is none.
    """
    if size_average is not None or reduce is not None:
        for name, value in (("size_average", size_average), ("reduce", reduce)):
            if value is not None and not isinstance(value, bool):
                raise norch.DTypeError(
                    f"{op}(): {name} must be a bool or None, got {value!r}; did you mean reduction=?"
                )
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(
            f"{op}(): size_average and reduce are deprecated; pass reduction={reduction!r} instead",
            UserWarning,
            stacklevel=3,
        )
    if reduction not in REDUCTIONS:
        raise ValueError(f"{op}(): reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
    return reduction


def reduced(loss: norch.Tensor, reduction: str) -> norch.Tensor:
    """`loss` as it is, its mean or its sum."""
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def matched(op: str, strict: bool, names: str, first: norch.Tensor, *others: norch.Tensor) -> None:
    """Raises ShapeError unless the tensors have one shape; with `strict=False` they may broadcast."""
    shape = first.shape
    for other in others:
        if strict and other.shape != shape:
            shapes = [tuple(x.shape) for x in (first, *others)]
            listed = " and ".join(f"{name} {shape}" for name, shape in zip(names.split(), shapes, strict=True))
            raise norch.ShapeError(
                f"{op}(): {listed} differ in shape; reshape them, or pass strict=False to let them broadcast"
            )


def floating(op: str, names: str, *tensors: norch.Tensor | None) -> None:
    """Raises DTypeError where a tensor is not floating."""
    for i, tensor in enumerate(tensors):
        if tensor is not None and not tensor.dtype.is_floating_point:
            raise norch.DTypeError(f"{op}(): {names.split()[i]} must have a floating dtype, got {tensor.dtype}")


def indices(op: str, target: norch.Tensor) -> None:
    """Raises DTypeError unless `target` holds integers."""
    if target.is_floating_point() or target.dtype is norch.bool:
        raise norch.DTypeError(f"{op}(): target must hold class indices (integers), got {target.dtype}")


def weighted(op: str, loss: norch.Tensor, weight: norch.Tensor | None) -> norch.Tensor:
    """`loss * weight`. Raises ShapeError unless the weight broadcasts to the loss."""
    if weight is None:
        return loss
    if norch.broadcast_shapes(loss.shape, weight.shape) != loss.shape:
        raise norch.ShapeError(f"{op}(): weight {tuple(weight.shape)} does not broadcast to {tuple(loss.shape)}")
    return loss * weight


def signs(op: str, target: norch.Tensor) -> None:
    """Raises DTypeError for a bool `target`, which cannot hold -1."""
    if target.dtype is norch.bool:
        raise norch.DTypeError(f"{op}(): target must hold 1 and -1, got {target.dtype}")
