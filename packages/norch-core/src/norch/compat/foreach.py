"""`torch._foreach_*`: a method of Tensor over lists of tensors, one after the other. With "_" at the end, in place: the
list itself is what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

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


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "norm": _norm, "max": _max, "clone": _clone, "zero_": _zero_, "copy_": _copy_
}  # fmt: skip


@cache
def find(name: str) -> Callable[..., Any] | None:
    """The function of a name like "_foreach_add_", or None."""
    method = name.removeprefix("_foreach_")
    function = _FUNCTIONS.get(method) or (_over(method) if method.removesuffix("_") in _METHODS else None)
    if function is not None:
        function.__name__ = function.__qualname__ = name
    return function
