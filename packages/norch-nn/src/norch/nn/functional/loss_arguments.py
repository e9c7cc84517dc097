"""What the losses share: their reductions, and the rule that shapes must match."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import norch

P = ParamSpec("P")
R = TypeVar("R")

REDUCTIONS = ("none", "mean", "sum")


def deprecated_reduction(size_average_before: str = "reduction") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: PyTorch's deprecated arguments `size_average` and `reduce` before `reduction`, which they stand for.

    `size_average` comes before the argument of that name. Where one of the two is given, the call warns, and raises
    DTypeError unless they are bools, as a reduction in their place is not.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        for name, before in (("size_average", size_average_before), ("reduce", "reduction")):
            place = [p.name for p in parameters].index(before)
            parameters.insert(
                place,
                inspect.Parameter(
                    name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation="bool | None"
                ),
            )
        signature = signature.replace(parameters=parameters)
        most = [p.name for p in parameters].index("size_average")

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(args) <= most and "size_average" not in kwargs and "reduce" not in kwargs:
                return function(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments
            old = {name: given.pop(name, None) for name in ("size_average", "reduce")}
            if old != {"size_average": None, "reduce": None}:
                op = function.__name__ if "self" not in given else type(given["self"]).__name__
                given["reduction"] = _reduction_of(op, **old)
            return function(**given)  # type: ignore[call-arg]

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.size_average_before = size_average_before  # type: ignore[attr-defined]
        call.without_deprecated = function  # type: ignore[attr-defined]
        return call

    return decorate


def _reduction_of(op: str, size_average: bool | None, reduce: bool | None) -> str:
    for name, value in (("size_average", size_average), ("reduce", reduce)):
        if value is not None and not isinstance(value, bool):
            raise norch.DTypeError(f"{op}(): {name} must be a bool or None, got {value!r}; did you mean reduction=?")
    reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    message = f"{op}(): size_average and reduce are deprecated; pass reduction={reduction!r} instead"
    warnings.warn(message, UserWarning, stacklevel=3)
    return reduction


def check_reduction(op: str, reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """Raises ValueError for a reduction that is not "none", "mean" or "sum"."""
    if reduction not in allowed:
        raise ValueError(f"{op}(): reduction must be 'none', 'mean' or 'sum', got {reduction!r}")


def reduced(op: str, loss: norch.Tensor, reduction: str) -> norch.Tensor:
    """`loss` as it is, its mean or its sum. Raises ValueError for another reduction."""
    check_reduction(op, reduction)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def _check_tensor(op: str, name: str, value: Any) -> None:
    if not isinstance(value, norch.Tensor):
        raise norch.DTypeError(f"{op}(): {name}: expected a Tensor, got {type(value).__name__}")


def matched(op: str, strict: bool, names: str, *tensors: norch.Tensor) -> None:
    """Raises ShapeError unless the tensors have one shape, which `strict=False` leaves out; DTypeError for others."""
    for name, tensor in zip(names.split(), tensors, strict=True):
        _check_tensor(op, name, tensor)
    if strict and any(tensor.shape != tensors[0].shape for tensor in tensors):
        shapes = " and ".join(f"{n} {tuple(x.shape)}" for n, x in zip(names.split(), tensors, strict=True))
        raise norch.ShapeError(
            f"{op}(): {shapes} differ in shape; reshape them, or pass strict=False to let them broadcast"
        )


def floating(op: str, names: str, *tensors: norch.Tensor | None) -> None:
    """Raises DTypeError unless the tensors are floating; None is left out."""
    for name, tensor in zip(names.split(), tensors, strict=True):
        if tensor is not None:
            _check_tensor(op, name, tensor)
            if not tensor.dtype.is_floating_point:
                raise norch.DTypeError(f"{op}(): {name} must have a floating dtype, got {tensor.dtype}")


def as_floating(*tensors: norch.Tensor) -> tuple[norch.Tensor, ...]:
    """The tensors, integers and bools among them in the default dtype."""
    return tuple([x if x.is_floating_point() else x.to(norch.get_default_dtype()) for x in tensors])


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
