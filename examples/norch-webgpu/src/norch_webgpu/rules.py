"""What each elementwise op computes: an expression in its inputs a, b and c."""

from collections.abc import Sequence
from math import isfinite, isnan

import numpy as np

from .dtypes import Attrs, Kind

# In expressions of whole numbers @ is the type computed in and BITS the width of the dtype.
SAME = dict.fromkeys(("floor", "ceil", "round", "trunc"), "a")
UNARY_FLOATING = {
    "neg": "-a", "abs": "abs(a)", "sign": "select(sign(a), a, is_nan(a))",
    **{f: f"{f}(a)" for f in "sqrt floor ceil round trunc".split()},
    **{f: f"{f}_f32(a)" for f in "exp expm1 log log1p log2 log10 sigmoid sin cos tan asin acos atan sinh cosh tanh "
       "asinh acosh atanh erf".split()},
}  # fmt: skip
UNARY_INTEGER = {"neg": "-a", "abs": "select(a, -a, a < 0)", "sign": "@(a > 0) - @(a < 0)", "bitwise_not": "~a", **SAME}
UNARY_BOOL = {"neg": "a", "abs": "a", "sign": "a", "bitwise_not": "1 - a", **SAME}
SIMPLE = {"add": "a + b", "sub": "a - b", "mul": "a * b"}
BINARY_FLOATING = {
    **SIMPLE, "div": "a / b", "pow": "pow_f32(a, b)", "atan2": "atan2_f32(a, b)",
    "floor_divide": "floor_divide_f32(a, b)", "remainder": "remainder_f32(a, b)",
    "maximum": "select(select(b, a, a > b), a, is_nan(a))", "minimum": "select(select(b, a, a < b), a, is_nan(a))",
}  # fmt: skip
BITWISE = {"bitwise_and": "a & b", "bitwise_or": "a | b", "bitwise_xor": "a ^ b"}
BINARY_BOOL = {**BITWISE, "add": "a | b", "mul": "a & b", "maximum": "a | b", "minimum": "a & b"}
BINARY_INTEGER = {
    **BITWISE, **SIMPLE, "pow": "pow_@(a, b)", "floor_divide": "floor_divide_@(a, b)",
    "remainder": "a - b * floor_divide_@(a, b)", "maximum": "select(b, a, a > b)", "minimum": "select(b, a, a < b)",
    "bitwise_left_shift": "select(a << (u32(b) & BITSu - 1u), @(0), b < 0 || b >= BITS)",
    "bitwise_right_shift": "a >> select(u32(b) & BITSu - 1u, BITSu - 1u, b < 0 || b >= BITS)",
}  # fmt: skip
COMPARISON = {"eq": "a == b", "ne": "!(a == b)", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
# Composites of floats; in gradients a is that of the result. Names in braces are attributes.
GELU = "(0.5f * (erf_f32({0} * 0.707106781f) + 1))"
GELU_TANH = "sigmoid_f32(1.59576912f * ({0} + 0.044715f * {0} * {0} * {0}))"
COMPOSITE = {
    "relu": "select(a, 0f, a <= 0)", "relu_grad": "select(a, 0f, b <= 0)",
    "tanh_grad": "a * (1 - b * b)", "sigmoid_grad": "a * (b * (1 - b))",
    "leaky_relu": "select(a * {negative_slope}, a, a > 0)", "leaky_relu_grad": "select(a * {negative_slope}, a, b > 0)",
    "hardtanh": "select(select(select(a, {min_val}, a < {min_val}), {max_val}, a > {max_val}), a, is_nan(a))",
    "hardtanh_grad": "select(a, 0f, b <= {min_val} || b >= {max_val})",
    "elu": "select(expm1_f32(min(a, 0f) * {input_scale}) * {alpha}, a, a > 0 || is_nan(a)) * {scale}",
    "elu_grad": "a * select(exp_f32(min(b, 0f) * {input_scale}) * ({alpha} * {scale} * {input_scale}), {scale}, b > 0)",
    "silu": "a * sigmoid_f32(a)", "silu_grad": "a * (sigmoid_f32(b) * (b * (1 - sigmoid_f32(b)) + 1))",
    "softplus": "select((max(a * {beta}, 0f) + log1p_f32(exp_f32(-abs(a * {beta})))) / {beta}, a, "
                "a * {beta} > {threshold} || is_nan(a))",
    "softplus_grad": "a * select(sigmoid_f32(b * {beta}), 1f, b * {beta} > {threshold})",
    "gelu": "a * " + GELU.format("a"),
    "gelu_grad": f"a * ({GELU.format('b')} + b * exp_f32(b * b * -0.5f) * 0.398942280f)",
    "gelu tanh": "a * " + GELU_TANH.format("a"),
    "gelu_grad tanh": "a * ({0} + b * ({0} * (1 - {0})) * (b * b * 0.134145f + 1) * 1.59576912f)".format(
        GELU_TANH.format("b")),
}  # fmt: skip


def expression(op: str, to: Kind, sources: Sequence[Kind], attrs: Attrs) -> str | None:
    """The value of an op in the type that `to` is computed in; None where there is no rule for it."""
    if op in ("copy", "fill"):
        return cast(to, sources[0]) if op == "copy" else "a"
    if op == "where":
        return "select(c, b, a != 0)"
    source = sources[-1]
    if op in COMPARISON:
        return f"i32({COMPARISON[op]})"
    if source.is_floating:
        name = f"{op} tanh" if attrs.get("approximate") == "tanh" else op
        if name in COMPOSITE:
            return COMPOSITE[name].format(**{n: literal(v) for n, v in attrs.items() if isinstance(v, int | float)})
        return (BINARY_FLOATING if len(sources) == 2 else UNARY_FLOATING).get(op)
    if source.name == "bool":
        return (BINARY_BOOL if len(sources) == 2 else UNARY_BOOL).get(op)
    text = (BINARY_INTEGER if len(sources) == 2 else UNARY_INTEGER).get(op)
    return text and text.replace("@", source.computed).replace("BITS", str(8 * source.size))


def literal(value: float) -> str:
    """A number in WGSL."""
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return (
        f"f32({rounded!r})"
        if isfinite(rounded)
        else "nan()"
        if isnan(rounded)
        else "inf()"
        if rounded > 0
        else "-inf()"
    )


def cast(to: Kind, source: Kind) -> str:
    """The value a of one kind in the type that another is computed in, as C converts it."""
    if to.name == "bool":
        return "i32(!(a == 0))"  # of NaN, != may be false
    return "a" if to.computed == source.computed else f"{to.computed}(a)"
