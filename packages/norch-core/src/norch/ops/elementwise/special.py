"""Special functions, and what is done with the sign, the parts or the factors of a number. Elementwise composites."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...dispatch.plan import Inferred
from ...dtype import INTEGER, DType, bool_, finfo, get_default_dtype, int8, int16, int32, int64
from ...errors import DTypeError
from ...spec import Spec
from ..creation import fill_spec, full, zeros_like
from ..families import NUMBER, composite, infer_elementwise
from ..gradients import elementwise_gradient
from ..registry import public
from ..shape.bitcast import bitcast
from ..upcast import in_float32, upcast
from .arithmetic import abs as absolute
from .arithmetic import (
    cos,
    div,
    eq,
    floor,
    floor_divide,
    gt,
    log,
    log1p,
    lt,
    maximum,
    minimum,
    ne,
    remainder,
    scaled,
    sin,
    where,
)
from .composites import in_one_category, isinf, promoted_dtype, require_floating

if TYPE_CHECKING:
    from ...tensor import Tensor
    from ..creation import Scalar

    Operand: TypeAlias = "Tensor | float"


# --- Operands -------------------------------------------------------------------------------------------------------


def as_floating(input: Tensor) -> Tensor:
    """`input`, in the default dtype where its own is not floating."""
    return input if input.spec.dtype.is_floating_point else input.to(get_default_dtype())


def floating_pair(op: str, input: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Two operands, of which one may be a Python scalar, as tensors of the floating dtype that they promote to."""
    dtype = promoted_dtype(op, input, other)
    dtype = dtype if dtype.is_floating_point else get_default_dtype()
    a, b = (v.to(dtype) if hasattr(v, "spec") else full((), v, dtype=dtype) for v in (input, other))
    return a, b


