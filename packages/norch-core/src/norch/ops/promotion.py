"""What several operands come to: the dtype that they promote to, the shape that they broadcast to."""

from __future__ import annotations

from importlib import import_module

from ..dtype import ComplexDType, DType, result_dtype
from ..spec import Size
from ..spec import broadcast_shapes as common_shape
from .families import describe
from .registry import public


@public(method=False)
def result_type(*operands: object) -> DType:
    """The dtype that arithmetic on these tensors and Python scalars has. Raises DTypeError if there are none."""
    if any(isinstance(v, complex) or isinstance(getattr(v, "dtype", None), ComplexDType) for v in operands):
        return import_module("norch.compat.complex_creation").result_type(*operands)  # type: ignore[no-any-return]
    return result_dtype(*describe(*[getattr(v, "spec", type(v)) for v in operands]))


@public(method=False)
def broadcast_shapes(*shapes: tuple[int, ...] | int) -> Size:
    """The shape that all of `shapes` broadcast to, an int being a vector's. Raises ShapeError where there is none."""
    return Size(common_shape(*[(s,) if isinstance(s, int) else tuple(s) for s in shapes]))
