"""Elementwise kernels, arange among them. One program holds all ops of a family and dtype."""

from collections.abc import Mapping
from typing import Any

from norch.backend import Kernel

from .devices import Runtime
from .source import CTYPES, Attrs, CType, Operands, Walk, as_bits, as_computed, as_stored, ctype, each, raw, tensor

Rules = Mapping[str, str]
SAME = dict.fromkeys(("floor", "ceil", "round", "trunc"), "a")
UNARY_FLOATING = {
    "neg": "-a", "abs": "fabs(a)", "sign": "a != a ? a : (T)((a > 0) - (a < 0))", "round": "rint(a)",
    "sigmoid": "sigmoid(a)",
    **{f: f"{f}(a)" for f in "exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh "
       "acosh atanh erf floor ceil trunc".split()},
}  # fmt: skip
UNARY_INTEGER = {"neg": "-a", "abs": "a < 0 ? -a : a", "sign": "(a > 0) - (a < 0)", "bitwise_not": "~a", **SAME}
UNARY_BOOL = {"neg": "a", "abs": "a", "sign": "a", "bitwise_not": "!a", **SAME}

COMPARISON = {"eq": "a == b", "ne": "a != b", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
SIMPLE = {**COMPARISON, "add": "a + b", "sub": "a - b", "mul": "a * b"}
BINARY_FLOATING = {
    **SIMPLE, "div": "a / b", "pow": "pow(a, b)", "atan2": "atan2(a, b)", "floor_divide": "floor_divide(a, b)",
    "remainder": "remainder_(a, b)", "maximum": "a != a ? a : b != b ? b : fmax(a, b)",
    "minimum": "a != a ? a : b != b ? b : fmin(a, b)",
}  # fmt: skip
BITWISE = {"bitwise_and": "a & b", "bitwise_or": "a | b", "bitwise_xor": "a ^ b"}
BINARY_BOOL = {**COMPARISON, **BITWISE, "add": "a | b", "mul": "a & b", "maximum": "a | b", "minimum": "a & b"}
BINARY_INTEGER = {
    **BITWISE, **SIMPLE, "pow": "power(a, b)", "floor_divide": "floor_divide(a, b)",
    "remainder": "a - b * floor_divide(a, b)", "maximum": "max(a, b)", "minimum": "min(a, b)",
    "bitwise_left_shift": "b < 0 || b >= BITS ? 0 : a << b",
    "bitwise_right_shift": "b < 0 || b >= BITS ? (a < 0 ? -1 : 0) : a >> b",
}  # fmt: skip

FLOATING_HELP = """
T sigmoid(T a) { T z = exp(-fabs(a)); return (a < 0 ? z : (T)1) / (1 + z); }
T remainder_(T a, T b) {
    T r = fmod(a, b);
    return r == 0 ? copysign((T)0, b) : (r < 0) != (b < 0) ? r + b : r;
}
T floor_divide(T a, T b) {
    T r = fmod(a, b);
    return b == 0 ? a / b : rint((a - r) / b) - (r != 0 && (r < 0) != (b < 0));
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


def _bound(
    run: Runtime, op: str, operands: Operands, rules: Rules, help: str = "", kind: Any = ctype, take: Any = as_computed,
    outs: Mapping[str, CType] = {},
) -> Kernel:  # fmt: skip
    """A kernel of a program that has one for each of `rules`: what is stored, as C of a, b and c. outs: its type."""
    tensors = [(name, o) for name, o in zip("oabc", operands) if not o.is_scalar]
    walk = Walk("".join(n for n, _ in tensors), operands[0].shape, [o.strides for _, o in tensors])
    to, *kinds = map(kind, operands)
    parameters, loads, takes = [], "", [None]
    for name, one, operand in zip("abc", kinds, operands[1:]):
        takes.append(take(operand) if operand.is_scalar else None)
        if operand.is_scalar:
            parameters.append(f"{one.computed} {name}")
        else:
            parameters.append(f"__global {one.stored} *p{name}, ulong {name}_")
            loads += f"{one.computed} {name} = {one.load(f'p{name}', f'at_{name}')};\n    "
    source = kinds[-1].prelude(BITS=8 * operands[-1].dtype.itemsize) + help
    for name, rule in rules.items():
        out = outs.get(name, to)
        body = loads + out.store("o", "at_o", rule)
        source += each(f"norch_{name}", [tensor("o", out.stored), *parameters], walk, body)
    return run.kernel(source, f"norch_{op}", takes, walk.arguments, (walk.count,))


def arithmetic(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """The unary and binary families, and comparisons, which are in the program of the latter."""
    kind, is_unary = ctype(operands[1]), len(operands) == 2
    if kind.is_floating:
        rules, help = UNARY_FLOATING if is_unary else BINARY_FLOATING, FLOATING_HELP
    elif kind.name == "bool":
        rules, help = UNARY_BOOL if is_unary else BINARY_BOOL, ""
    else:
        rules, help = UNARY_INTEGER if is_unary else BINARY_INTEGER, INTEGER_HELP
    if op not in rules:
        return None
    outs = {name: CTYPES["bool"] if name in COMPARISON else kind for name in rules}
    kernel = _bound(run, op, operands, rules, help, take=as_stored if op in COMPARISON else as_computed, outs=outs)
    if op not in ("floor_divide", "remainder") or kind.is_floating or not operands[2].is_scalar:
        return kernel

    def checked(*args: Any) -> None:
        if args[-1] == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        kernel(*args)

    return checked


def where(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    return _bound(run, op, operands, {op: "a ? b : c"}, kind=raw, take=as_bits)


def fill(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    return _bound(run, op, operands, {op: "a"}, kind=raw, take=as_bits)


def copy(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    to, source = map(ctype, operands)
    if to is source:
        return fill(run, op, operands, attrs)
    kept = ("bool", "float16") if source.is_floating else ("bool",)  # what the store itself converts, rounding once
    outs = {f"copy_{k.name}": k for k in CTYPES.values() if run.has_double or k.computed != "double"}
    rules = {name: "a" if k.name in kept else f"({k.computed})a" for name, k in outs.items()}
    return _bound(run, f"copy_{to.name}", operands, rules, outs=outs)


def arange(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel:
    real = run.real if ctype(operands[0]).is_floating else CTYPES["int64"]
    rules, kinds = {op: f"a + ({real.computed})i * b"}, {True: real, False: ctype(operands[0])}
    return _bound(run, op, operands, rules, kind=lambda o: kinds[o.is_scalar], take=lambda o: real.number)