def _integer_pair(op: str, input: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    dtype = promoted_dtype(op, input, other)
    if dtype.category != INTEGER:
        raise DTypeError(f"{op}(): expected integers, got {input.spec.dtype} and {other.spec.dtype}")
    return input.to(dtype), other.to(dtype)


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """By Horner's rule, from the highest power down."""
    out = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        out = out * x + c
    return out


def infer_unary(name: str) -> Callable[[Spec], Inferred]:
    """The inference rule of an elementwise composite of one operand."""
    return lambda input: infer_elementwise(name, (input,))


# --- Logarithms and powers ------------------------------------------------------------------------------------------


@public(inplace=True)
def exp2(input: Tensor) -> Tensor:
    """2 ** input, elementwise. Integers and bools give the default dtype."""
    return _exp2(as_floating(input))


@composite(infer_unary("exp2"), lambda g, y: g * (y * math.log(2)), name="exp2", elementwise=True)
def _exp2(input: Tensor) -> Tensor:
    out: Tensor = 2.0**input
    return out


@public(inplace=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(input / (1 - input)), after a clamp to [eps, 1 - eps] if eps is given. Shape kept; integers give the default
    dtype.
    """
    return _logit(as_floating(input), eps)


def _logit_rule(g: Tensor, input: Tensor, eps: float | None) -> Tensor:
    low, high = (0.0, 1.0) if eps is None else (eps, 1 - eps)
    outside = lt(input, low) | gt(input, high)
    return where(outside, math.nan if eps is None else 0.0, g / (input * (1 - input)))


@composite(
    lambda input, eps: infer_elementwise("logit", (input,))._replace(attrs={"eps": eps}),
    _logit_rule,
    name="logit",
    elementwise=True,
)
def _logit(input: Tensor, eps: float | None) -> Tensor:
    x = input if eps is None else input.clamp(eps, 1 - eps)
    return log(x / (1 - x))


def _ratio(x: Tensor, y: Tensor) -> Tensor:
    return x / where(eq(y, 0) & eq(x, 0), 1.0, y)  # 0 / 0 is 0


def _log_beside(x: Tensor, y: Tensor) -> Tensor:
    # Where the logarithm is infinite or NaN it must not meet the 0, in the derivative neither.
    return log(where(eq(x, 0) & ((y <= 0) | eq(y, math.inf)), 1.0, y))


@composite(
    lambda *values: infer_elementwise("xlogy", values),
    {
        "x": lambda g, x, y: g * _log_beside(x, y),
        "y": lambda g, x, y: g * _ratio(x, y),
    },
    name="xlogy",
    elementwise=True,
)
def _xlogy(x: Tensor, y: Tensor) -> Tensor:
    return x * _log_beside(x, y)


def _log1p_beside(x: Tensor, y: Tensor) -> Tensor:
    return log1p(where(eq(x, 0) & ((y <= -1) | eq(y, math.inf)), 0.0, y))


@composite(
    lambda *values: infer_elementwise("xlog1py", values),
    {
        "x": lambda g, x, y: g * _log1p_beside(x, y),
        "y": lambda g, x, y: g * _ratio(x, 1 + y),
    },
    name="xlog1py",
    elementwise=True,
)
def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    """`norch.special.xlog1py` of floating tensors."""
    return x * _log1p_beside(x, y)


@public(inplace=True)
def xlogy(input: Operand, other: Operand) -> Tensor:
    """input * log(other), 0 where input is 0 (unless other is NaN). Either may be a number; always floating."""
    return _xlogy(*floating_pair("xlogy", input, other))


def _entropy_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * (-1 - log(input))


@composite(infer_unary("entr"), _entropy_rule, name="entr", elementwise=True)
def entropy(input: Tensor) -> Tensor:
    """`norch.special.entr` of a floating tensor."""
    zero = eq(input, 0)
    found = -input * log(where(zero, 1.0, input))
    return where(zero, 0.0, where(lt(input, 0), -math.inf, found))


@public()
@in_float32
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other), without overflow. The two broadcast; raises DTypeError unless floating."""
    require_floating("logaddexp2", input, other)
    return _logaddexp2(*floating_pair("logaddexp2", input, other))


def _share_of_power(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """g * 2**a / (2**a + 2**b)."""
    difference = upcast(b) - upcast(a)
    top = math.log2(finfo(difference.spec.dtype).max) - 1
    return g / (exp2(minimum(difference, top)) + 1)


@composite(
    lambda input, other: infer_elementwise("logaddexp2", (input, other)),
    {
        "input": lambda g, input, other: _share_of_power(g, input, other),
        "other": lambda g, input, other: _share_of_power(g, other, input),
    },
    name="logaddexp2",
    elementwise=True,
)
def _logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    difference = where(eq(input, other), 0.0, -absolute(input - other))
    return maximum(input, other) + log1p(2.0**difference) / math.log(2)


@public(inplace=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """input * 2**other. Always floating; the two broadcast."""
    x, exponent = floating_pair("ldexp", input, other)
    exponent = exponent.clamp(-4400.0, 4400.0)  # beyond these every product is 0 or infinite
    half = floor(exponent * 0.5)  # 2**other alone may be out of range
    return x * exp2(half) * exp2(exponent - half)


@public(inplace=True)
def sinc(input: Tensor) -> Tensor:
    """sin(pi * input) / (pi * input), 1 at 0. Shape kept; integers and bools give the default dtype."""
    return _sinc(as_floating(input))


_SINC_TAYLOR = tuple((-1) ** n * 2 * n / math.factorial(2 * n + 1) for n in range(9, 0, -1))


@elementwise_gradient
def sinc_grad(grad: Tensor, input: Tensor) -> Tensor:
    x = upcast(input) * math.pi
    small = lt(absolute(x), 1)  # here the two terms all but cancel
    safe = where(small, 1.0, x)
    square = where(small, x * x, 0.0)
    series = x * polynomial(square, _SINC_TAYLOR)
    return (grad * where(small, series, (cos(safe) - sin(safe) / safe) / safe) * math.pi).to(grad.dtype)


@composite(infer_unary("sinc"), sinc_grad, name="sinc", elementwise=True)
def _sinc(input: Tensor) -> Tensor:
    x = upcast(input) * math.pi
    zero = eq(x, 0)
    safe = where(zero, 1.0, x)
    return where(zero, 1.0, sin(safe) / safe).to(input.spec.dtype)


# --- Signs ----------------------------------------------------------------------------------------------------------

_SAME_SIZE: dict[int, DType] = {1: int8, 2: int16, 4: int32, 8: int64}


@public()
def signbit(input: Tensor) -> Tensor:
    """True where the sign bit is set: for negative numbers, and also for -0.0 and negative NaN. A bool tensor."""
    dtype = input.spec.dtype
    if dtype.is_floating_point:
        return bitcast(input, _SAME_SIZE[dtype.itemsize]) < 0
    return fill_spec(input.spec.like(dtype=bool_), False) if not dtype.is_signed else input.detach() < 0


@public(inplace=True)
def copysign(input: Tensor, other: Operand) -> Tensor:
    """The magnitude of input with the sign of other, a tensor or number. Always floating; the two broadcast."""
    return _copysign(*floating_pair("copysign", input, other))


def _copysign_rule(g: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return where(eq(input, 0), 0.0, where(signbit(input) ^ signbit(other), -g, g))


@composite(
    lambda input, other: infer_elementwise("copysign", (input, other)),
    {"input": _copysign_rule, "other": lambda g: zeros_like(g)},
    name="copysign",
)
def _copysign(input: Tensor, other: Tensor) -> Tensor:
    size = absolute(input)
    return where(signbit(other), -size, size)


@public(inplace=True)
def sgn(input: Tensor) -> Tensor:
    """`sign`: norch has no complex dtypes."""
    return input.sign()


@public(inplace=True)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where input < 0, 1 where input > 0, else `values`; no gradient. The two broadcast. Raises DTypeError unless of
    one dtype.
    """
    if input.spec.dtype is not values.spec.dtype:
        raise DTypeError(f"heaviside(): input is {input.spec.dtype} and values {values.spec.dtype}; convert one")
    x = input.detach()
    return where(eq(x, 0), values.detach(), gt(x, 0).to(input.spec.dtype))


@public()
def isposinf(input: Tensor) -> Tensor:
    """True where input is inf. A bool tensor of its shape."""
    return isinf(input) & gt(input.detach(), 0)


@public()
def isneginf(input: Tensor) -> Tensor:
    """True where input is -inf. A bool tensor of its shape."""
    return isinf(input) & lt(input.detach(), 0)


@public()
def isreal(input: Tensor) -> Tensor:
    """True everywhere, in input's shape: norch has no complex dtypes."""
    return fill_spec(input.spec.like(dtype=bool_), True)


# --- Arithmetic -----------------------------------------------------------------------------------------------------


@public(method=False)
def rsub(input: Tensor, other: Operand, *, alpha: float = 1) -> Tensor:
    """other - alpha * input. Operands broadcast and promote. Raises DTypeError for two bools."""
    out: Tensor = other - (input if alpha == 1 else scaled(input, alpha, other))
    return out


@public(inplace=True)
def fmod(input: Tensor, other: Operand) -> Tensor:
    """The remainder of input / other with the sign of input, as C's. Operands broadcast and promote."""
    return _fmod(*in_one_category("fmod", input, other))


@composite(
    lambda input, other: infer_elementwise("fmod", (input, other), NUMBER),
    {"input": lambda g: g, "other": lambda g, input, other: -g * div(input, other, rounding_mode="trunc")},
    name="fmod",
)
def _fmod(input: Tensor, other: Tensor | Scalar) -> Tensor:
    if promoted_dtype("fmod", input, other).is_floating_point:
        size = absolute(input) % abs(other)  # type: ignore[arg-type]
        return copysign(size, input)
    rest = input % other
    return where(ne(rest, 0) & ne(rest < 0, input < 0), rest - other, rest)


@public(inplace=True)
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor of integers, never negative, by Euclid's steps. The two broadcast and promote.

    The number of steps depends on the values, so this waits for them. Raises DTypeError for anything but integers.
    """
    a, b = _integer_pair("gcd", input, other)
    a, b = absolute(a), absolute(b)
    while not b.is_meta and bool(ne(b, 0).any().item()):
        done = eq(b, 0)
        a, b = where(done, a, b), where(done, 0, remainder(a, where(done, 1, b)))
    return a if a.spec.shape == b.spec.shape else a + b


@public(inplace=True)
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiple of integers, 0 where either is 0. The two broadcast and promote.

    It is positive unless it is beyond the dtype: those of 8 and 16 bits wrap around as if computed in 32. Waits for the
    values, as `gcd` does. Raises DTypeError for anything but integers.
    """
    a, b = _integer_pair("lcm", input, other)
    divisor, dtype = gcd(a, b), a.spec.dtype
    if dtype.itemsize < 4:
        a, b, divisor = (x.to(int32) for x in (a, b, divisor))
    return absolute(floor_divide(a, where(eq(divisor, 0), 1, divisor)) * b).to(dtype)
