"""Elementwise kernels, arange among them, and chains of them: the composite "fused"."""

from collections.abc import Callable, Sequence

from norch.backend import Kernel, parse_steps

from .devices import Runtime
from .dtypes import KINDS, Attrs, Kind, Number, Operands, as_bits, as_number, kind, raw
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
    # Elements of a word follow one another in an invocation, which then writes the word; words do so in a workgroup.
    name, k, value = next((o for o in zip(names, kinds, results) if o[1].per_word > 1), ("", KINDS["float32"], ""))
    per = k.per_word if walk.flat else 1
    words, bits = max(EACH // per, 1) if walk.count >= 1 << 16 else 1, 32 // per
    text, stores = "", ""
    for e in range(words):
        text += f"let w{e} = group * {WIDTH * words}u + {WIDTH * e}u + l; var word{e} = 0u; var mask{e} = 0u;\n"
        for f in range(per):
            i, kept, puts = f"i{e}_{f}", "", ""
            text += f"let {i} = w{e} * {per}u + {f}u" + f" - P.{name}_ % {per}u" * (per > 1) + ";\n"
            for n, of, v in zip(names, kinds, results):
                if n == name and per > 1:
                    kept += (
                        f"word{e} |= encode_{k.name}({v}) << {f * bits}u; mask{e} |= {(1 << bits) - 1 << f * bits}u; "
                    )
                else:
                    text += f"var r{i}_{n}: {of.computed}; var p{i}_{n}: u32;\n"
                    kept += f"r{i}_{n} = {v}; p{i}_{n} = at_{n}; "
                    puts += f"put_{n}(p{i}_{n}, r{i}_{n}); "
            text += f"if ({i} < P.i_count) {{ let i = {i}; {walk.code()}\n{loads} {statements}\n{kept} }}\n"
            stores += f"if ({i} < P.i_count) {{ {puts} }}\n" * bool(puts)
        stores += f"mask_{name}(P.{name}_ / {per}u + w{e}, mask{e}, word{e});\n" * (per > 1)
    count = -(-(walk.count // per + 2 * (per > 1)) // words)
    return run.kernel(arguments, main(text + stores), -(-count // WIDTH), {**walk.numbers, "zero": 0})


def _let(given: Sequence[str]) -> str:
    return " ".join(f"let {n} = {value};" for n, value in zip("abc", given))


def computed(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """The unary and binary families, comparisons, casts, arange, and composites that have a rule."""
    kinds = [kind(o) for o in operands]
    value = f"a + {kinds[0].computed}(i) * b" if op == "arange" else expression(op, kinds[0], kinds[1:], attrs)
    if value is None:
        return None

    def compute(given: list[str]) -> tuple[str, list[str]]:
        """Numbers are compared as the dtype holds them."""
        return _let([k.rounded(v) for k, v in zip(kinds[1:], given)] if op in COMPARISON else given), [value]

    takes = [as_number(o) for o in operands]
    if op in ("floor_divide", "remainder") and not kinds[0].is_floating:
        takes[2] = _divisor
    return each(run, operands, kinds, takes, compute)


def _divisor(value: int) -> int:
    if value == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    return value


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

    return each(run, operands, kinds, [as_number(o) for o in operands], compute, len(results))
