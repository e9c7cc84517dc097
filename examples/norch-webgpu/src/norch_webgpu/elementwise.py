"""Elementwise kernels, arange among them, and chains of them: the composite "fused"."""

from collections.abc import Callable, Sequence
from typing import Any

from norch.backend import Kernel, parse_steps

from .devices import Runtime
from .dtypes import KINDS, Attrs, Kind, Number, Operands, as_bits, as_computed, as_stored, kind, raw
from .rules import COMPARISON, expression
from .source import WIDTH, Scalar, Tensor, Walk, main, number

Compute = Callable[[list[str]], tuple[str, list[str]]]
EACH = 4  # elements of an invocation, where there are many


def each(
    run: Runtime, operands: Operands, kinds: Sequence[Kind], takes: Sequence[Number], compute: Compute, outputs: int = 1
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
    inputs = arguments[outputs:]
    statements, results = compute([number(a) if isinstance(a, Scalar) else f"v_{a.name}" for a in inputs])
    loads = " ".join(f"let v_{a.name} = get_{a.name}(at_{a.name});" for a in inputs if isinstance(a, Tensor))
    one, outs = f"{walk.code()}\n    {loads} {statements}\n", list(zip(names, kinds, results))
    packed = next((o for o in outs if o[1].per_word > 1), None)
    if packed and walk.flat:
        body, count = _by_word(packed, one, outs), walk.count // packed[1].per_word + 2
    else:
        many = EACH if walk.count >= 1 << 16 else 1
        body, count = _by_few(many, one, outs), -(-walk.count // many)
    return run.kernel(arguments, main(body), -(-count // WIDTH), {**walk.numbers, "zero": 0})


def _by_few(many: int, one: str, outs: Sequence[Any]) -> str:
    """An invocation makes several elements, all loads before the stores, so that loads need not wait for each other."""
    text = "".join(f"var r_{n}: array<{k.computed}, {many}>; var p_{n}: array<u32, {many}>;\n" for n, k, _ in outs)
    for e in range(many):
        keep = " ".join(f"r_{n}[{e}] = {value}; p_{n}[{e}] = at_{n};" for n, _, value in outs)
        text += f"let i{e} = group * {WIDTH * many}u + {WIDTH * e}u + l;\n"
        text += f"if (i{e} < P.i_count) {{ let i = i{e}; {one} {keep} }}\n"
    for e in range(many):
        puts = " ".join(f"put_{n}(p_{n}[{e}], r_{n}[{e}]);" for n, _, _ in outs)
        text += f"if (i{e} < P.i_count) {{ {puts} }}\n"
    return text


def _by_word(packed: Any, one: str, outs: Sequence[Any]) -> str:
    """An invocation makes the elements of one word of the output `packed`, whose elements follow one another."""
    (name, k, value), per, bits = packed, packed[1].per_word, 32 // packed[1].per_word
    puts = " ".join(f"put_{n}(at_{n}, {v});" for n, _, v in outs if n != name)
    return f"""var word = 0u; var mask = 0u;
    for (var e = 0u; e < {per}u; e++) {{
        let i = g * {per}u + e - P.{name}_ % {per}u; // before the first element it is huge
        if (i < P.i_count) {{
            {one} {puts}
            word |= encode_{k.name}({value}) << (e * {bits}u); mask |= {(1 << bits) - 1}u << (e * {bits}u);
        }}
    }}
    mask_{name}(P.{name}_ / {per}u + g, mask, word);"""


def _let(given: Sequence[str]) -> str:
    return " ".join(f"let {n} = {value};" for n, value in zip("abc", given))


def computed(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """The unary and binary families, comparisons, casts, arange, and composites that have a rule."""
    kinds = [kind(o) for o in operands]
    value = f"a + {kinds[0].computed}(i) * b" if op == "arange" else expression(op, kinds[0], kinds[1:], attrs)
    if value is None:
        return None
    take = as_stored if op in COMPARISON else as_computed
    kernel = each(run, operands, kinds, [take(o) for o in operands], lambda given: (_let(given), [value]))
    if op not in ("floor_divide", "remainder") or not operands[2].is_scalar or kinds[0].is_floating:
        return kernel

    def checked(*args: Any) -> None:
        if args[-1] == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        kernel(*args)

    return checked


def moved(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """where, fill, and copies: bytes."""
    if op == "copy" and operands[0].dtype is not operands[1].dtype:
        return computed(run, op, operands, attrs)
    value = "select(c, b, a != 0)" if op == "where" else "a"
    return each(run, operands, [raw(o) for o in operands], [as_bits(o) for o in operands], lambda g: (_let(g), [value]))


def fused(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """A chain of steps. None where one has no rule: then core calls their own kernels."""
    results, kinds, steps = attrs["results"], [kind(o) for o in operands], parse_steps(attrs["steps"])
    made = [KINDS.get(step.dtype) for step in steps]
    values: list[str | None] = []
    for step, to in zip(steps, made):
        sources = [(made if r[0] == "s" else kinds)[int(r[1:])] for r in step.reads]
        values.append(expression(step.op, to, sources, step.attrs) if to and all(sources) else None)
    if None in values:
        return None

    def compute(given: list[str]) -> tuple[str, list[str]]:
        """A step's result is rounded as if it were stored, and hidden, lest it be contracted with the next."""
        text = ""
        for j, (step, to, value) in enumerate(zip(steps, made, values)):
            reads = [r if r[0] == "s" else given[int(r[1:]) - len(results)] for r in step.reads]
            if step.op in COMPARISON:
                reads = [v if r[0] == "s" else kinds[int(r[1:])].rounded(v) for r, v in zip(step.reads, reads)]
            hidden = f"bitcast<f32>(bitcast<u32>({value}) ^ P.zero)" if to.is_floating else value
            text += f"var s{j}: {to.computed}; {{ {_let(reads)} s{j} = {to.rounded(hidden)}; }}\n"
        return text, [f"s{j}" for j in results]

    return each(run, operands, kinds, [as_computed(o) for o in operands], compute, len(results))
