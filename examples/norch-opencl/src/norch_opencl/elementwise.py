"""Elementwise kernels: unary, binary, comparisons, where, copy, fill. One program holds all ops of a family and dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from norch.backend import Kernel, Operand

from .devices import Runtime
from .types import CTYPES, PRELUDE, CType, as_bits, as_number, ctype, raw
from .walk import Walk

SAME = dict.fromkeys(("floor", "ceil", "round", "trunc"), "a")
UNARY_FLOATING = {
    "neg": "-a", "abs": "fabs(a)", "sign": "a != a ? a : (T)((a > 0) - (a < 0))", "round": "rint(a)",
    "sigmoid": "sigmoid(a)",
    **{f: f"{f}(a)" for f in "exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh "
       "atanh erf floor ceil trunc".split()},
}  # fmt: skip
UNARY_INTEGER = {"neg": "-a", "abs": "a < 0 ? -a : a", "sign": "(a > 0) - (a < 0)", "bitwise_not": "~a", **SAME}
UNARY_BOOL = {"neg": "a", "abs": "a", "sign": "a", "bitwise_not": "!a", **SAME}

SIMPLE = {"add": "a + b", "sub": "a - b", "mul": "a * b"}
BINARY_FLOATING = {
    **SIMPLE, "div": "a / b", "pow": "pow(a, b)", "atan2": "atan2(a, b)", "floor_divide": "floor_divide(a, b)",
    "remainder": "remainder_(a, b)", "maximum": "a != a ? a : b != b ? b : fmax(a, b)",
    "minimum": "a != a ? a : b != b ? b : fmin(a, b)",
}  # fmt: skip
BINARY_BOOL = {
    "add": "a | b", "mul": "a & b", "maximum": "a | b", "minimum": "a & b", "bitwise_and": "a & b",
    "bitwise_or": "a | b", "bitwise_xor": "a ^ b",
}  # fmt: skip
BINARY_INTEGER = {
    **BINARY_BOOL, **SIMPLE, "pow": "power(a, b)", "floor_divide": "floor_divide(a, b)",
    "remainder": "a - b * floor_divide(a, b)", "maximum": "max(a, b)", "minimum": "min(a, b)",
    "bitwise_left_shift": "b < 0 || b >= BITS ? 0 : a << b",
    "bitwise_right_shift": "b < 0 || b >= BITS ? (a < 0 ? -1 : 0) : a >> b",
}  # fmt: skip
COMPARISON = {"eq": "a == b", "ne": "a != b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}

FLOATING_HELP = """
T sigmoid(T a) {
    T z = exp(-fabs(a));
    return (a < 0 ? z : (T)1) / (1 + z);
}
T remainder_(T a, T b) {
    T r = fmod(a, b);
    return r == 0 ? copysign((T)0, b) : (r < 0) != (b < 0) ? r + b : r;
}
T floor_divide(T a, T b) {
    T r = fmod(a, b);
    if (b == 0) return a / b;
    T q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    T f = floor(q);
    return q == 0 ? copysign((T)0, a / b) : q - f > (T)0.5 ? f + 1 : f;
}
"""
INTEGER_HELP = """
T floor_divide(T a, T b) { // a divisor of 0 or -1 may trap
    T d = b == 0 || b == -1 ? 1 : b, q = a / d;
    q -= a % d != 0 && (a < 0) != (d < 0);
    return b == -1 ? -a : b == 0 ? 0 : q;
}
T power(T a, T b) {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    T y = 1;
    for (; b; b >>= 1, a *= a) if (b & 1) y *= a;
    return y;
}
"""


def _rules(floating: dict[str, str], integer: dict[str, str], boolean: dict[str, str], kind: CType) -> dict[str, str]:
    return floating if kind.is_floating else boolean if kind.name == "bool" else integer


def _program(kinds: Sequence[CType], scalars: Sequence[bool], walk: Walk, rules: Mapping[str, str], help: str) -> str:
    """A kernel for each of `rules`: from C expressions of a, b and c to what is stored. `kinds[0]` is the output's."""
    parameters = f"__global {kinds[0].stored} *o, ulong o_"
    values = []
    for name, kind, is_scalar in zip("abc", kinds[1:], scalars[1:]):
        if is_scalar:
            parameters += f", {kind.computed} {name}"
        else:
            parameters += f", __global const {kind.stored} *p{name}, ulong {name}_"
            values.append(f"{kind.computed} {name} = {kind.load(f'p{name}', f'at_{name}')};")
    body = "\n    ".join([walk.every, walk.code(), *values])
    kernels = [
        f"__kernel void norch_{op}({parameters}{walk.parameters}) {{\n    {body}\n"
        f"    {kinds[0].store('o', 'at_o', rule)}\n}}\n"
        for op, rule in rules.items()
    ]
    return f"{PRELUDE}typedef {kinds[-1].computed} T;\n{help}" + "".join(kernels)


