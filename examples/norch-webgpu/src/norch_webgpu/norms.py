"""softmax, layer_norm, rms_norm and their gradients: a team of a workgroup reads a row once, and keeps it."""

import re
from collections.abc import Sequence
from math import prod
from struct import pack, unpack
from typing import Any

from norch.backend import Operand

from .devices import Runtime
from .dtypes import Attrs, Kind, Operands, kind
from .reduction import GROUP, fold, power_of_two, state, teams
from .source import Tensor, Walk

KEPT = 16
"""Elements of a row that an invocation keeps, at most. Longer rows are read again."""
# The largest of some numbers, and the sum of exp(number - largest). That of none is finite, as -inf less it is -inf.
ONLINE = state(
    "vec2<f32>", "let m = max(a.x, b.x); return S(m, a.y * exp(a.x - m) + b.y * exp(b.x - m));", "S(-3.4e38f, 0)"
)
SOFTMAX = """var most = -3.4e38f; [most = max(most, x@);]
    var s = 0f; [s += exp(x@ - most);] let a = together(S(most, s), l, lanes);"""
GRAD = "var s = 0f; [s += {0};] let c = together(s, l, lanes);"
MEAN = "var s = S(0); [s += S(x@);] let mean = together(s, l, lanes){0} / f32(P.n);"
NORM = """var q = 0f; [q += (x@ - mean) * (x@ - mean);]
    let factor = 1 / sqrt(together(q, l, lanes) / f32(P.n) + bitcast<f32>(P.eps));"""
NORM_GRAD = """var q = S(0); [let d = x@ - mean; let h = g@ * w@; q += S(d * d, h, h * d, 0);]
    let c = together(q, l, lanes) / f32(P.n);
    let factor = 1 / sqrt(c.x + bitcast<f32>(P.eps)); let along = c.z * factor * factor;
    if (t == 0u && end > 0u) { KEEP }"""
# S, what a row is gone through for (what is in brackets is done for each element), and what becomes of an element.
ROWS = {
    "softmax": (ONLINE, f"{SOFTMAX} let f = 1 / a.y;", "exp(x@ - a.x) * f"),
    "log_softmax": (ONLINE, f"{SOFTMAX} let f = a.x + log(a.y);", "x@ - f"),
    "softmax_grad": (state("f32"), GRAD.format("g@ * y@"), "(g@ - c) * y@"),
    "log_softmax_grad": (state("f32"), GRAD.format("g@"), "g@ - exp(y@) * c"),
    "layer_norm": (state("f32"), MEAN.format("") + NORM, "(x@ - mean) * factor * w@ + b@"),
    "rms_norm": (state("f32"), f"let mean = 0f; {NORM}", "x@ * factor * w@"),
    "layer_norm_grad": (
        state("vec4<f32>"), MEAN.format(".x") + NORM_GRAD, "(g@ * w@ - c.y - (x@ - mean) * along) * factor"
    ),
    "rms_norm_grad": (state("vec4<f32>"), f"let mean = 0f; {NORM_GRAD}", "(g@ * w@ - x@ * along) * factor"),
}  # fmt: skip
STATS = Tensor("stats", Kind("pair", "", 1, "Q"), element="vec2<f32>")


