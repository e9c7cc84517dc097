"""Elementwise primitives: arithmetic, comparisons, bits, and the functions of one variable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias, overload
from warnings import warn

from ...dispatch.arguments import into, is_bound, must_be, numbers_by_name
from ...dispatch.call import as_operand
from ...dispatch.plan import SCALARS, Inferred
from ...dtype import bool_, finfo, float32, result_dtype, uint8
from ...errors import DTypeError
from ...spec import Spec
from ...tensor_base import TakenOver, TensorBase
from ..families import (
    ANY,
    BITS,
    FLOAT,
    INTS,
    NUMBER,
    UnaryFunction,
    binary,
    comparison,
    composite,
    describe,
    infer_elementwise,
    op_of,
    primitive,
    unary,
    with_out,
)
from ..gradients import elementwise_gradient
from ..registry import FUNCTIONS, method, public

if TYPE_CHECKING:
    from ...tensor import Tensor
    from ..creation import Scalar

    Operand: TypeAlias = "Tensor | float"
    Number: TypeAlias = float


_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _zero(g: Tensor) -> Tensor:
    return zeros_like(g)


# --- Comparisons -----------------------------------------------------------------------------------------------------

eq = comparison("eq", "input == other.")
ne = comparison("ne", "input != other.", "not_equal")
lt = comparison("lt", "input < other.", "less")
le = comparison("le", "input <= other.", "less_equal")
gt = comparison("gt", "input > other.", "greater")
ge = comparison("ge", "input >= other.", "greater_equal")

# --- Arithmetic -----------------------------------------------------------------------------------------------------

_add = binary("add", (lambda g: g, lambda g: g), "input + other.", operator="add", symmetric=True, public=False)
_sub = binary(
    "sub", (lambda g: g, lambda g: -g), "input - other. Not for two bools.", takes=NUMBER, operator="sub", public=False
)
mul = binary(
    "mul",
    (lambda g, b: g * b, lambda g, a: g * a),
    "input * other.",
    also=("multiply",),
    operator="mul",
    symmetric=True,
)
_div = binary(
    "div",
    (lambda g, b: g / b, lambda g, a, b: -g * (a / b / b)),  # b * b may be too large or too small
    "input / other, always floating.",
    takes=FLOAT,
    operator="truediv",
    public=False,
)
floor_divide = binary(
    "floor_divide", (_zero, _zero), "input // other, rounded towards minus infinity.", takes=NUMBER, operator="floordiv"
)
remainder = binary(
    "remainder",
    (lambda g: g, lambda g, a, b: -g * floor_divide(a, b)),
    "input % other, with the sign of other, as Python's.",
    takes=NUMBER,
    operator="mod",
)


def _pow_vjp_a(g: Tensor, a: Any, b: Any) -> Tensor:
    if type(b) in SCALARS:
        return zeros_like(g) if b == 0 else g * b if b == 1 else g * (a ** (b - 1) * b)
    return g * where(b == 0, 0.0, b * a ** (b - 1))


def _pow_vjp_b(g: Tensor, a: Any, b: Any, y: Tensor) -> Tensor:
    # Where the base is 0 the limit is 0 for a positive exponent; log(0) would make it NaN.
    if type(a) in SCALARS:
        return g * y * math.log(a) if a > 0 else g * where(b >= 0, 0.0, math.nan if a < 0 else -math.inf) * y
    zero = (a == 0) & (b >= 0)
    return g * where(zero, 0.0, y * log(where(zero, 1.0, a).to(y.dtype)))


_pow = binary("pow", (_pow_vjp_a, _pow_vjp_b), "input ** other.", takes=NUMBER, operator="pow", public=False)


def _over_square(value: Any, a: Any, b: Any) -> Tensor:
    """value / (a**2 + b**2), whose squares do not overflow; 0 where both are 0, as in PyTorch."""
    tensor = a if hasattr(a, "spec") else b
    x, y = [v if hasattr(v, "spec") else tensor.new_full((), v) for v in (a, b)]
    x, y = [v if v.dtype.is_floating_point else v.float() for v in (x, y)]
    size = maximum(abs(x), abs(y))
    size = where(eq(size, 0) | eq(size, math.inf), 1.0, size)
    square = (x / size) * (x / size) + (y / size) * (y / size)
    out: Tensor = value / size / where(eq(square, 0), 1.0, square) / size
    return out


@elementwise_gradient
def atan2_grad(grad: Tensor, value: Tensor, other: Tensor) -> Tensor:
    return grad * _over_square(value, value, other)


def _atan2_rule(g: Tensor, value: Any, other: Any) -> Any:
    dtypes = {getattr(getattr(v, "spec", None), "dtype", None) for v in (value, other)}
    return atan2_grad(g, value, other) if dtypes == {g.spec.dtype} else g * _over_square(value, value, other)


atan2 = binary(
    "atan2",
    (lambda g, a, b: _atan2_rule(g, b, a), lambda g, a, b: -_atan2_rule(g, a, b)),
    "The angle of the point (other, input), in radians.",
    takes=FLOAT,
    also=("arctan2",),
)


def _tie_share(g: Tensor, a: Any, b: Any, loses: Tensor) -> Tensor:
    # Equal operands share the gradient, and NaN passes it to both, as in PyTorch.
    return where(loses, 0.0, g * where(eq(a, b), 0.5, 1.0))


maximum = binary(
    "maximum",
    (lambda g, a, b: _tie_share(g, a, b, lt(a, b)), lambda g, a, b: _tie_share(g, a, b, gt(a, b))),
    "The larger of input and other; NaN where either is.",
    inplace=False,
)
minimum = binary(
    "minimum",
    (lambda g, a, b: _tie_share(g, a, b, gt(a, b)), lambda g, a, b: _tie_share(g, a, b, lt(a, b))),
    "The smaller of input and other; NaN where either is.",
    inplace=False,
)


def scaled(x: Operand, factor: Number, *others: Any) -> Any:
    """x * factor, where x is a tensor in the dtype that it and `others` promote to: it may hold more than x's does."""
    if not isinstance(x, TensorBase) or type(factor) not in SCALARS:
        return x * factor
    operands = [as_operand(v) for v in others]
    for value, operand in zip(others, operands):
        if operand is NotImplemented:
            raise DTypeError(f"add(): {must_be('an operand', 'Operand', value)}")
    dtype = result_dtype(*describe(*[getattr(v, "spec", type(v)) for v in (x, factor, *operands)]))
    wide: Any = x.to(dtype)
    return wide if factor == 1 else wide * factor


