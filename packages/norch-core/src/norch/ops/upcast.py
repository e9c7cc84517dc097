"""Where composites on 16-bit floats compute: in float32, rounded once at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from ..dtype import DType, float32, result_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def upcast(x: Tensor) -> Tensor:
    """`x` in float32 if it is a 16-bit float, else `x` itself."""
    return x if x.spec.dtype.itemsize >= 4 else x.to(float32)


def upcast_dtype(dtype: DType) -> DType:
    """What `upcast` makes of a floating dtype."""
    return dtype if dtype.itemsize >= 4 else float32


def in_float32(function: Callable[P, R]) -> Callable[P, R]:
    """`function` whose first operand, where that is a 16-bit float, and the others are taken in float32."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        spec = getattr(args[0], "spec", None) if args else None
        if spec is None or spec.dtype.itemsize != 2 or not spec.dtype.is_floating_point or kwargs.get("dtype"):
            return function(*args, **kwargs)
        whole: Any = function
        operands: Any = args
        dtype = result_dtype([(x.spec.dtype, x.spec.ndim) for x in operands if hasattr(x, "spec")])
        out = whole(*[upcast(x) if hasattr(x, "spec") else x for x in operands], **kwargs)
        return tuple(x.to(dtype) for x in out) if isinstance(out, tuple) else out.to(dtype)  # type: ignore[return-value]

    return call
