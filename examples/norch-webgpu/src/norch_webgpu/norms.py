"""softmax, layer_norm, rms_norm and their gradients: a team of a workgroup reads a row once, and keeps it."""

import re
from collections.abc import Sequence
from math import prod
from struct import pack, unpack
from typing import Any

from norch.backend import Operand

from .devices import Runtime
from .dtypes import Attrs, Kind, Operands, kind
from .memory import Memory
from .reduction import GROUP, fold, power_of_two, teams
from .source import Tensor, Walk

KEPT = 8
"""Vectors of a row that an invocation keeps, at most. Longer rows are read again."""
VECTOR = Kind("vector", "vec4<f32>")
SUMS = "alias S = {0};\nfn neutral() -> S {{ return S(0); }}\nfn rule(a: S, b: S) -> S {{ return a + b; }}\n"
# The largest of some numbers, and the sum of exp(number - largest). That of none is finite, as -inf less it is -inf.
ONLINE = """alias S = vec2<f32>;
fn neutral() -> S { return S(-3.4e38f, 0); }
fn rule(a: S, b: S) -> S { let m = max(a.x, b.x); return S(m, a.y * exp(a.x - m) + b.y * exp(b.x - m)); }
"""
SOFTMAX = """var best = -3.4e38f; [best = max(best, most(x@));]
    var sum = V(0); [sum += exp(x@ - best);] let a = together(S(best, total(sum)), l, lanes);"""
GRAD = "var s = V(0); [s += {0};] let c = together(total(s), l, lanes);"
MEAN = "var s = V(0); [s += x@;] let mean = together(S(total(s)), l, lanes){0} / f32(P.n);\n"
FACTOR = "let factor = 1 / sqrt({0} / f32(P.n) + bitcast<f32>(P.eps));\n"
SPREAD = "var q = V(0); [let d = x@ - mean; q += d * d;] let square = together(total(q), l, lanes);" + FACTOR.format(
    "square"
)
SPREAD_GRAD = """var q = V(0); var p = V(0); var r = V(0);
    [let d = x@ - mean; let h = g@ * w@; q += d * d; p += h; r += h * d;]
    let c = together(S(total(q), total(p), total(r), 0), l, lanes) / f32(P.n);
    let factor = 1 / sqrt(c.x + bitcast<f32>(P.eps)); let along = c.z * factor * factor;
    if (t == 0u && live) { KEEP }
"""
# S, what a row is gone through for (what is in brackets is done for each vector of it), and what becomes of a vector.
ROWS = {
    "softmax": (ONLINE, SOFTMAX + "let f = 1 / a.y;", "exp(x@ - a.x) * f"),
    "log_softmax": (ONLINE, SOFTMAX + "let f = a.x + log(a.y);", "x@ - f"),
    "softmax_grad": (SUMS.format("f32"), GRAD.format("g@ * y@"), "(g@ - c) * y@"),
    "log_softmax_grad": (SUMS.format("f32"), GRAD.format("g@"), "g@ - exp(y@) * c"),
    "layer_norm": (SUMS.format("f32"), MEAN.format("") + SPREAD, "(x@ - mean) * factor * w@ + b@"),
    "rms_norm": (SUMS.format("f32"), "let mean = 0f;" + SPREAD, "x@ * factor * w@"),
    "layer_norm_grad": (
        SUMS.format("vec4<f32>"), MEAN.format(".x") + SPREAD_GRAD, "(g@ * w@ - c.y - (x@ - mean) * along) * factor"
    ),
    "rms_norm_grad": (SUMS.format("vec4<f32>"), "let mean = 0f;" + SPREAD_GRAD, "(g@ * w@ - x@ * along) * factor"),
}  # fmt: skip
STATS = Tensor("stats", Kind("pair", "vec2<f32>", code="Q"), True)


def _access(name: str, found: Kind, many: int, is_written: bool) -> str:
    """WGSL of load_NAME or store_NAME, of the vector e of the row that begins at `at`."""
    place = f"(P.{name}_ + at + 4u * e)"
    if many == 1:
        load, store = f"return get_{name}(at + e * P.{name}_step);", f"put_{name}(at + e * P.{name}_step, v);"
    elif found.per_word == 1:
        load, store = f"return {name}[{place} >> 2u];", f"{name}[{place} >> 2u] = v;"
    else:
        words = [f"{name}[{place} / 2u + {k}u]" for k in (0, 1)]
        parts = ", ".join(f"decode_{found.name}({w} & 0xffffu), decode_{found.name}({w} >> 16u)" for w in words)
        load, code = f"return V({parts});", f"encode_{found.name}(v"
        store = " ".join(
            f"atomicStore(&{w}, {code}.{a}) | {code}.{b}) << 16u);" for w, (a, b) in zip(words, ("xy", "zw"))
        )
    if is_written:
        return f"fn store_{name}(at: u32, e: u32, v: V) {{ {store} }}\n"
    return f"fn load_{name}(at: u32, e: u32) -> V {{ {load} }}\n"