def _bound(
    run: Runtime,
    op: str,
    operands: Sequence[Operand],
    kinds: Sequence[CType],
    rules: Mapping[str, str],
    help: str = "",
    numbers: Sequence[Any] = (),
) -> Kernel:
    tensors = [(name, o) for name, o in zip("oabc", operands) if not o.is_scalar]
    walk = Walk("".join(n for n, _ in tensors), operands[0].shape, [o.strides for _, o in tensors])
    source = _program(kinds, [o.is_scalar for o in operands], walk, rules, help)
    takes = [n if o.is_scalar else None for o, n in zip(operands, numbers or [None] * len(operands))]
    return run.kernel(source, f"norch_{op}", takes, walk.arguments, (walk.count,))


def arithmetic(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
    """The unary and binary families."""
    kind, dtype = ctype(operands[0].dtype), operands[0].dtype
    if len(operands) == 2:
        rules = _rules(UNARY_FLOATING, UNARY_INTEGER, UNARY_BOOL, kind)
    else:
        rules = _rules(BINARY_FLOATING, BINARY_INTEGER, BINARY_BOOL, kind)
    if op not in rules:
        return None
    help = FLOATING_HELP if kind.is_floating else f"#define BITS {8 * dtype.itemsize}\n{INTEGER_HELP}"
    kernel = _bound(run, op, operands, [kind] * len(operands), rules, help, [as_number(o.dtype) for o in operands])
    if op in ("floor_divide", "remainder") and operands[2].is_scalar and not kind.is_floating:

        def checked(*args: Any) -> None:
            if args[-1] == 0:
                raise ZeroDivisionError("integer division or modulo by zero")
            kernel(*args)

        return checked
    return kernel


def comparison(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    kinds = [ctype(o.dtype) for o in operands]
    return _bound(run, op, operands, kinds, COMPARISON, "", [as_number(o.dtype, True) for o in operands])


def where(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    kinds = [CTYPES["bool"] if i == 1 else raw(o.dtype) for i, o in enumerate(operands)]
    numbers = [as_number(o.dtype) if i == 1 else as_bits(o.dtype) for i, o in enumerate(operands)]
    return _bound(run, op, operands, kinds, {op: "a ? b : c"}, "", numbers)


def fill(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    kinds = [raw(o.dtype) for o in operands]
    return _bound(run, op, operands, kinds, {op: "a"}, "", [as_bits(o.dtype) for o in operands])


def copy(run: Runtime, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    to, source = (ctype(o.dtype) for o in operands)
    if to is source:
        kinds, value = [raw(o.dtype) for o in operands], "a"
    else:
        kinds = [to, source]
        exact = "double" if run.has_double and source.computed in ("double", "long") else "float"
        value = "a" if to.name == "bool" else f"({exact if to.name == 'float16' else to.computed})a"
    return _bound(run, op, operands, kinds, {op: value})


FAMILY = {
    **dict.fromkeys((*UNARY_FLOATING, *UNARY_INTEGER, *BINARY_FLOATING, *BINARY_INTEGER), arithmetic),
    **dict.fromkeys(COMPARISON, comparison),
    "where": where, "fill": fill, "copy": copy,
}  # fmt: skip
