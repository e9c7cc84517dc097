"""Reductions, in two stages where there are few results, and cumsum. Each adds up in one order, whatever else runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import Attrs, Kind, Operands, kind, raw
from .source import Tensor, Walk, main

GROUP = 256
"""Invocations of a workgroup that reduces; every adapter has as many."""

LEAST = {"f32": "bitcast<f32>(0xff800000u)", "i32": "i32(-2147483647 - 1)", "i64": "i64(-9223372036854775807li - 1li)"}
MOST = {"f32": "bitcast<f32>(0x7f800000u)", "i32": "2147483647", "i64": "9223372036854775807li"}
# The neutral value, and what becomes of a and b. A NaN wins, and is known by its bits: comparisons may assume none.
RULES: dict[str, tuple[Any, str]] = {
    "sum": ("T(0)", "return a + b;"), "prod": ("T(1)", "return a * b;"),
    "any": ("T(0)", "return a | b;"), "all": ("T(1)", "return a & b;"),
    "amax": (LEAST, "if (is_nan(a)) { return a; } return select(a, b, b > a || is_nan(b));"),
    "amin": (MOST, "if (is_nan(a)) { return a; } return select(a, b, b < a || is_nan(b));"),
    "argmax": ("S(T(0), 0xffffffffu)", ">"), "argmin": ("S(T(0), 0xffffffffu)", "<"),
}  # fmt: skip
# A value and its place, 2**32 - 1 for none. Of equals, and of NaNs, that of the lower place is chosen.
PLACED = """if (a.p == 0xffffffffu) {{ return b; }}
    if (b.p == 0xffffffffu) {{ return a; }}
    let nan_a = is_nan(a.v); let nan_b = is_nan(b.v);
    var first = a.p < b.p;
    if (nan_a != nan_b) {{ first = nan_a; }}
    else if (!nan_a && a.v != b.v) {{ first = a.v {0} b.v; }}
    if (first) {{ return a; }} return b;"""
# The members of a team are `unit` apart, and have all the result.
TOGETHER = """var<workgroup> shared_state: array<S, {width}>;
fn together(mine: S, l: u32, lanes: u32) -> S {{
    var a = mine; var h = {top}u;
    for (; h >= {unit}u && h >= lanes; h /= 2u) {{
        shared_state[l] = a; workgroupBarrier();
        let b = shared_state[l ^ h]; workgroupBarrier();
        a = rule(a, b);
    }}
    for (; h >= {unit}u; h /= 2u) {{ let b = {shuffle}; a = rule(a, b); }}
    return a;
}}
"""
FOLD = """let part = group % P.parts; let i = group / P.parts * {teams}u + {team};
    var a: S = neutral();
    if (i < P.i_count) {{
        {outer}
        let last = min(P.j_count, (part + 1u) * P.chunk);
        var j = part * P.chunk + {member};
        for (; j + {step3}u < last; j += {step4}u) {{
            let b0 = item(j, i{starts}); let b1 = item(j + {step1}u, i{starts});
            let b2 = item(j + {step2}u, i{starts}); let b3 = item(j + {step3}u, i{starts});
            a = rule(rule(rule(rule(a, b0), b1), b2), b3);
        }}
        for (; j < last; j += {step1}u) {{ let b = item(j, i{starts}); a = rule(a, b); }}
    }}
    a = together(a, l, lanes);
    if ({member} == 0u && i < P.i_count) {{ {outer} {store} }}"""
SCAN = """let i = group;
    if (i >= P.i_count) {{ return; }}
    {lines}
    var carry = T(0);
    for (var start = 0u; start < P.n; start += 256u) {{
        let j = start + l;
        var a = T(0);
        if (j < P.n) {{ a = get_x(at_x + j * P.x_step); }}
        for (var h = 1u; h < 512u; h *= 2u) {{
            sums[l] = a; workgroupBarrier();
            if (l >= h) {{ a += sums[l - h]; }}
            workgroupBarrier();
        }}
        if (j < P.n) {{ put_o(at_o + j * P.o_step, carry + a); }}
        carry += sums[255]; workgroupBarrier();
    }}"""


def types(computed: str) -> str:
    """T, the type that a kernel computes in, and `is_nan` of it."""
    nan = "(bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u" if computed == "f32" else "false"
    return f"alias T = {computed};\nfn is_nan(v: T) -> bool {{ return {nan}; }}\n"


def power_of_two(n: int, most: int) -> int:
    """The largest that is neither above `n` nor above `most`; 1 at least."""
    return 1 << max(1, min(n, most)).bit_length() - 1


def teams(run: Runtime, team: int, body: str, unit: int = 1, members: str = ".", width: int = GROUP) -> str:
    """The entry point of a kernel whose `body` calls `together`, which reduces an S by `rule` in teams of a workgroup.

    members: of S, those that subgroups exchange, in words; "." for S itself, "" where subgroups are not to be used.
    """
    shuffles = [f"subgroupShuffleXor(a{m.rstrip('.')}, h)" for m in members.split() if "subgroup" in run.features]
    shuffle = f"S({', '.join(shuffles)})" if shuffles else "a"
    lanes = "l: u32, @builtin(subgroup_size) lanes: u32)" if shuffles else "l: u32)"
    text = TOGETHER.format(width=width, top=team * unit // 2, unit=unit, shuffle=shuffle)
    return text + main(body if shuffles else f"let lanes = 1u; {body}", width).replace("l: u32)", lanes)


def fold(
    run: Runtime, arguments: Sequence[Tensor], state: str, item: str, store: str, outer: Walk, inner: Walk,
    numbers: Mapping[str, int], members: str = ".", size: int = 4, parts: int = 0,
) -> Any:  # fmt: skip
    """A kernel that reduces rows. outer: over the rows, inner: over a row's elements; both of `arguments` by name.

    state: WGSL of S, of `size` bytes, of `neutral()` and of `rule(a, b)`. item: an S, of j, i, which number the element
    and the row, and of at_NAME of the inner walk, which begins where the outer one is. store: what becomes of `a`.
    """
    n, rows, names = inner.count, outer.count, set(inner.names)
    steps_in, steps_out = ([s for _, d in w.dims for m, s in zip(w.names, d) if m in names] for w in (inner, outer))
    is_columns = min(steps_out, default=1) < min(steps_in, default=1) and rows >= 32  # neighbours are of different rows
    team = power_of_two(-(-n // 4), 8 if is_columns else GROUP)
    count = GROUP // team
    groups = -(-rows // count)
    parts = parts or max(1, min(1024 // max(groups, 1), n // (team * 16)))
    chunk = -(-n // parts)
    row, member = (f"l % {count}u", f"(l / {count}u)") if is_columns else (f"l / {team}u", f"(l % {team}u)")
    steps = {f"step{k}": k * team for k in range(1, 5)}
    whole = {"teams": count, "team": row, "member": member, "outer": outer.code(), **steps}
    whole["starts"] = "".join(f", at_{m}" for m in inner.names)
    starts = "".join(f", from_{m}: u32" for m in inner.names)
    function = f"fn item(j: u32, i: u32{starts}) -> S {{ {inner.code('from_{}')} return {item}; }}\n"
    numbers = {**numbers, **outer.numbers, **inner.numbers}
    place = count if is_columns else 1

    def stage(arguments: Sequence[Tensor], store: str) -> Any:
        text = state + function + teams(run, team, FOLD.format(store=store, **whole), place, members)
        return run.kernel(arguments, text, groups * parts, {**numbers, "parts": parts, "chunk": chunk})

    if parts == 1:
        return stage(arguments, store)
    arguments, partial = [*arguments, Tensor("partial", Kind("state", "S"))], f"partial[P.partial_ / {size // 4}u + "
    first = stage(arguments, f"{partial}i * P.parts + part] = a;")
    of_parts, numbers["row"] = Walk("", (parts,), [], "j"), parts
    second = fold(
        run, arguments, state, f"{partial}i * P.row + j]", store, outer, of_parts, numbers, members, size, parts=1
    )

    def call(*args: Any) -> None:
        scratch = args[0].device.pool.take(size * rows * parts)
        first(*args, scratch, 0)
        second(*args, scratch, 0)

    return call if first and second else None


def reduce(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """sum, prod, any, all, amax, amin, argmax and argmin."""
    out, x = operands
    dims = [d for d in range(len(x.shape)) if d in attrs["dims"]]
    kept = [d for d in range(len(x.shape)) if d not in attrs["dims"]]
    outer = Walk("ox", [x.shape[d] for d in kept], [[o.strides[d] for d in kept] for o in operands])
    inner = Walk("x", [x.shape[d] for d in dims], [[x.strides[d] for d in dims]], "j")
    (neutral, rule), computed, is_arg = RULES[op], kind(x).computed, op.startswith("arg")
    neutral = neutral if isinstance(neutral, str) else neutral[computed]
    state = "struct S { v: T, p: u32 }" if is_arg else "alias S = T;"
    state += f"\nfn neutral() -> S {{ return {neutral}; }}\n"
    state += f"fn rule(a: S, b: S) -> S {{\n    {PLACED.format(rule) if is_arg else rule}\n}}\n"
    item = "S(get_x(at_x), j)" if is_arg else "get_x(at_x)"
    store = "put_o(at_o, vec2<u32>(a.p, 0u));" if is_arg else "put_o(at_o, a);"
    arguments = [Tensor("o", raw(out) if is_arg else kind(out), True), Tensor("x", kind(x))]
    members = "" if computed == "i64" else ".v .p" if is_arg else "."
    size = (8 if computed == "i64" else 4) * (1 + is_arg)
    return fold(run, arguments, types(computed) + state, item, store, outer, inner, {}, members, size)


def cumsum(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    (out, x), dim = (with_dims(o) for o in operands), attrs["dim"]
    lines, found = across("ox", dim, out, x), kind(x)
    text = f"{types(found.computed)}var<workgroup> sums: array<T, {GROUP}>;\n"
    numbers = {**lines.numbers, "n": x.shape[dim], "o_step": out.strides[dim], "x_step": x.strides[dim]}
    arguments, groups = [Tensor("o", kind(out), True), Tensor("x", found)], lines.count * (x.shape[dim] > 0)
    return run.kernel(arguments, text + main(SCAN.format(lines=lines.code()), GROUP), groups, numbers)


def with_dims(operand: Operand) -> Operand:
    """A 0-d operand as one of shape (1,), so that dim 0 exists."""
    return operand if operand.shape else operand._replace(shape=(1,), strides=(1,))


def across(names: str, dim: int, *operands: Operand) -> Walk:
    """Over the starts of the lines that lie along a dim, as many as the last operand has."""
    shape, *strides = [(*n[:dim], *n[dim + 1 :]) for n in (operands[-1].shape, *(o.strides for o in operands))]
    return Walk(names, shape, strides)
