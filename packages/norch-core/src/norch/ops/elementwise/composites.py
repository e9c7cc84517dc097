"""Elementwise composites: each a decomposition over primitives that is right on any backend."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from ...dispatch.arguments import fits, into, must_be
from ...dispatch.plan import SCALARS, Inferred
from ...dtype import DType, bool_, finfo, int64, result_dtype
from ...errors import DTypeError, ShapeError
from ...overriding import of_foreign
from ...spec import Spec
from ..creation import fill_spec, full
from ..families import FLOAT, NUMBER, composite, describe, infer_elementwise, op_of
from ..registry import public
from ..upcast import in_float32, upcast_dtype
from .arithmetic import abs as absolute
from .arithmetic import (
    bitwise_not,
    eq,
    ge,
    gt,
    le,
    lt,
    maximum,
    minimum,
    ne,
    pow,
    sigmoid,
    sqrt,
    sub,
    where,
)

if TYPE_CHECKING:
    from ...tensor import Tensor
    from ..creation import Scalar

    Operand: TypeAlias = "Tensor | float"
    Number: TypeAlias = float


# --- Logic ----------------------------------------------------------------------------------------------------------


def _as_bool(x: Any) -> Tensor:
    if isinstance(x, int | float):
        return bool(x)  # type: ignore[return-value]
    return x if x.spec.dtype is bool_ else ne(x, 0)


@public(inplace=True)
def logical_not(input: Tensor) -> Tensor:
    """True where input is 0. A bool tensor of its shape."""
    return bitwise_not(_as_bool(input))


@public(inplace=True)
def logical_and(input: Tensor, other: Operand) -> Tensor:
    """True where neither is 0; the two broadcast. A bool tensor."""
    return _as_bool(input) & _as_bool(other)


@public(inplace=True)
def logical_or(input: Tensor, other: Operand) -> Tensor:
    """True where either is not 0; the two broadcast. A bool tensor."""
    return _as_bool(input) | _as_bool(other)


@public(inplace=True)
def logical_xor(input: Tensor, other: Operand) -> Tensor:
    """True where just one is not 0; the two broadcast. A bool tensor."""
    return _as_bool(input) ^ _as_bool(other)


@public()
def isnan(input: Tensor) -> Tensor:
    """True where input is NaN. A bool tensor of its shape."""
    return ne(input, input)


@public()
def isinf(input: Tensor) -> Tensor:
    """True where input is inf or -inf. A bool tensor of its shape."""
    if not input.spec.dtype.is_floating_point:
        return fill_spec(input.spec.like(dtype=bool_), False)
    return eq(absolute(input.detach()), math.inf)


@public()
def isfinite(input: Tensor) -> Tensor:
    """True where input is neither NaN nor infinite. A bool tensor of its shape."""
    if not input.spec.dtype.is_floating_point:
        return fill_spec(input.spec.like(dtype=bool_), True)
    return absolute(input.detach()) < math.inf


@public()
def isclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """True where |input - other| <= atol + rtol * |other|, or both are the same infinity, or, with `equal_nan`, both
    NaN.

    A bool tensor; the two broadcast (NumPy's convention, which is not symmetric). ValueError for a negative tolerance.
    """
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose(): rtol and atol must not be negative, got {rtol} and {atol}")
    a, b = input.detach(), other.detach()
    if not rtol and not atol and not equal_nan:
        return eq(a, b)
    if not a.spec.dtype.is_floating_point and a.spec.dtype is b.spec.dtype:
        a, b = a.double(), b.double()
    near = (absolute(a - b) <= absolute(b) * rtol + atol) & isfinite(b) | eq(a, b)
    return near | (isnan(a) & isnan(b)) if equal_nan else near


@public()
def allclose(input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> bool:
    """Whether `isclose` holds everywhere: a bool of Python, which waits for the device."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all().item())


@public()
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements: a bool of Python, which waits for the device."""
    return input.spec.shape == other.spec.shape and bool((input == other).all().item())


# --- Functions of one tensor ----------------------------------------------------------------------------------------


@public(inplace=True)
def reciprocal(input: Tensor) -> Tensor:
    """1 / input, elementwise; integers and bools give the default dtype."""
    return 1 / input


@public(inplace=True)
def rsqrt(input: Tensor) -> Tensor:
    """1 / sqrt(input), elementwise; integers and bools give the default dtype."""
    return _rsqrt(input)


@composite(
    lambda input: infer_elementwise("rsqrt", (input,), FLOAT),
    lambda g, y: g * -0.5 * y * y * y,
    name="rsqrt",
    elementwise=True,
)
def _rsqrt(input: Tensor) -> Tensor:
    return 1 / sqrt(input)


@public(inplace=True)
def square(input: Tensor) -> Tensor:
    """input * input, elementwise. Shape and dtype kept; bools give int64."""
    return input * input if input.spec.dtype is not bool_ else input.to(int64)


@public(inplace=True)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees as radians, input * pi / 180; integers give the default dtype. Shape kept."""
    return input * (math.pi / 180)


@public(inplace=True)
def rad2deg(input: Tensor) -> Tensor:
    """Radians as degrees, input * 180 / pi; integers give the default dtype. Shape kept."""
    return input * (180 / math.pi)


@public(inplace=True)
def frac(input: Tensor) -> Tensor:
    """The fractional part, input - trunc(input), with the sign of input. Shape and dtype kept."""
    return _frac(input)


@composite(lambda input: infer_elementwise("frac", (input,), NUMBER), lambda g: g, name="frac", elementwise=True)
def _frac(input: Tensor) -> Tensor:
    return input - input.trunc()


_REPLACED = ("nan", "posinf", "neginf")


@public(inplace=True)
def nan_to_num(input: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """NaN replaced by `nan`, infinities by `posinf` and `neginf`: by default the dtype's limits. Shape, dtype kept."""
    if not input.spec.dtype.is_floating_point:
        return input.clone()
    limits = finfo(input.spec.dtype)
    posinf, neginf = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    return _nan_to_num(input, float(nan), float(posinf), float(neginf))


@composite(
    lambda input, *numbers: infer_elementwise("nan_to_num", (input,))._replace(attrs=dict(zip(_REPLACED, numbers))),
    lambda g, input: where(isfinite(input), g, 0.0),
    name="nan_to_num",
    elementwise=True,
)
def _nan_to_num(input: Tensor, nan: float, posinf: float, neginf: float) -> Tensor:
    out = where(isnan(input), nan, input)
    out = where(eq(input, math.inf), posinf, out)
    return where(eq(input, -math.inf), neginf, out)


_BOUNDS = frozenset({*SCALARS, type(None)})


def _clamp_rule(g: Tensor, input: Tensor, min: Any, max: Any) -> Tensor:
    return where((input >= min) & (input <= max), g, 0.0)


@public("clip", check=False)
def clamp(input: Tensor, min: Any = None, max: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Input limited to [min, max], numbers or tensors; NaN stays, gradient 0 outside. ShapeError for both None.

    Shape kept, or broadcast with the bounds. Raises DTypeError for bounds that are neither.
    """
    if out is not None:
        return into(clamp, out, input, min, max)  # type: ignore[no-any-return]
    if type(min) in _BOUNDS and type(max) in _BOUNDS:
        if min is not None and max is not None:
            return _clamp(input, min, max)
        if min is not max and hasattr(input, "spec"):
            return (_one_sided if input.spec.dtype.is_floating_point else _between)(input, min, max)
    if min is None and max is None:
        raise ShapeError("clamp(): needs min or max")
    asked = of_foreign(input, min, max)
    if asked is not None:
        return asked("clamp", (input, min, max), {})  # type: ignore[no-any-return]
    for name, note, value in (
        ("input", "Tensor", input),
        ("min", "Operand | None", min),
        ("max", "Operand | None", max),
    ):
        if not fits(note, value):
            raise DTypeError(f"clamp(): {must_be(name, note, value)}")
    kinds = {hasattr(bound, "spec") for bound in (min, max) if bound is not None}
    if kinds == {True}:
        return _clamp_between(input, min, max)
    if kinds == {True, False}:
        return _clamp_between(input, *[_as_bound(bound, input) for bound in (min, max)])
    return (_one_sided if input.spec.dtype.is_floating_point else _between)(input, min, max)


def _one_sided(input: Tensor, min: Any, max: Any) -> Tensor:
    return _clamp(input, -math.inf if min is None else min, math.inf if max is None else max)


def _as_bound(bound: Any, input: Tensor) -> Any:
    """A number as a 0-d tensor that promotes as it would."""
    if bound is None or hasattr(bound, "spec"):
        return bound
    whole = input.spec.dtype.is_floating_point or (type(bound) is int and input.spec.dtype is not bool_)
    return full((), bound, dtype=input.spec.dtype if whole else None, device=input.spec.device)


def _between(input: Tensor, min: Any, max: Any) -> Tensor:
    out = input if min is None else maximum(input, min)
    return out if max is None else minimum(out, max)


@composite(lambda *values: infer_elementwise("clamp", values), {"input": _clamp_rule}, name="clamp")
def _clamp(input: Tensor, min: Number, max: Number) -> Tensor:
    return _between(input, min, max)


CLAMP = op_of(_clamp)


def _infer_clamp_between(input: Spec, min: Spec | None, max: Spec | None) -> Inferred:
    return infer_elementwise("clamp", tuple([s for s in (input, min, max) if s is not None]))


def _clamp_between_rule(g: Any, input: Tensor, min: Any, max: Any, needs: tuple[bool, ...]) -> tuple[Any, ...]:
    # At a bound the gradient is input's; where the bounds have crossed it is max's. As in PyTorch.
    shares: Any
    if max is None:
        shares = ge(input, min), lt(input, min), None
    elif min is None:
        shares = le(input, max), None, gt(input, max)
    else:
        shares = ge(input, min) & le(input, max), lt(input, min) & lt(min, max), gt(input, max) | lt(max, min)
    return tuple([where(share, g, 0.0) if n else None for share, n in zip(shares, needs, strict=True)])


@composite(_infer_clamp_between, _clamp_between_rule, name="clamp_between", joint=True, elementwise=True)
def _clamp_between(input: Tensor, min: Tensor | None, max: Tensor | None) -> Tensor:
    return _between(input, min, max)


@public(inplace=True)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """`clamp` from below. Raises as clamp does."""
    return clamp(input, min)


@public(inplace=True)
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """`clamp` from above. Raises as clamp does."""
    return clamp(input, None, max)


# --- Functions of several tensors -----------------------------------------------------------------------------------


def promoted_dtype(op: str, *operands: Any) -> DType:
    """The dtype that tensors and Python scalars promote to. Raises DTypeError for an operand that is neither."""
    for value in operands:
        if not hasattr(value, "spec") and type(value) not in SCALARS:
            raise DTypeError(f"{op}(): expected a Tensor or a number, got {type(value).__name__} {value!r:.60}")
    return result_dtype(*describe(*[getattr(v, "spec", type(v)) for v in operands]))


def in_one_category(op: str, *operands: Any) -> list[Any]:
    """The operands, of which tensors are bool, integer or floating as the dtype that all promote to."""
    dtype = promoted_dtype(op, *operands)
    return [v.to(dtype) if hasattr(v, "spec") and v.spec.dtype.category != dtype.category else v for v in operands]


def require_floating(op: str, *operands: Any) -> None:
    """Raises DTypeError unless the operands promote to a floating dtype."""
    dtype = promoted_dtype(op, *operands)
    if not dtype.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {dtype}")


@public(inplace=True)
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """sqrt(input**2 + other**2), without overflow. The two broadcast; raises DTypeError unless floating."""
    require_floating("hypot", input, other)
    return _hypot(*in_one_category("hypot", input, other))


@composite(
    lambda input, other: infer_elementwise("hypot", (input, other)),
    {"input": lambda g, input, y: g * (input / y), "other": lambda g, other, y: g * (other / y)},
    name="hypot",
    elementwise=True,
)
def _hypot(input: Tensor, other: Tensor) -> Tensor:
    dtype = promoted_dtype("hypot", input, other)
    a, b = (absolute(x.to(upcast_dtype(dtype))) for x in (input, other))
    large, small = maximum(a, b), minimum(a, b)
    ratio = small / where(eq(large, 0), 1.0, large)
    return where(isinf(a) | isinf(b), math.inf, large * sqrt(ratio * ratio + 1)).to(dtype)


@public()
@in_float32
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other)), without overflow. The two broadcast; raises DTypeError unless floating."""
    require_floating("logaddexp", input, other)
    return log_of_sum(input, other)


@composite(
    lambda input, other: infer_elementwise("logaddexp", (input, other)),
    {
        "input": lambda g, input, other: g * sigmoid(input - other),
        "other": lambda g, input, other: g * sigmoid(other - input),
    },
    name="logaddexp",
    elementwise=True,
)
def log_of_sum(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """`logaddexp` of operands that have been checked."""
    largest = maximum(input, other)  # type: ignore[arg-type]
    difference = where(eq(input, other), 0.0, -absolute(input - other))  # type: ignore[arg-type]
    return largest + difference.exp().log1p()


@public()
def fmax(input: Tensor, other: Tensor) -> Tensor:
    """The larger of input and other, or the one that is not NaN (IEEE's maxNum). Operands broadcast and promote."""
    return where(ge(input, other) | isnan(other), input, other)


@public()
def fmin(input: Tensor, other: Tensor) -> Tensor:
    """The smaller of input and other, or the one that is not NaN (IEEE's minNum). Operands broadcast and promote."""
    return where(le(input, other) | isnan(other), input, other)


@public(inplace=True)
def float_power(input: Operand, exponent: Operand) -> Tensor:
    """`pow` in float64. Operands broadcast; either may be a number."""
    given: list[Any] = [input, exponent]
    base, power = [v.double() if hasattr(v, "spec") else v for v in given]
    return pow(base, power)


@public()
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The `p`-norm of input - other, 0-d; the two broadcast."""
    return sub(input, other).norm(p)