def _rows(
    run: Runtime, op: str, names: str, operands: Sequence[Operand], last: int, eps: float = 0, keep: str = ""
) -> Any:
    """A kernel of ROWS over the last dims of operands, output first; None where those are no line in memory."""
    (text, passes, result), shape = ROWS[op], operands[0].shape
    rank, n = len(shape) - last, prod(shape[len(shape) - last :])
    lines = [Walk("x", shape[rank:], [o.strides[len(o.shape) - last :]]) for o in operands]
    if any(len(line.dims) > 1 for line in lines):
        return None
    walk = Walk(names, shape[:rank], [o.strides[: len(o.shape) - last] or (0,) * rank for o in operands])
    team = power_of_two(-(-n // 8), GROUP)
    count = -(-n // team)
    for name in "wb":
        if name not in names:
            passes, result = (re.sub(rf" [*+] {name}@", "", part) for part in (passes, result))
    loads = " ".join(f"{m}@ = get_{m}(at_{m} + e@ * P.{m}_step);" for m in names[1:])

    def each(template: str) -> str:
        if count <= KEPT:
            return " ".join(f"if (e{k} < end) {{ {template.replace('@', str(k))} }}" for k in range(count))
        again = re.sub(r"(\w@ =)", r"let \1", loads)
        return f"for (var e = t; e < end; e += {team}u) {{ {again} {template} }}".replace("@", "")

    kept = "".join(f"let e{k} = t + {k * team}u; " for k in range(count)) * (count <= KEPT)
    if kept:
        kept += "".join(f"var {m}{k} = 0f; " for m in names[1:] for k in range(count)) + each(loads)
    passes = re.sub(r"\[([^\]]*;)\]", lambda found: each(found[1]), passes).replace("KEEP", keep)
    body = f"""let i = group * {GROUP // team}u + l / {team}u; let t = l % {team}u;
    let end = select(0u, P.n, i < P.i_count);
    {walk.code()}\n{kept}\n{passes}\n{each(f"put_o(at_o + e@ * P.o_step, {result});")}"""
    arguments = [Tensor(m, kind(o), m == "o") for m, o in zip(names, operands)] + [STATS] * bool(keep)
    numbers = {**walk.numbers, "n": n, "eps": unpack("I", pack("f", eps))[0]}
    numbers |= {f"{m}_step": line.dims[0][1][0] for m, line in zip(names, lines)}
    groups = -(-walk.count * team // GROUP) if n else 0
    return run.kernel(arguments, teams(run, text, team, body), groups, numbers, trusted=True)


def softmax(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """softmax, log_softmax, and their gradients."""
    if not operands[0].shape:
        return None
    dim = attrs["dim"] % len(operands[0].shape)
    order = [d for d in range(len(operands[0].shape)) if d != dim] + [dim]
    turned = [o._replace(shape=tuple([o.shape[d] for d in order])) for o in operands]
    turned = [t._replace(strides=tuple([o.strides[d] for d in order])) for t, o in zip(turned, operands)]
    return _rows(run, op, "ogy" if op.endswith("grad") else "ox", turned, 1)


def norm(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """layer_norm and rms_norm."""
    names = "o" + "".join(name for name, there in zip("xwb", attrs["given"]) if there)
    return _rows(run, op, names, operands, len(attrs["shape"]), attrs["eps"])


def norm_grad(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """Their gradients. Those of weight and bias are sums over the rows, whose mean and factor are kept for them."""
    outputs = 1 + attrs["affine"] * (1 + (op == "layer_norm_grad"))
    given = (operands[0], *operands[outputs:])
    keep = "stats[P.stats_ + i] = vec2<f32>(mean, factor);" * attrs["affine"]
    first = _rows(run, op, "ogxw"[: len(given)], given, len(attrs["shape"]), attrs["eps"], keep)
    if outputs == 1 or not first:
        return first
    (_, g, x, *_), rank, names = given, len(given[0].shape) - len(attrs["shape"]), "wb"[: outputs - 1] + "gx"
    laid = [o.strides for o in operands[1:outputs]] + [g.strides[rank:], x.strides[rank:]]
    outer = Walk(names, g.shape[rank:], laid)
    inner = Walk("gx", g.shape[:rank], [g.strides[:rank], x.strides[:rank]], "j")
    arguments = [Tensor(m, kind(o), m in "wb") for m, o in zip(names, (*operands[1:outputs], g, x))]
    item = "S(get_g(at_g) * (get_x(at_x) - stats[P.stats_ + j].x) * stats[P.stats_ + j].y, get_g(at_g))"
    store = " ".join(f"put_{m}(at_{m}, a.{c});" for m, c in zip(names[:-2], "xy"))
    second = fold(run, [*arguments, STATS], state("vec2<f32>"), 8, item, store, outer, inner)

    def call(*args: Any) -> None:
        stats = args[0].device.pool.take(8 * inner.count)
        first(*args[:2], *args[2 * outputs :], stats, 0)
        second(*args[2 : 2 * outputs + 4], stats, 0)

    return call if second else None