def _rows(
    run: Runtime, op: str, names: str, operands: Sequence[Operand], last: int, eps: float = 0, keep: str = ""
) -> Any:
    """A kernel of ROWS over the last dims of operands, the output and the inputs; None where they do not lie in lines."""
    state, passes, result = ROWS[op]
    shape = operands[0].shape
    lead, inner = shape[: len(shape) - last], shape[len(shape) - last :]
    lines = [Walk("x", inner, [o.strides[len(o.shape) - last :]]) for o in operands]
    layouts = [o.strides[: len(o.shape) - last] or (0,) * len(lead) for o in operands]
    if any(len(line.dims) > 1 for line in lines):
        return None
    walk, n = Walk(names, lead, layouts), prod(inner)
    steps = [line.dims[0][1][0] for line in lines]
    fits = n % 4 == 0 and set(steps) == {1} and not any(s % 4 for d in walk.dims for s in d[1])
    for name in "wb":
        if name not in names:
            passes, result = (re.sub(rf" [*+] {name}@", "", text) for text in (passes, result))
    kinds = [kind(o) for o in operands]

    def make(many: int) -> Any:
        vectors = n // many
        team = power_of_two(-(-vectors // 4), GROUP)
        count = range(-(-vectors // team))
        is_kept = len(count) <= KEPT
        loads = [(m, f"load_{m}(at_{m}, ") for m in names[1:]]

        def each(template: str) -> str:
            if is_kept:
                return " ".join(f"if (has{k}) {{ {template.replace('@', str(k))} }}" for k in count)
            given = " ".join(f"let {m} = {load}e);" for m, load in loads)
            return f"for (var e = t; e < end; e += {team}u) {{ {given} {template.replace('@', '')} }}"

        kept = "".join(f"let e{k} = t + {k * team}u; let has{k} = e{k} < end;\n" for k in count if is_kept)
        kept += "".join(f"var {m}{k}: V; " for m, _ in loads for k in count if is_kept)
        if is_kept:
            kept += each(" ".join(f"{m}@ = {load}e@);" for m, load in loads))
        body = re.sub(r"\[([^\]]*;)\]", lambda found: each(found[1]), passes).replace("KEEP", keep)
        body = f"""let i = group * {GROUP // team}u + l / {team}u; let t = l % {team}u; let live = i < P.i_count;
            let end = select(0u, {vectors}u, live); {walk.code()}
            {kept}
            {body}
            {each(f"store_o(at_o, e@, {result});")}"""
        types = "alias V = vec4<f32>; fn total(v: V) -> f32 { return v.x + v.y + v.z + v.w; } "
        types += "fn most(v: V) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }\n"
        if many == 1:
            types = "alias V = f32; fn total(v: V) -> f32 { return v; } fn most(v: V) -> f32 { return v; }\n"
        arguments = [
            Tensor(m, VECTOR if many == 4 and k.per_word == 1 else k, m == "o") for m, k in zip(names, kinds)
        ] + [STATS] * bool(keep)
        types += "".join(_access(m, k, many, m == "o") for m, k in zip(names, kinds)) + state
        numbers = {**walk.numbers, "n": n, "eps": unpack("I", pack("f", eps))[0]}
        numbers |= {f"{m}_step": step for m, step in zip(names, steps)}
        return run.kernel(
            arguments, types + teams(run, team, body), -(-walk.count * team // GROUP) if n else 0, numbers
        )

    kernels = {many: make(many) for many in ((1, 4) if fits else (1,))}

    def call(*args: Any) -> None:
        offsets = args[1 : 2 * len(names) : 2]
        kernels[4 if fits and not any(at % 4 for at in offsets) else 1](*args)

    return call


def softmax(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """softmax, log_softmax, and their gradients."""
    if not operands[0].shape:
        return None
    dim = attrs["dim"] % len(operands[0].shape)

    def moved(dims: Sequence[int]) -> tuple[int, ...]:
        return (*dims[:dim], *dims[dim + 1 :], dims[dim])

    turned = [o._replace(shape=moved(o.shape), strides=moved(o.strides)) for o in operands]
    return _rows(run, op, "ogy" if op.endswith("grad") else "ox", turned, 1)


def norm(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """layer_norm and rms_norm."""
    names = "o" + "".join(name for name, there in zip("xwb", attrs["given"]) if there)
    return _rows(run, op, names, operands, len(attrs["shape"]), attrs["eps"])


def norm_grad(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """Their gradients. Those of weight and bias are sums over the rows, whose mean and factor are kept for it."""
    last, is_layer = len(attrs["shape"]), op == "layer_norm_grad"
    outputs = 1 + attrs["affine"] * (1 + is_layer)
    given = (operands[0], *operands[outputs:])
    keep = "stats[P.stats_ + i] = vec2<f32>(mean, factor);" if outputs > 1 else ""
    first = _rows(run, op, "ogxw"[: len(given)], given, last, attrs["eps"], keep)
    if outputs == 1 or not first:
        return first
    (g, x), shape = given[1:3], given[0].shape
    rank = len(shape) - last
    walks = [o.strides for o in operands[1:outputs]] + [g.strides[rank:], x.strides[rank:]]
    outer = Walk("wbgx" if is_layer else "wgx", shape[rank:], walks)
    inner = Walk("gx", shape[:rank], [g.strides[:rank], x.strides[:rank]], "j")
    arguments = [Tensor(m, kind(o), True) for m, o in zip("wb", operands[1:outputs])]
    arguments += [Tensor("g", kind(g)), Tensor("x", kind(x)), STATS]
    item = "S(get_g(at_g) * (get_x(at_x) - stats[P.stats_ + j].x) * stats[P.stats_ + j].y, get_g(at_g))"
    store = "put_w(at_w, a.x);" + " put_b(at_b, a.y);" * is_layer
    second = fold(run, arguments, SUMS.format("vec2<f32>"), item, store, outer, inner, {}, size=8)

    def call(*args: Any) -> None:
        stats: Memory = args[0].device.pool.take(8 * inner.count)
        inputs = args[2 * outputs :]
        first(*args[:2], *inputs, stats, 0)
        second(*args[2 : 2 * outputs], *inputs[:4], stats, 0)

    return call if second else None