@composite(
    lambda *values: infer_elementwise("add", values), {"a": lambda g: g, "b": lambda g, alpha: g * alpha}, name="axpy"
)
def _axpy(a: Tensor, b: Tensor, alpha: Number) -> Tensor:
    return _add(a, scaled(b, alpha, a))


AXPY = op_of(_axpy)


def _add_scaled(input: Tensor, other: Operand, alpha: float) -> Tensor:
    if isinstance(input, TensorBase) and isinstance(other, TensorBase) and type(alpha) in SCALARS:
        return _axpy(input, other, alpha)
    return _add(input, scaled(other, alpha))


def _in_older_order(function: Any, *args: Any, alpha: float = 1) -> Tensor:
    ordered = numbers_by_name(function.__name__, args, {}) if alpha == 1 else None
    if ordered is None:
        raise TypeError(
            f"{function.__name__}() takes 2 tensors, and a number between them only where alpha is not given"
        )
    return function(*ordered[0], **ordered[1])  # type: ignore[no-any-return]


@with_out(_add, "alpha", inplace=True)
def add(input: Tensor, other: Operand, tensor: Tensor | None = None, *, alpha: float = 1) -> Tensor:
    """input + alpha * other. Operands broadcast and promote; raises ShapeError for shapes that do not broadcast.

    tensor: `other`, where that is `alpha`, as in the order that PyTorch has deprecated.
    """
    if tensor is not None:
        return _in_older_order(add, input, other, tensor, alpha=alpha)
    return _add(input, other) if alpha == 1 else _add_scaled(input, other, alpha)


@with_out(_sub, "alpha", also=("subtract",), inplace=True)
def sub(input: Tensor, other: Operand, tensor: Tensor | None = None, *, alpha: float = 1) -> Tensor:
    """input - alpha * other. Operands broadcast and promote. Raises DTypeError for two bools.

    tensor: as of `add`.
    """
    if tensor is not None:
        return _in_older_order(sub, input, other, tensor, alpha=alpha)
    if alpha == 1:
        return _sub(input, other)
    if isinstance(input, TensorBase) and input.spec.dtype.is_floating_point:
        return _add_scaled(input, other, -alpha)
    return _sub(input, scaled(other, alpha, input))


@with_out(_pow, inplace=True)
def pow(input: Tensor, exponent: Operand) -> Tensor:
    """input ** exponent. Operands broadcast and promote; either may be a number. Raises DTypeError for bool."""
    return _pow(input, exponent)


