"""Elementwise kernels, arange among them: an expression for each op and sort of dtype."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from norch.backend import Kernel

from .devices import Runtime
from .dtypes import KINDS, Attrs, Kind, Number, Operands, as_bits, as_computed, as_stored, kind, raw
from .functions import called
from .source import WIDTH, Scalar, Tensor, Walk, main, number

Rules = Mapping[str, str]
# In a rule, a, b and c are the inputs and @ is the type computed in.
SAME = dict.fromkeys(("floor", "ceil", "round", "trunc"), "a")
UNARY_FLOATING = {
    "neg": "-a", "abs": "abs(a)", "sign": "select(select(0f, 1f, a > 0), select(-1f, a, is_nan(a)), a < 0 || is_nan(a))",
    **{f: f"{f}(a)" for f in "sqrt floor ceil round trunc".split()},
    **{f: f"{f}_f32(a)" for f in "exp expm1 log log1p log2 log10 sigmoid sin cos tan asin acos atan sinh cosh tanh asinh "
       "acosh atanh erf".split()},
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
    "bitwise_left_shift": "select(a << (u32(b) & BITSu - 1u), 0, b < 0 || b >= BITS)",
    "bitwise_right_shift": "a >> select(u32(b) & BITSu - 1u, BITSu - 1u, b < 0 || b >= BITS)",
}  # fmt: skip
COMPARISON = {"eq": "a == b", "ne": "!(a == b)", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}


def rule(op: str, to: Kind, source: Kind, binary: bool) -> str | None:
    """The expression of an op that computes in `source`'s type, None where there is none."""
    if op in COMPARISON:
        return f"@(0) + i32({COMPARISON[op]})".replace("@(0) + ", "")
    floating, boolean, whole = (
        (BINARY_FLOATING, BINARY_BOOL, BINARY_INTEGER) if binary else (UNARY_FLOATING, UNARY_BOOL, UNARY_INTEGER)
    )
    table = floating if source.is_floating else boolean if source.name == "bool" else whole
    text = table.get(op)
    return text and text.replace("@", source.computed).replace("BITS", str(8 * source.size))


