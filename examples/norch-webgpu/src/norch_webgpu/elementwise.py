"""Elementwise kernels, arange and copies among them, and chains of them: the composite "fused".

What an op computes is an expression in its inputs a, b and c.
"""

from collections.abc import Sequence

import numpy as np

from norch.backend import Kernel, parse_steps

from .devices import Runtime
from .dtypes import KINDS, Attrs, Kind, Operands, as_bits, as_float32, kind, raw
from .source import WIDTH, Scalar, Tensor, Walk, main, number

EACH = 4  # elements of an invocation, where there are many
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
INTEGER = {  # @ is the type computed in and BITS the width of the dtype
    **WHOLE, "neg": "-a", "abs": "select(a, -a, a < 0)", "sign": "@(a > 0) - @(a < 0)", "bitwise_not": "~a",
    **BITWISE, **SIMPLE, "maximum": "select(b, a, a > b)", "minimum": "select(b, a, a < b)", "pow": "pow_@(a, b)",
    "floor_divide": "floor_divide_@(a, b)", "remainder": "a - b * floor_divide_@(a, b)",
    "bitwise_left_shift": "select(a << (u32(b) & BITSu - 1u), @(0), b < 0 || b >= BITS)",
    "bitwise_right_shift": "a >> select(u32(b) & BITSu - 1u, BITSu - 1u, b < 0 || b >= BITS)",
}  # fmt: skip
BOOL = INTEGER | {"bitwise_not": "1 - a"}  # what is not 0 is stored as 1
COMPARISON = {"eq": "a == b", "ne": "!(a == b)", "lt": "a < b", "le": "a <= b", "gt": "a > b", "ge": "a >= b"}
ANY = {f: f"i32({value})" for f, value in COMPARISON.items()} | {"fill": "a", "where": "select(c, b, a != 0)"}


def expression(op: str, to: Kind, sources: Sequence[Kind], attrs: Attrs) -> str | None:
    """The value of an op in the type that `to` is computed in; None where there is no rule for it."""
    source, name = sources[-1], f"{op} tanh" if attrs.get("approximate") == "tanh" else op
    if op == "arange":
        return f"a + {to.computed}(i) * b"
    if op == "copy":  # as C converts; of NaN, WGSL's != may be false
        whole = "a" if to.computed == source.computed else f"{to.computed}(a)"
        return "i32(!(a == 0))" if to.name == "bool" else whole
    if op in ANY:
        return ANY[op]
    if source.is_floating and name in COMPOSITE:
        slope = np.float32(attrs.get("negative_slope", 0))
        return COMPOSITE[name].format(negative_slope=f"f32({float(slope)!r})") if np.isfinite(slope) else None
    text = (FLOATING if source.is_floating else BOOL if source.name == "bool" else INTEGER).get(op)
    return text and text.replace("@", source.computed).replace("BITS", str(8 * source.size))


def elementwise(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """One op is a chain of one step. None where a step has no rule: then core does without this kernel."""
    names = [f"o{j}" for j in range(len(operands))]
    if op == "fused":
        steps, results = parse_steps(attrs["steps"]), attrs["results"]
    else:
        (step,), results = parse_steps(" ".join((op, operands[0].dtype.name, *names[1:]))), [0]
        steps = [step._replace(attrs=attrs)]
    moves = op in ("where", "fill") or (op == "copy" and operands[0].dtype is operands[1].dtype)  # bytes
    kinds = [raw(o) if moves else kind(o) for o in operands]  # numbers for 16-bit floats keep more digits than these
    takes = [as_bits(o) if moves else as_float32 if o.dtype.is_floating_point else int for o in operands]
    if op in ("floor_divide", "remainder") and not kinds[0].is_floating:
        takes[2] = _divisor
    arguments: list[Tensor | Scalar] = [
        Scalar(n, k, take) if o.is_scalar else Tensor(n, k, j < len(results))
        for j, (n, o, k, take) in enumerate(zip(names, operands, kinds, takes))
    ]
    tensors = [(n, o) for n, o in zip(names, operands) if not o.is_scalar]
    walk = Walk([n for n, _ in tensors], operands[0].shape, [o.strides for _, o in tensors])
    text, values = walk.code(), dict(zip(names, kinds))
    for a in arguments[len(results) :]:
        text += f"let v_{a.name} = {number(a) if isinstance(a, Scalar) else f'get_{a.name}(at_{a.name})'};\n"
    for j, step in enumerate(steps):
        to = kinds[0] if moves else KINDS.get(step.dtype)
        sources = [values[read] for read in step.reads]
        value = expression(step.op, to, sources, step.attrs) if to and all(sources) else None
        if value is None:
            return None
        reads = [f"v_{read}" for read in step.reads]
        if step.op in COMPARISON:
            reads = [k.rounded(read) for k, read in zip(sources, reads)]
        if len(steps) > 1:  # else it may be contracted with the next
            value = to.rounded(value)
        given = " ".join(f"let {n} = {read};" for n, read in zip("abc", reads))
        text, values[f"s{j}"] = f"{text}var v_s{j}: {to.computed}; {{ {given} v_s{j} = {value}; }}\n", to

    # Elements of a word follow one another in an invocation, which then writes the word; words do so in a workgroup.
    outs = [(n, k, f"v_s{j}") for n, k, j in zip(names, kinds, results)]
    packed, k, value = next((out for out in outs if out[1].per_word > 1), ("", KINDS["float32"], ""))
    per = k.per_word if walk.flat else 1
    words, bits = max(EACH // per, 1) if walk.count >= 1 << 16 else 1, 32 // per
    body, stores = "", ""
    for e in range(words):
        body += f"let w{e} = group * {WIDTH * words}u + {WIDTH * e}u + l; var word{e} = 0u; var mask{e} = 0u;\n"
        for f in range(per):
            i, kept, puts = f"i{e}_{f}", "", ""
            if per > 1:
                kept = f"word{e} |= encode_{k.name}({value}) << {f * bits}u; mask{e} |= {(1 << bits) - 1 << f * bits}u;"
            body += f"let {i} = w{e} * {per}u + {f}u" + f" - P.{packed}_ % {per}u" * (per > 1) + ";\n"
            for n, of, v in outs:
                if n != packed or per == 1:
                    body += f"var r{i}_{n}: {of.computed}; var p{i}_{n}: u32;\n"
                    kept += f"r{i}_{n} = {v}; p{i}_{n} = at_{n}; "
                    puts += f"put_{n}(p{i}_{n}, r{i}_{n}); "
            body += f"if ({i} < P.i_count) {{ let i = {i}; {text} {kept} }}\n"
            stores += f"if ({i} < P.i_count) {{ {puts} }}\n" * bool(puts)
        stores += f"mask_{packed}(P.{packed}_ / {per}u + w{e}, mask{e}, word{e});\n" * (per > 1)
    count = -(-(walk.count // per + 2 * (per > 1)) // words)
    return run.kernel(arguments, main(body + stores), -(-count // WIDTH), {**walk.numbers, "zero": 0})


def _divisor(value: int) -> int:
    if value == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    return value
