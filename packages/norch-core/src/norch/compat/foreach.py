"""`torch._foreach_*`: a method of Tensor over lists of tensors, one after the other. With "_" at the end, in place: the
list itself is what they give. What averages of a model's weights are made of is one kernel for all tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from .. import switches
from ..autograd.graph import is_recording
from ..dtype import float32, float64
from ..observing import is_observed
from ..ops import full, scale_
from ..ops.optimizer.descent import moved_together
from ..ops.optimizer.driver import watchers
from ..overriding import is_overriding
from ..tensor import Tensor

_UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round "
    "rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
)
_OTHERS = "add addcdiv addcmul clamp_max clamp_min div lerp maximum minimum mul pow sub"
_METHODS = frozenset([*_UNARY.split(), *_OTHERS.split()])
_BOUNDS = {"maximum": "min", "clamp_min": "min", "minimum": "max", "clamp_max": "max"}


def _call(name: str, tensor: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    bare = name.rstrip("_")
    in_place = name.endswith("_")
    if bare in _BOUNDS:
        if isinstance(args[0], Tensor):
            bare = "maximum" if _BOUNDS[bare] == "min" else "minimum"
            found = getattr(tensor, bare)(*args)
            return tensor.copy_(found) if in_place else found
        return (tensor.clamp_ if in_place else tensor.clamp)(**{_BOUNDS[bare]: args[0]})
    if bare in ("addcmul", "addcdiv") and len(args) == 3:
        args, kwargs = args[:2], {"value": args[2]}
    if not isinstance(tensor, Tensor):  # pow of a number and tensors
        return tensor ** args[0]
    return getattr(tensor, name)(*args, **kwargs)


def _over(name: str) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        columns = [self, *args, *kwargs.values()]
        count = max(len(column) for column in columns if isinstance(column, list | tuple))
        columns = [c.tolist() if isinstance(c, Tensor) and c.ndim == 1 else c for c in columns]
        rows = zip(*[c if isinstance(c, list | tuple) else [c] * count for c in columns], strict=True)
        cut = len(args) + 1
        out = [_call(name, row[0], row[1:cut], dict(zip(kwargs, row[cut:], strict=True))) for row in rows]
        return self if name.endswith("_") else out

    return call


def _norm(self: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> list[Tensor]:
    return [x.norm(ord, dtype=dtype) for x in self]


def _max(self: Sequence[Tensor]) -> list[Tensor]:
    return [x.max() for x in self]


def _clone(self: Sequence[Tensor], *, memory_format: Any = None) -> list[Tensor]:
    return [x.clone() if memory_format is None else x.clone(memory_format=memory_format) for x in self]


def _zero_(self: Sequence[Tensor]) -> Sequence[Tensor]:
    for x in self:
        x.zero_()
    return self


def _copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> Sequence[Tensor]:
    for x, value in zip(self, src, strict=True):
        x.copy_(value, non_blocking)
    return self


def _are_alike(*lists: Any) -> bool:
    """Whether they are lists of as many plain tensors of one device and floating dtype, each of the same shape in all
    lists, whose changes nothing records."""
    if switches.noting is not None or watchers or is_observed():
        return False
    if not all(type(tensors) in (list, tuple) for tensors in lists) or not lists[0]:
        return False
    if any(len(tensors) != len(lists[0]) for tensors in lists):
        return False
    for t in (t for tensors in lists for t in tensors):
        if not isinstance(t, Tensor) or t.apply_function is not None or is_overriding(t):
            return False
        if is_recording() and t.requires_grad:
            return False
    kinds = {(t.spec.dtype, t.spec.device) for tensors in lists for t in tensors}
    if len(kinds) != 1 or not lists[0][0].spec.dtype.is_floating_point:
        return False
    return all(x.spec.shape == y.spec.shape for tensors in lists[1:] for x, y in zip(lists[0], tensors, strict=True))


def _add_(self: Sequence[Tensor], other: Any, *, alpha: float = 1) -> Sequence[Tensor]:
    if type(alpha) in (int, float) and _are_alike(self, other) and moved_together(self, other, alpha, False):
        return self
    return _over("add_")(self, other, **({} if type(alpha) is int and alpha == 1 else {"alpha": alpha}))  # type: ignore[no-any-return]


def _sub_(self: Sequence[Tensor], other: Any, *, alpha: float = 1) -> Sequence[Tensor]:
    if type(alpha) in (int, float) and _are_alike(self, other) and moved_together(self, other, -alpha, False):
        return self
    return _over("sub_")(self, other, **({} if type(alpha) is int and alpha == 1 else {"alpha": alpha}))  # type: ignore[no-any-return]


def _lerp_(self: Sequence[Tensor], tensors1: Any, weight: Any) -> Sequence[Tensor]:
    # Beyond a half lerp goes back from the other end.
    is_small = type(weight) in (int, float) and abs(weight) < 0.5
    if is_small and _are_alike(self, tensors1) and moved_together(self, tensors1, weight, True):
        return self
    return _over("lerp_")(self, tensors1, weight)  # type: ignore[no-any-return]


def _mul_(self: Sequence[Tensor], other: Any) -> Sequence[Tensor]:
    if type(other) in (int, float) and len(self) > _FEW and _are_alike(self):
        spec = self[0].spec
        scale_(self, full((), other, dtype=float64 if spec.dtype is float64 else float32, device=spec.device))
        return self
    return _over("mul_")(self, other)  # type: ignore[no-any-return]


_FEW = 8
"""So many are multiplied one by one sooner than by a tensor that has the factor."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "norm": _norm, "max": _max, "clone": _clone, "zero_": _zero_, "copy_": _copy_, "add_": _add_, "sub_": _sub_,
    "lerp_": _lerp_, "mul_": _mul_,
}  # fmt: skip


@cache
def find(name: str) -> Callable[..., Any] | None:
    """The function of a name like "_foreach_add_", or None."""
    method = name.removeprefix("_foreach_")
    function = _FUNCTIONS.get(method) or (_over(method) if method.removesuffix("_") in _METHODS else None)
    if function is not None:
        function.__name__ = function.__qualname__ = name
    return function
