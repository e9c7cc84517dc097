"""Arithmetic, comparisons, bits, and the functions of one variable."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtype import bool_, int64
from .record import Array, Case, Operand, Sample, case, exactly, mask, samples, x

Oracle = Callable[..., Any]


def by_element(function: Callable[..., float]) -> Oracle:
    """A function of Python numbers, applied to every element."""
    return np.vectorize(function, otypes=[np.float64])


def unary(name: str, oracle: Oracle, low: float = -2.0, high: float = 2.0, **rest: Any) -> Sample:
    """A function of one variable, of values between `low` and `high`."""
    shapes: tuple[tuple[int, ...], ...] = ((2, 3), (), (0, 3), (3, 1, 2))
    cases = tuple(case(Operand(shape, low, high)) for shape in shapes)
    chosen: dict[str, Any] = {"gives": "float", "special": True} | rest
    return Sample(name, oracle, cases, **chosen)


def pairs(
    a: tuple[float, float] = (-2.0, 2.0), b: tuple[float, float] = (-2.0, 2.0), nonzero: bool = False
) -> tuple[Case, ...]:
    """Operands that broadcast in every way, `a` and `b` between the bounds given."""
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((2, 3), (2, 3)),
        ((2, 3), (3,)),
        ((2, 1, 2), (3, 1)),
        ((3,), ()),
        ((), ()),
        ((0, 3), (1, 3)),
    )
    return tuple(case(Operand(p, *a), Operand(q, *b, nonzero=nonzero)) for p, q in shapes)


def binary(
    name: str,
    oracle: Oracle,
    a: tuple[float, float] = (-2.0, 2.0),
    b: tuple[float, float] = (-2.0, 2.0),
    nonzero: bool = False,
    **rest: Any,
) -> Sample:
    """A function of two operands that broadcast and promote."""
    chosen: dict[str, Any] = {"promotes": True, "special": True} | rest
    return Sample(name, oracle, pairs(a, b, nonzero), **chosen)


def comparison(name: str, oracle: Oracle) -> Sample:
    return binary(name, oracle, gives="bool", grad=False, operator=f"__{name}__")


def bitwise(name: str, oracle: Oracle, operator: str, **rest: Any) -> Sample:
    chosen: dict[str, Any] = {"takes": "bits", "grad": False, "operator": operator} | rest
    return binary(name, oracle, **chosen)


def float_divide(a: Array, b: Array) -> Array:
    return np.divide(np.asarray(a, np.float64), b)


def power(a: Array, b: Array) -> Array:
    if np.asarray(a).dtype.kind == "f" or np.asarray(b).dtype.kind == "f":
        return np.power(np.asarray(a, np.float64), b)
    return np.where(b >= 0, np.power(a, np.maximum(b, 0)), np.where(np.abs(a) == 1, a ** (b & 1), 0))


def divided(a: Array, b: Array, rounding_mode: str | None = None) -> Array:
    exact = float_divide(a, b)
    if rounding_mode is None:
        return exact
    return np.floor(exact) if rounding_mode == "floor" else np.trunc(exact)


def rounded(v: Array, decimals: int = 0) -> Array:
    return np.round(v, decimals)


ARITHMETIC = samples(
    binary("add", lambda a, b: np.add(a, b), operator="__add__"),
    binary("sub", lambda a, b: np.subtract(a, b), takes="number", operator="__sub__"),
    binary("mul", lambda a, b: np.multiply(a, b), operator="__mul__"),
    binary("div", float_divide, b=(0.5, 3.0), nonzero=True, gives="float", operator="__truediv__"),
    binary(
        "floor_divide",
        np.floor_divide,
        (-7, 7),
        (0.7, 3),
        nonzero=True,
        takes="number",
        operator="__floordiv__",
    ),
    binary("remainder", np.remainder, (-7, 7), (0.7, 3), nonzero=True, takes="number", operator="__mod__"),
    Sample(
        "fmod",
        np.fmod,
        pairs((-7, 7), (0.7, 3), nonzero=True) + pairs((-7, 7), (-3, -0.7), nonzero=True),
        takes="number",
        promotes=True,
        special=True,
    ),
    binary("pow", power, (0.3, 3), (-2, 2), takes="number", operator="__pow__"),
    binary("atan2", np.arctan2, gives="float"),
    binary("maximum", np.maximum),
    binary("minimum", np.minimum),
    binary("fmax", np.fmax),
    binary("fmin", np.fmin),
    Sample("add.alpha", lambda a, b, alpha: a + alpha * b, _alpha := (case(x(2, 3), x(3), alpha=2),), "number",
           call=lambda a, b, alpha: a.add(b, alpha=alpha), strict=False),
    Sample("sub.alpha", lambda a, b, alpha: a - alpha * b, _alpha, "number",
           call=lambda a, b, alpha: a.sub(b, alpha=alpha), strict=False),
    Sample("div.rounding", divided, tuple(
        case(x(2, 3, low=-7, high=7), x(3, low=0.7, high=3, nonzero=True), rounding_mode=mode)
        for mode in ("floor", "trunc")
    ), "number", call=lambda a, b, rounding_mode: a.div(b, rounding_mode=rounding_mode)),
)  # fmt: skip

LOGIC = samples(
    comparison("eq", np.equal),
    comparison("ne", np.not_equal),
    comparison("lt", np.less),
    comparison("le", np.less_equal),
    comparison("gt", np.greater),
    comparison("ge", np.greater_equal),
    bitwise("bitwise_and", np.bitwise_and, "__and__"),
    bitwise("bitwise_or", np.bitwise_or, "__or__"),
    bitwise("bitwise_xor", np.bitwise_xor, "__xor__"),
    bitwise("bitwise_left_shift", np.left_shift, "__lshift__", takes="ints", b=(0, 3)),
    bitwise("bitwise_right_shift", np.right_shift, "__rshift__", takes="ints", a=(-90, 90), b=(0, 3)),
    unary("bitwise_not", np.invert, takes="bits", gives="same", special=False, operator="__invert__"),
    Sample(
        "where",
        np.where,
        (
            case(mask(2, 3), x(2, 3), x(2, 3)),
            case(mask(3), x(2, 1), x()),
            case(mask(), x(2), x(2, 2)),
            case(mask(0, 1), x(2), x(1)),
            case(mask(2, 3), x(2, 3), False),
            case(mask(2, 3), True, x(3)),
        ),
    ),
    Sample(
        "where.indices",
        lambda c: tuple(np.nonzero(c)),
        (case(mask(2, 3)), case(exactly([[0, 3], [1, 0]]))),
        gives="int64",
        grad=False,
        call=lambda c: _where_indices(c),
    ),
)


def _where_indices(condition: Any) -> Any:
    from ...ops import where

    return where(condition)


FUNCTIONS = samples(
    unary("neg", np.negative, takes="number", gives="same", operator="__neg__"),
    unary("positive", np.positive, takes="number", gives="same", operator="__pos__"),
    unary("sign", lambda v: v if v.dtype == bool else np.sign(v), gives="same"),
    unary("abs", np.abs, takes="number", gives="same", operator="__abs__"),
    unary("exp", np.exp),
    unary("expm1", np.expm1),
    unary("log", np.log, 0.2, 5),
    unary("log1p", np.log1p, -0.8, 5),
    unary("log2", np.log2, 0.2, 5),
    unary("log10", np.log10, 0.2, 5),
    unary("sqrt", np.sqrt, 0.2, 5),
    unary("sin", np.sin),
    unary("cos", np.cos),
    unary("tan", np.tan, -1.2, 1.2),
    unary("asin", np.arcsin, -0.9, 0.9),
    unary("acos", np.arccos, -0.9, 0.9),
    unary("atan", np.arctan),
    unary("sinh", np.sinh),
    unary("cosh", np.cosh),
    unary("tanh", np.tanh),
    unary("asinh", np.arcsinh),
    unary("acosh", np.arccosh, 1.2, 5),
    unary("atanh", np.arctanh, -0.9, 0.9),
    unary("sigmoid", lambda v: 1 / (1 + np.exp(-v.astype(float)))),
    unary("erf", by_element(math.erf)),
    unary("floor", np.floor, -4, 4, takes="number", gives="same"),
    unary("ceil", np.ceil, -4, 4, takes="number", gives="same"),
    unary("trunc", np.trunc, -4, 4, takes="number", gives="same"),
    unary("round", rounded, -4, 4, takes="number", gives="same"),
    Sample("round.decimals", rounded, (case(x(2, 3, low=-4, high=4), decimals=1), case(x(3), decimals=0)), "float",
           call=lambda v, decimals: v.round(decimals=decimals)),
    unary("reciprocal", lambda v: float_divide(np.float64(1), v), 0.3, 3),
    unary("rsqrt", lambda v: 1 / np.sqrt(np.asarray(v, float)), 0.3, 3),
    unary("square", np.square, takes="number", gives="same", strict=False),
    unary("deg2rad", np.deg2rad, -180, 180),
    unary("rad2deg", np.rad2deg, loose=4),
    unary("frac", lambda v: v - np.trunc(v), -4, 4, takes="number", gives="same", special=False),
    unary("logical_not", np.logical_not, gives="bool", grad=False),
    unary("isnan", np.isnan, gives="bool", grad=False),
    unary("isinf", np.isinf, gives="bool", grad=False),
    unary("isfinite", np.isfinite, gives="bool", grad=False),
)  # fmt: skip


def _clamped(v: Array, min: Any = None, max: Any = None) -> Array:
    return np.clip(v, min, max)


def _replaced(v: Array, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    return np.nan_to_num(v, nan=nan, posinf=posinf, neginf=neginf)


def _close(a: Array, b: Array, **options: Any) -> Array:
    return np.isclose(a, b, **options)


SEVERAL = samples(
    binary("logical_and", np.logical_and, gives="bool", grad=False),
    binary("logical_or", np.logical_or, gives="bool", grad=False),
    binary("logical_xor", np.logical_xor, gives="bool", grad=False),
    binary("hypot", np.hypot, takes="float", scalars=False),
    binary("logaddexp", np.logaddexp, takes="float", scalars=False, loose=2),
    Sample("float_power", lambda a, b: np.power(a, b, dtype=np.float64), (
        case(x(2, 3, low=0.4, high=3), x(3, low=-2, high=2)), case(x(3, low=0.4, high=3), 2)), gives="float64"),
    Sample(
        "clamp",
        _clamped,
        (
            case(x(2, 3), min=0, max=1),
            case(x(2, 3), 1),
            case(x(), max=1),
            case(x(0, 2), 0, 1),
            case(x(2, 3), x(3, low=-1.5, high=0), x(2, 1, low=0, high=1.5)),
        ),
        takes="number",
        strict=False,
    ),
    Sample("clamp_min", lambda v, m: np.maximum(v, m), (case(x(2, 3), 1), case(x(2), 0)), "number", strict=False),
    Sample("clamp_max", lambda v, m: np.minimum(v, m), (case(x(2, 3), 1), case(x(2), 0)), "number", strict=False),
    Sample("nan_to_num", _replaced, (
        case(x(2, 3)),
        case(exactly([math.nan, math.inf, -math.inf, 1.5]), 3.0, 7.0, -7.0),
        case(exactly([math.nan, 2.5]), nan=1.0),
    ), "float", strict=False),
    Sample("masked_fill.exact", lambda v, m, value: np.where(m, int(value), v), (
        case(exactly([2**60 + 1, 5], int64), exactly([False, True], bool_), 0.0),), gives="int64", grad=False,
           call=lambda v, m, value: v.masked_fill(m, value)),
    Sample("lerp", lambda a, b, w: a + w * (b - a), (
        case(x(2, 3), x(2, 3), 0.25),
        case(x(2, 3), x(3), x(2, 1, low=0, high=1)),
        case(x(), x(), x()),
        case(x(0, 2), x(2), 0.5),
    ), "float", loose=2, strict=False),
    Sample("addcmul", lambda v, a, b, value=1: v + value * a * b, (
        case(x(2, 3), x(2, 3), x(2, 3)),
        case(x(2, 3), x(3), x(2, 1), value=2),
        case(x(), x(), x()),
    ), "number", loose=4, strict=False),
    Sample("addcdiv", lambda v, a, b, value=1: v + value * float_divide(a, b), (
        case(x(2, 3), x(2, 3), x(2, 3, low=0.5, high=3)),
        case(x(2, 3), x(3), x(2, 1, low=0.5, high=3), value=2),
    ), "float", loose=4, strict=False),
    Sample("isclose", _close, (
        case(exactly([1.0, 2.0, math.nan, math.inf]), exactly([1.0, 2.5, math.nan, math.inf])),
        case(exactly([1.0, math.nan, -math.inf]), exactly([1.0, math.nan, math.inf]), equal_nan=True),
        case(exactly([[1.0], [2.0]]), exactly([1.0, 1.125]), rtol=0.0, atol=0.25),
    ), "float", gives="bool", grad=False, strict=False),
    Sample("allclose", np.allclose, (case(x(2, 3), x(2, 3)), case(exactly([1.0, 2.0]), exactly([1.0, 2.0]))),
           gives="python"),
    Sample("equal", np.array_equal, (case(x(2, 3), x(2, 3)), case(exactly([1, 0]), exactly([1, 0])),
           case(x(2), x(3))), gives="python"),
    Sample("dist", lambda a, b, p=2: np.linalg.norm((a - b).ravel(), p), (
        case(x(2, 3), x(2, 3)), case(x(2, 3), x(3), 1), case(x(4), x(4), 3)), "float", loose=4, strict=False),
    Sample("cross", lambda a, b, dim=-1: np.cross(a, b, axis=dim), (
        case(x(3), x(3)), case(x(2, 3), x(2, 3)), case(x(3, 2), x(3, 2), 0)), "number", loose=4),
    Sample("masked_fill", lambda v, m, value: np.where(m, value, v), (
        case(x(2, 3), mask(2, 3), 1), case(x(2, 3), mask(3), 0), case(x(), mask(), 1),
        case(x(2, 3), mask(2, 1), exactly(1)),
    )),
)  # fmt: skip

SAMPLES = samples(ARITHMETIC, LOGIC, FUNCTIONS, SEVERAL)
