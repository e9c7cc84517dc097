"""Reductions, in two stages where there are few results, and cumsum. Each adds up in one order, whatever else runs."""

from collections.abc import Sequence
from math import prod
from typing import Any

from norch.backend import Operand

from .devices import RECORD, Runtime, sequence
from .dtypes import KINDS, Attrs, Kind, Operands, kind, raw
from .source import Tensor, Walk, main

GROUP = 256
"""Invocations of a workgroup that reduces; every adapter has as many."""
LEAST = {"f32": "-inf()", "i32": "i32(-2147483647 - 1)", "i64": "i64(-9223372036854775807li - 1li)"}
MOST = {"f32": "inf()", "i32": "2147483647", "i64": "9223372036854775807li"}
# What becomes of a and b, and what changes nothing. A NaN wins, and is known by its bits: WGSL may assume none.
RULES: dict[str, tuple[str, Any]] = {
    "sum": ("return a + b;", "S(0)"), "prod": ("return a * b;", "S(1)"),
    "any": ("return a | b;", "S(0)"), "all": ("return a & b;", "S(1)"),
    "amax": ("if (is_nan(a)) { return a; } return select(a, b, b > a || is_nan(b));", LEAST),
    "amin": ("if (is_nan(a)) { return a; } return select(a, b, b < a || is_nan(b));", MOST),
}  # fmt: skip
CHOOSE = "if (a.x > b.x || (a.x == b.x && a.y < b.y)) { return a; } return b;"
KEY = """fn key(v: f32) -> i32 { // whole numbers in the order of floats, with NaN above all
    let b = bitcast<i32>(v);
    return select(select(select(b, b ^ 0x7fffffff, b < 0), 0, v == 0), 0x7fffffff, is_nan(v));
}
"""
# The members of a team are `unit` apart, and all of them get the result.
TOGETHER = """var<workgroup> shared_state: array<S, 256>;
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
FOLD = """let part = group % P.parts; let i = group / P.parts * {rows}u + {row};
    let first = part * P.chunk + {member};
    let last = select(0u, min(P.j_count, (part + 1u) * P.chunk), i < P.i_count);
    {outer}
    {passes}
    for (var j = first; j < last; j += {team}u) {{ {each} }}
    if ({member} == 0u && i < P.i_count) {{ {store} }}"""
PASS = """{{
    var a = neutral(); var j = first;
    for (; j + 3u * {team}u < last; j += 4u * {team}u) {{
        let b0 = item{k}(j, i{starts}); let b1 = item{k}(j + {team}u, i{starts});
        let b2 = item{k}(j + 2u * {team}u, i{starts}); let b3 = item{k}(j + 3u * {team}u, i{starts});
        a = rule(rule(rule(rule(a, b0), b1), b2), b3);
    }}
    for (; j < last; j += {team}u) {{ a = rule(a, item{k}(j, i{starts})); }}
    a = together(a, l, lanes); {then} a{k} = a; }}
