"""Python numbers as operands of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..dtype import BOOL, INTEGER, DType, iinfo
from ..errors import DTypeError
from .traced import TracedInt

if TYPE_CHECKING:
    from .op import Op

_MODULAR = frozenset({"add", "axpy", "sub", "mul", "fill", "bitwise_and", "bitwise_or", "bitwise_xor"})


def scalar_conversion(op: Op, dtype: DType, operand: int) -> Callable[[list[Any], int], None]:
    """What makes of a number, operand number `operand` of `op`, the argument of a kernel that computes in `dtype`."""
    if dtype.category != INTEGER:
        kind = bool if dtype.category == BOOL else float

        def cast(args: list[Any], at: int) -> None:
            args[at] = kind(args[at])

        return cast
    limits = iinfo(dtype)
    is_exponent = op.name == "pow" and operand == 1
    span_of_dtype = limits.max - limits.min + 1

    def convert(args: list[Any], at: int) -> None:
        try:
            value = args[at] if type(args[at]) is TracedInt else int(args[at])
        except (OverflowError, ValueError):
            raise DTypeError(f"{op.name}(): {args[at]} is out of range for {dtype}") from None
        if is_exponent and value < 0:
            raise DTypeError(
                f"pow(): {dtype} has no power of {value}, a fraction; convert the base to a floating dtype"
            )
        if not limits.min <= value <= limits.max:
            # As in PyTorch, -1 wraps in an unsigned tensor, so that subtraction can be addition; but only where
            # arithmetic modulo 256 is what is asked, not in a comparison.
            if dtype.is_signed or op.name not in _MODULAR or not -limits.max <= value < 0:
                raise DTypeError(f"{op.name}(): {value} is out of range for {dtype}")
            value += span_of_dtype
        args[at] = value

    return convert


def as_scalar(op: Op, value: Any, dtype: DType, operand: int) -> Any:
    """The number that a kernel of `op` gets for operand number `operand`."""
    args = [value]
    if dtype.category == INTEGER or (type(value) is bool) != (dtype.category == BOOL):
        scalar_conversion(op, dtype, operand)(args, 0)
    return args[0]
