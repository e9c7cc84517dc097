"""What each elementwise op computes: an expression in its inputs a, b and c."""

from collections.abc import Sequence

import numpy as np

from .dtypes import Attrs, Kind

SIMPLE = {"add": "a + b", "sub": "a - b", "mul": "a * b"}
BITWISE = {"bitwise_and": "a & b", "bitwise_or": "a | b", "bitwise_xor": "a ^ b"}
WHOLE = dict.fromkeys(("floor", "ceil", "round", "trunc"), "a")
CALLS = "exp expm1 log log1p log2 log10 sigmoid sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf"
GELU = "(0.5f * (erf_f32({0} * 0.707106781f) + 1))"
GELU_TANH = "sigmoid_f32(1.59576912f * ({0} + 0.044715f * {0} * {0} * {0}))"
# By whether an op has one input or more. Of the gradients a is that of the result. Names in braces are attributes.
FLOATING = {
    "neg": "-a", "abs": "abs(a)", "sign": "select(sign(a), a, is_nan(a))",
    **{f: f"{f}(a)" for f in ("sqrt", "floor", "ceil", "round", "trunc")},
    **{f: f"{f}_f32(a)" for f in CALLS.split()},
    **SIMPLE, **{f: f"{f}_f32(a, b)" for f in ("div", "pow", "atan2", "floor_divide", "remainder")},
    "maximum": "select(select(b, a, a > b), a, is_nan(a))", "minimum": "select(select(b, a, a < b), a, is_nan(a))",
}  # fmt: skip
COMPOSITE = {
    "relu": "select(a, 0f, a <= 0)", "relu_grad": "select(a, 0f, b <= 0)",
    "tanh_grad": "a * (1 - b * b)", "sigmoid_grad": "a * (b * (1 - b))",
    "leaky_relu": "select(a * {negative_slope}, a, a > 0)", "leaky_relu_grad": "select(a * {negative_slope}, a, b > 0)",
    "silu": "a * sigmoid_f32(a)", "silu_grad": "a * (sigmoid_f32(b) * (b * (1 - sigmoid_f32(b)) + 1))",
    "gelu": "a * " + GELU.format("a"), "gelu tanh": "a * " + GELU_TANH.format("a"),
    "gelu_grad": f"a * ({GELU.format('b')} + b * exp_f32(b * b * -0.5f) * 0.398942280f)",
    "gelu_grad tanh": "a * ({0} + b * ({0} * (1 - {0})) * (b * b * 0.134145f + 1) * 1.59576912f)".format(
        GELU_TANH.format("b")),
}  # fmt: skip
BOOL = {
    **WHOLE, "neg": "a", "abs": "a", "sign": "a", "bitwise_not": "1 - a",
    **BITWISE, "add": "a | b", "mul": "a & b", "maximum": "a | b", "minimum": "a & b",
}  # fmt: skip
INTEGER = {  # @ is the type computed in and BITS the width of the dtype
    **WHOLE, "neg": "-a", "abs": "select(a, -a, a < 0)", "sign": "@(a > 0) - @(a < 0)", "bitwise_not": "~a",
    **BITWISE, **SIMPLE, "maximum": "select(b, a, a > b)", "minimum": "select(b, a, a < b)", "pow": "pow_@(a, b)",
    "floor_divide": "floor_divide_@(a, b)", "remainder": "a - b * floor_divide_@(a, b)",
    "bitwise_left_shift": "select(a << (u32(b) & BITSu - 1u), @(0), b < 0 || b >= BITS)",
    "bitwise_right_shift": "a >> select(u32(b) & BITSu - 1u, BITSu - 1u, b < 0 || b >= BITS)",
}  # fmt: skip
COMPARISON = {"eq": "a == b", "ne": "!(a == b)", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}


def expression(op: str, to: Kind, sources: Sequence[Kind], attrs: Attrs) -> str | None:
    """The value of an op in the type that `to` is computed in; None where there is no rule for it."""
    source, name = sources[-1], f"{op} tanh" if attrs.get("approximate") == "tanh" else op
    if op == "arange":
        return f"a + {to.computed}(i) * b"
    if op == "copy":  # as C converts; of NaN, WGSL's != may be false
        whole = "a" if to.computed == source.computed else f"{to.computed}(a)"
        return "i32(!(a == 0))" if to.name == "bool" else whole
    if op in ("fill", "where"):
        return "a" if op == "fill" else "select(c, b, a != 0)"
    if op in COMPARISON:
        return f"i32({COMPARISON[op]})"
    if source.is_floating and name in COMPOSITE:
        slope = np.float32(attrs.get("negative_slope", 0))
        return COMPOSITE[name].format(negative_slope=f"f32({float(slope)!r})") if np.isfinite(slope) else None
    text = (FLOATING if source.is_floating else BOOL if source.name == "bool" else INTEGER).get(op)
    return text and text.replace("@", source.computed).replace("BITS", str(8 * source.size))