"""
SCAN = """var a = get_x(at_x + at_k * P.x_step);
    if (at_k >= P.width) { a += get_x(at_x + (at_k - P.width) * P.x_step); }
    put_o(at_o + at_k * P.o_step, a);"""


def types(computed: str) -> str:
    """WGSL of T, the type computed in, and of is_nan for whole numbers, which floats have already."""
    nan = "fn is_nan(v: T) -> bool { return false; }\n" * (computed != "f32")
    return f"alias T = {computed};\n{nan}"


def state(of: str, rule: str = "return a + b;", neutral: str = "S(0)") -> str:
    """WGSL of S, what is reduced, of the rule for two of them, and of what changes none."""
    return f"alias S = {of};\nfn neutral() -> S {{ return {neutral}; }}\nfn rule(a: S, b: S) -> S {{ {rule} }}\n"


def fold(
    run: Runtime, arguments: Sequence[Tensor], text: str, nbytes: int, passes: Sequence[tuple[str, str]], outer: Walk,
    inner: Walk, loads: str = "", each: str = "", store: str = "", stages: int = 2, **numbers: int,
) -> Any:  # fmt: skip
    """A kernel that reduces rows. outer: over the rows, inner: over a row's elements; both of `arguments` by name.

    text: WGSL of `state`, an S has `nbytes`. passes: of each the item, an S, and statements that change the result
    `a`, which then is a0 (a1, ...). loads: statements before an item and before `each`, which is done for each element
    in the end; both know j and i, the element's number and the row's, and at_NAME of the inner walk. store: by row.
    """
    n, rows, names = inner.count, outer.count, set(inner.names)
    steps_in, steps_out = (
        [s for _, d in w.dims for m, s in zip(w.names, d) if s and m in names] for w in (inner, outer)
    )
    is_columns = min(steps_out, default=1) < min(steps_in, default=1) and rows >= 32  # neighbours are of different rows
    # Few enough share a row that barriers are few, so many that the rows of a workgroup stay in the cache.
    most = 8 if is_columns else max(32, min(n // 16, GROUP if n <= 1 << 14 else 128))
    team = 1 << max(1, min(-(-n // 4), most)).bit_length() - 1  # a power of two
    count = GROUP // team
    groups = -(-rows // count)
    parts = 1 if each or stages == 1 else max(1, min(1024 // max(groups, 1), n // (team * 16)))
    row, member = (f"l % {count}u", f"(l / {count}u)") if is_columns else (f"l / {team}u", f"(l % {team}u)")
    starts, taken = ("".join(form.format(m) for m in inner.names) for form in (", at_{}", ", from_{}: u32"))
    given = {"row": parts, **numbers, **outer.numbers, **inner.numbers, "parts": parts, "chunk": -(-n // parts)}
    shuffle, lanes = "a", ""
    if "subgroup" in run.features and "i64" not in text:
        shuffle, lanes = "subgroupShuffleXor(a, h)", ", @builtin(subgroup_size) lanes: u32"
    unit = count if is_columns else 1
    source = text + TOGETHER.format(top=team * unit // 2, unit=unit, shuffle=shuffle)
    steps = "let lanes = 1u;\n" * (not lanes)
    for k, (item, then) in enumerate(passes):
        source += f"var<private> a{k}: S;\n"
        source += f"fn item{k}(j: u32, i: u32{taken}) -> S {{ {inner.code('from_{}')} {loads} return {item}; }}\n"
        steps += PASS.format(k=k, team=team, starts=starts, then=then)

    def stage(arguments: Sequence[Tensor], store: str) -> Any:
        whole = {"rows": count, "row": row, "member": member, "team": team, "outer": outer.code(), "passes": steps}
        body = FOLD.format(each=f"{inner.code('at_{}')} {loads} {each}" * bool(each), store=store, **whole)
        return run.kernel(
            arguments, source + main(body, GROUP).replace("l: u32", f"l: u32{lanes}"), groups * parts, given
        )

    if parts == 1:
        return stage(arguments, store)
    arguments = [*arguments, Tensor("partial", Kind("state", "S"), element="S")]
    place = f"partial[P.partial_ / {nbytes // 4}u + i * P.row + "
    again, last = [(f"{place}j]", passes[0][1])], Walk("", (parts,), [], "j")
    second = fold(run, arguments, text, nbytes, again, outer, last, store=store, stages=1, row=parts, **numbers)
    takes = [a.name for a in arguments if a is not RECORD]
    both = [(stage(arguments, f"{place}part] = a0;"), takes), (second, takes)]
    return sequence(takes[:-1], both, {"partial": nbytes * rows * parts})


def reduce(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """sum, prod, any, all, amax, amin, argmax and argmin. The last two choose by a key, and of equals the first."""
    (out, x), found = operands, kind(operands[1])
    dims, kept = ([d for d in range(len(x.shape)) if (d in attrs["dims"]) is one] for one in (True, False))
    outer = Walk("ox", [x.shape[d] for d in kept], [[o.strides[d] for d in kept] for o in operands])
    inner = Walk("x", [x.shape[d] for d in dims], [[x.strides[d] for d in dims]], "j")
    of, size = found.computed, 8 if found.computed == "i64" else 4
    if op in ("argmax", "argmin"):
        value = f"{'' if op == 'argmax' else '-' if found.is_floating else '~'}get_x(at_x)"
        of, value = ("i32", f"key({value})") if found.is_floating else (of, value)
        text = state(f"vec2<{of}>", CHOOSE, f"S({LEAST[of]}, {MOST[of]})") + KEY * found.is_floating
        item, store, size = f"S({value}, {of}(j))", "put_o(at_o, vec2<u32>(u32(a0.y), 0u));", 2 * size
    else:
        rule, neutral = RULES[op]
        text = types(of) + state("T", rule, neutral if isinstance(neutral, str) else neutral[of])
        item, store = "get_x(at_x)", "put_o(at_o, a0);"
    arguments = [Tensor("o", raw(out) if op.startswith("arg") else kind(out), True), Tensor("x", found)]
    return fold(run, arguments, text, size, [(item, "")], outer, inner, store=store)


def cumsum(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """To each element is added that 1 before, then the one 2 before, and so on."""
    (out, x), dim = (with_dims(o) for o in operands), attrs["dim"]
    sums, between = contiguous(x), KINDS[{"f32": "float32"}.get(kind(x).computed, x.dtype.name)]
    steps, scratch, given = [], {}, ("x", x, kind(x))
    for k in range(passes := max(1, (x.shape[dim] - 1).bit_length())):
        to = ("o", out, kind(out)) if k == passes - 1 else ("even" if k % 2 == 0 else "odd", sums, between)
        walk, numbers = lines("ox", dim, x.shape, to[1], given[1])
        arguments = [Tensor("o", to[2], True), Tensor("x", given[2])]
        steps.append((run.each(arguments, walk, SCAN, {**numbers, "width": 1 << k}), (to[0], given[0])))
        scratch[to[0]], given = between.size * walk.count, to
    return sequence("ox", steps, {name: nbytes for name, nbytes in scratch.items() if name != "o"})


def with_dims(operand: Operand) -> Operand:
    """A 0-d operand as one of shape (1,), so that dim 0 exists."""
    return operand if operand.shape else operand._replace(shape=(1,), strides=(1,))


def contiguous(operand: Operand) -> Operand:
    shape = operand.shape
    return operand._replace(strides=tuple([prod(shape[d + 1 :]) * (size > 1) for d, size in enumerate(shape)]))


def lines(names: str, dim: int, shape: tuple[int, ...], *operands: Operand) -> tuple[Walk, dict[str, int]]:
    """A walk where at_NAME is where the line along `dim` of an element begins and at_k its place in it; the steps."""
    layouts = [[s * (d != dim) for d, s in enumerate(o.strides)] for o in operands]
    walk = Walk(names + "k", shape, [*layouts, [int(d == dim) for d in range(len(shape))]])
    return walk, {"n": shape[dim], **{f"{name}_step": o.strides[dim] for name, o in zip(names, operands)}}