@composite(
    lambda input, other: infer_elementwise("div", (input, other), NUMBER),
    {"input": _zero, "other": _zero},
    name="trunc_divide",
)
def _trunc_divide(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    dtype = result_dtype(*describe(*[getattr(v, "spec", type(v)) for v in (input, other)]))
    if dtype.is_floating_point:
        return trunc(_div(input, other))  # type: ignore[arg-type]
    quotient = floor_divide(input, other)  # type: ignore[arg-type]
    return quotient + ((quotient < 0) & ne(remainder(input, other), 0))  # type: ignore[arg-type]


@with_out(_div, "rounding_mode", also=("divide", "true_divide"), inplace=True)
def div(input: Tensor, other: Operand, *, rounding_mode: str | None = None) -> Tensor:
    """input / other, floating; or rounded by "floor" or "trunc", dtype promoted. ValueError for another mode.

    The two broadcast. rounding_mode: None, or one of these. Raises ZeroDivisionError for integers divided by a 0 on the
    CPU, rounded.
    """
    if rounding_mode is None:
        return _div(input, other)
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return _trunc_divide(input, other)
    raise ValueError(f"div(): rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")


# --- Bits -------------------------------------------------------------------------------------------

bitwise_and = binary(
    "bitwise_and", None, "input & other; on bool, logical and.", takes=BITS, operator="and", symmetric=True
)
bitwise_or = binary(
    "bitwise_or", None, "input | other; on bool, logical or.", takes=BITS, operator="or", symmetric=True
)
bitwise_xor = binary(
    "bitwise_xor", None, "input ^ other; on bool, logical exclusive or.", takes=BITS, operator="xor", symmetric=True
)
bitwise_left_shift = binary("bitwise_left_shift", None, "input << other.", takes=INTS, operator="lshift")
bitwise_right_shift = binary(
    "bitwise_right_shift", None, "input >> other, keeping the sign.", takes=INTS, operator="rshift"
)
bitwise_not = unary(
    "bitwise_not", None, "~input; on bool, logical not.", takes=BITS, also=("bitwise_invert", "__invert__")
)

# --- Functions of one variable --------------------------------------------------------------------------------------


@elementwise_gradient
def tanh_grad(grad: Tensor, y: Tensor) -> Tensor:
    return grad * (1 - y * y)


@elementwise_gradient
def sigmoid_grad(grad: Tensor, y: Tensor) -> Tensor:
    return grad * (y * (1 - y))


def _root_of_square_plus_1(x: Tensor) -> Tensor:
    # From there on the root rounds to |x|, and the square may overflow.
    size = abs(x)
    return where(gt(size, math.sqrt(2 / finfo(x.spec.dtype).eps)), size, sqrt(x * x + 1))


def _acosh_rule(g: Tensor, x: Tensor) -> Tensor:
    size = abs(x)
    return g / sqrt(size - 1) / sqrt(size + 1)


def _atan_rule(g: Tensor, x: Tensor) -> Tensor:
    root = _root_of_square_plus_1(x)
    return g / root / root


neg = unary("neg", lambda g: -g, "-input.", takes=NUMBER, also=("negative", "__neg__"))
sign = unary("sign", _zero, "-1, 0 or 1 by the sign of input; NaN stays.", takes=ANY)
abs = unary("abs", lambda g, x: g * sign(x), "The absolute value.", takes=NUMBER, also=("absolute", "__abs__"))
exp = unary("exp", lambda g, y: g * y, "e ** input.")
expm1 = unary("expm1", lambda g, y: g * (y + 1), "e ** input - 1, exact for small input.")
log = unary("log", lambda g, x: g / x, "The natural logarithm.")
log1p = unary("log1p", lambda g, x: g / (x + 1), "log(1 + input), exact for small input.")
log2 = unary("log2", lambda g, x: g * (1 / math.log(2)) / x, "The logarithm to base 2.")
log10 = unary("log10", lambda g, x: g * (1 / math.log(10)) / x, "The logarithm to base 10.")
sqrt = unary("sqrt", lambda g, y: g / (y * 2), "The square root; NaN for negative input.")
sin = unary("sin", lambda g, x: g * cos(x), "The sine; input in radians.")
cos: UnaryFunction = unary("cos", lambda g, x: -g * sin(x), "The cosine; input in radians.")
tan = unary("tan", lambda g, y: g * (y * y + 1), "The tangent; input in radians.")
asin = unary("asin", lambda g, x: g / sqrt((1 - x) * (x + 1)), "The inverse sine, in radians.", also=("arcsin",))
acos: UnaryFunction = unary(
    "acos", lambda g, x: -g / sqrt((1 - x) * (x + 1)), "The inverse cosine, in radians.", also=("arccos",)
)
atan = unary("atan", _atan_rule, "The inverse tangent, in radians.", also=("arctan",))
sinh = unary("sinh", lambda g, x: g * cosh(x), "The hyperbolic sine.")
cosh: UnaryFunction = unary("cosh", lambda g, x: g * sinh(x), "The hyperbolic cosine.")
tanh = unary("tanh", tanh_grad, "The hyperbolic tangent.")
asinh = unary("asinh", lambda g, x: g / _root_of_square_plus_1(x), "The inverse hyperbolic sine.", also=("arcsinh",))
acosh: UnaryFunction = unary("acosh", _acosh_rule, "The inverse hyperbolic cosine.", also=("arccosh",))
atanh = unary("atanh", lambda g, x: g / ((1 - x) * (x + 1)), "The inverse hyperbolic tangent.", also=("arctanh",))
sigmoid = unary("sigmoid", sigmoid_grad, "1 / (1 + e ** -input), without overflow.")
erf = unary("erf", lambda g, x: g * exp(-x * x) * _TWO_OVER_ROOT_PI, "The error function.")
floor = unary("floor", _zero, "Rounded towards minus infinity.", takes=NUMBER)
ceil = unary("ceil", _zero, "Rounded towards infinity.", takes=NUMBER)
trunc = unary("trunc", _zero, "Rounded towards 0.", takes=NUMBER, also=("fix",))
_round = unary("round", _zero, "Rounded to the nearest integer, halves to even.", takes=NUMBER, public=False)


@public(inplace=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to `decimals` places, halves to even; shape and dtype kept. Raises DTypeError for places of integers."""
    if decimals == 0:
        return _round(input)
    if not input.dtype.is_floating_point:
        raise DTypeError(f"round(): decimals need a floating dtype, got {input.dtype}")
    scale, dtype = 10.0**decimals, input.dtype
    x = input.to(float32) if dtype.itemsize == 2 else input  # of float16 the scaled ones may be infinite
    return (_round(x * scale) / scale).to(dtype)


@public("__pos__")
def positive(input: Tensor) -> Tensor:
    """+input: the tensor itself. Raises DTypeError for bool."""
    if input.dtype is bool_:
        raise DTypeError("positive(): cannot take bool; convert it first")
    return input


# --- Selection ------------------------------------------------------------------------------------------------------


class _BytesChoose(TakenOver):
    """Raised where a plan is looked up for a condition of uint8."""

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        warn("where(): a uint8 condition is taken for bool, as in PyTorch, which has deprecated it", stacklevel=5)
        return op.call(ne(args[0], 0), *args[1:])

    def into(self, op: Any, out: Any, args: tuple[Any, ...]) -> None:
        op.into(out, ne(args[0], 0), *args[1:])


def _infer_where(condition: Spec, a: Any, b: Any) -> Inferred:
    if condition.dtype is uint8:
        raise _BytesChoose
    if condition.dtype is not bool_:
        raise DTypeError(f"where(): condition must be bool, got {condition.dtype}; compare it with 0")
    dtype = result_dtype(*describe(a, b))
    choice = condition.like(condition.shape, condition.strides, dtype)  # it takes no part in the promotion
    found = infer_elementwise("where", tuple(v for v in (choice, a, b) if type(v) is Spec))
    shape = found.outputs[0].shape
    out = found.outputs[0].like(shape, found.outputs[0].strides, dtype)
    return Inferred((out,), ((bool_, shape), (dtype, shape), (dtype, shape)))


_where = primitive(
    "where",
    "condition a b",
    3,
    _infer_where,
    (None, lambda g, condition: where(condition, g, 0.0), lambda g, condition: where(condition, 0.0, g)),
    elementwise=True,
    mixed=(1, 2),
)


@overload
def where(condition: Tensor, input: Operand, other: Operand, *, out: Tensor | None = None) -> Tensor: ...
@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@public(method=False, check=False)
def where(
    condition: Tensor,
    input: Operand | None = None,
    other: Operand | None = None,
    _extra: None = None,  # none may come by position, see dispatch.codegen
    out: Tensor | None = None,
) -> Any:
    """`input` where the bool tensor `condition` is True, `other` elsewhere; the three broadcast, the two promote.

    With `condition` alone: the indices of its True elements, a tuple of int64 tensors. Raises DTypeError unless
    condition is bool, or uint8, which is compared with 0 and warned of, TypeError for one of the two alone.
    """
    if out is not None or _extra is not None:
        if _extra is not None:
            if is_bound(where, (condition,)):
                return where(input, other, _extra, out=out)
            raise TypeError("where(): takes 3 positional arguments, and out by name")
        return into(where, out, condition, input, other)
    if input is None or other is None:
        if input is not other:
            raise TypeError("where(): takes condition alone, or input and other with it")
        return FUNCTIONS["nonzero"](condition, as_tuple=True)
    return _where.call(condition, input, other)


@method("where")
def _where_method(input: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """This tensor where `condition` is True, `other` elsewhere; the three broadcast."""
    return where(condition, input, other)


from ..creation import zeros_like  # noqa: E402  (creation uses this module)