def each(
    run: Runtime,
    operands: Operands,
    outputs: int,
    kinds: Sequence[Kind],
    takes: Sequence[Number],
    compute: Callable[[list[str]], tuple[str, list[str]]],
) -> Kernel | None:
    """A kernel that computes outputs element by element.

    compute: from WGSL expressions of the inputs to statements, and an expression for each output; `i` is the index.
    """
    names = [f"o{j}" if j < outputs else f"x{j - outputs}" for j in range(len(operands))]
    arguments: list[Tensor | Scalar] = [
        Scalar(n, k, take) if o.is_scalar else Tensor(n, k, j < outputs)
        for j, (n, o, k, take) in enumerate(zip(names, operands, kinds, takes))
    ]
    tensors = [(n, o) for n, o in zip(names, operands) if not o.is_scalar]
    walk = Walk([n for n, _ in tensors], operands[0].shape, [o.strides for _, o in tensors])
    given = [number(a) if isinstance(a, Scalar) else f"v_{a.name}" for a in arguments[outputs:]]
    loads = "".join(
        f"let v_{a.name} = get_{a.name}(at_{a.name}); " for a in arguments[outputs:] if isinstance(a, Tensor)
    )
    statements, results = compute(given)
    one = f"{walk.code()}\n    {loads}{statements}\n"
    packed = next((j for j in range(outputs) if kinds[j].per_word > 1), None)
    if packed is not None and walk.flat:
        body, count = _by_word(names[packed], kinds[packed], one, results, names[:outputs]), _words(walk, kinds[packed])
    else:
        many = 4 if walk.count >= 1 << 16 else 1
        body, count = _unrolled(many, one, results, names[:outputs], kinds), -(-walk.count // many)
    return run.kernel(arguments, called(body) + main(body), -(-count // WIDTH), walk.numbers)


def _unrolled(many: int, one: str, results: Sequence[str], outs: Sequence[str], kinds: Sequence[Kind]) -> str:
    """All loads of an invocation come before its stores, so that they need not wait for each other."""
    start = f"let start = group * {WIDTH * many}u + l;\n"
    if many == 1:
        puts = " ".join(f"put_{o}(at_{o}, {r});" for o, r in zip(outs, results))
        return f"let i = g; if (i >= P.i_count) {{ return; }}\n{one} {puts}"
    text = start + "".join(f"var r_{o}: array<{k.computed}, {many}>; " for o, k in zip(outs, kinds))
    text += "".join(f"var p_{o}: array<u32, {many}>; " for o in outs)
    for e in range(many):
        keep = " ".join(f"r_{o}[{e}] = {r}; p_{o}[{e}] = at_{o};" for o, r in zip(outs, results))
        text += f"{{ let i = min(start + {WIDTH * e}u, P.i_count - 1u); {one} {keep} }}\n"
    for e in range(many):
        puts = " ".join(f"put_{o}(p_{o}[{e}], r_{o}[{e}]);" for o in outs)
        text += f"if (start + {WIDTH * e}u < P.i_count) {{ {puts} }}\n"
    return text


def _words(walk: Walk, kind: Kind) -> int:
    return (walk.count + 2 * kind.per_word - 2) // kind.per_word


def _by_word(out: str, kind: Kind, one: str, results: Sequence[str], outs: Sequence[str]) -> str:
    """An invocation makes the elements of one word of `out`, whose elements follow one another."""
    per, bits = kind.per_word, 32 // kind.per_word
    keep = " ".join(
        f"word |= encode_{kind.name}({r}) << (e * {bits}u); mask |= {(1 << bits) - 1}u << (e * {bits}u);"
        if o == out else f"put_{o}(at_{o}, {r});"
        for o, r in zip(outs, results)
    )  # fmt: skip
    return f"""var word = 0u; var mask = 0u;
    for (var e = 0u; e < {per}u; e++) {{
        let i = g * {per}u + e - P.{out}_ % {per}u; // before the first element it is huge
        if (i < P.i_count) {{ {one} {keep} }}
    }}
    mask_{out}(P.{out}_ / {per}u + g, mask, word);"""


def _simple(
    run: Runtime,
    op: str,
    operands: Operands,
    expression: str | None,
    source: Kind | None = None,
    kinds: Callable[[Any], Kind] = kind,
    take: Any = as_computed,
    help: str | None = None,
) -> Kernel | None:
    """A kernel of one expression in a, b, c."""
    if expression is None:
        return None
    found = [kinds(o) for o in operands]
    takes = [take(o) if o.is_scalar else int for o in operands]

    def compute(given: list[str]) -> tuple[str, list[str]]:
        return " ".join(f"let {n} = {v};" for n, v in zip("abc", given)), [expression]

    return each(run, operands, 1, found, takes, compute)


def arithmetic(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """The unary and binary families."""
    kernel = _simple(run, op, operands, rule(op, kind(operands[0]), kind(operands[-1]), len(operands) == 3))
    if kernel is None or op not in ("floor_divide", "remainder") or not operands[2].is_scalar:
        return kernel
    if kind(operands[0]).is_floating:
        return kernel

    def checked(*args: Any) -> None:
        if args[-1] == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        kernel(*args)

    return checked


def comparison(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    return _simple(run, op, operands, rule(op, kind(operands[0]), kind(operands[1]), True), take=as_stored)


def where(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    return _simple(run, op, operands, "select(c, b, a != 0)", kinds=raw, take=as_bits)


def fill(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    return _simple(run, op, operands, "a", kinds=raw, take=as_bits)


def copy(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    to, source = operands[0].dtype.name, operands[1].dtype.name
    if to == source:
        return fill(run, op, operands, attrs)
    return _simple(run, op, operands, cast(KINDS[to], KINDS[source]))


def cast(to: Kind, source: Kind, value: str = "a") -> str:
    """A value of one kind in the type that another is computed in, as C converts it."""
    if to.name == "bool":
        return f"i32(!({value} == 0))"  # of NaN, WGSL's != may be false
    return value if to.computed == source.computed else f"{to.computed}({value})"


def arange(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    computed = kind(operands[0]).computed
    return _simple(run, op, operands, f"a + {computed}(i) * b")
