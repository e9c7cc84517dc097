"""softmax, layer_norm, rms_norm, cross_entropy and their gradients: reductions of rows, which then are gone through
again; for cross_entropy only to look up what the target names."""

from collections.abc import Sequence
from math import prod
from struct import pack, unpack
from typing import Any

from norch.backend import Operand

from .devices import CHECKED, RECORD, Runtime, sequence
from .dtypes import KINDS, Attrs, Kind, Operands, kind, raw
from .indexing import REPORT
from .reduction import fold, state
from .source import Tensor, Walk

# The largest of some numbers, and the sum of exp(number - largest). That of none is finite, as -inf less it is -inf.
ONLINE = state(
    "vec2<f32>",
    "let e = exp(-abs(a.x - b.x)); if (a.x > b.x) { return S(a.x, a.y + b.y * e); } return S(b.x, b.y + a.y * e);",
    "S(-3.4e38f, 0)",
)
MEAN, FACTOR = "a /= f32(P.n);", "a = 1 / sqrt(a / f32(P.n) + bitcast<f32>(P.eps));"
SLOPE = "let m = a / f32(P.n); let f = 1 / sqrt(m.x + bitcast<f32>(P.eps)); a = S(f, m.y, m.z * f * f, 0);"
# S and its bytes; of each pass what is added up, and what becomes of the sum; what becomes of an element.
ROWS: dict[str, tuple[str, int, list[tuple[str, str]], str]] = {
    "softmax": (ONLINE, 8, [("S(x, 1)", "a.y = 1 / a.y;")], "exp(x - a0.x) * a0.y"),
    "weights": (ONLINE, 8, [("S(x, 1)", "a.y = select(1 / a.y, 0f, a.y == 0);")], "exp(x - a0.x) * a0.y"),
    "log_softmax": (ONLINE, 8, [("S(x, 1)", "a.x += log(a.y);")], "x - a0.x"),
    "softmax_grad": (state("f32"), 4, [("g * y", "")], "(g - a0) * y"),
    "log_softmax_grad": (state("f32"), 4, [("g", "")], "g - exp(y) * a0"),
    "layer_norm": (state("f32"), 4, [("x", MEAN), ("(x - a0) * (x - a0)", FACTOR)], "(x - a0) * a1 * w + b"),
    "rms_norm": (state("f32"), 4, [("x * x", FACTOR)], "x * a0 * w"),
    "layer_norm_grad": (
        state("vec4<f32>"), 16,
        [("S(x)", MEAN), ("S((x - a0.x) * (x - a0.x), g * w, g * w * (x - a0.x), 0)", SLOPE)],
        "(g * w - a1.y - (x - a0.x) * a1.z) * a1.x",
    ),
    "rms_norm_grad": (state("vec4<f32>"), 16, [("S(x * x, 0, g * w * x, 0)", SLOPE)], "(g * w - x * a0.z) * a0.x"),
}  # fmt: skip
STATS = Tensor("stats", Kind("pair", "", 1, "Q"), element="vec2<f32>")
IGNORED = "let w = get_t(at_t); let ignored = w.x == P.low && w.y == P.high;"
STORE = f"""{IGNORED}
    let sum = a0.x + log(a0.y); put_s(at_s, sum);
    let right = w.y == 0u && w.x < P.size;
    if (!right && !ignored) {{ report(w); }}
    var loss = 0f; if (right && !ignored) {{ loss = sum - get_x(at_x + w.x * P.step); }}
    stats[P.stats_ + i] = vec2<f32>(loss, f32(!ignored));"""
GRAD = f"""{IGNORED}
    let slope = exp(get_x(at_x) - get_s(at_s)) - f32(w.y == 0u && i / P.below % P.size == w.x);
    put_o(at_o, select(slope * get_g(at_g) / total[P.total_], 0f, ignored));"""
TOTAL = Tensor("total", KINDS["float32"], element="f32")


def _rows(
    run: Runtime, op: str, names: str, operands: Sequence[Operand], dims: Sequence[int], eps: float = 0, keep: str = ""
) -> Any:
    """A kernel of ROWS over dims of operands, output first; a weight has the last dims only."""
    (text, size, passes, result), shape = ROWS[op], operands[0].shape
    kept, laid = [d for d in range(len(shape)) if d not in dims], [(0,) * len(shape) + o.strides for o in operands]
    outer, inner = (
        Walk(names, [shape[d] for d in at], [[steps[d - len(shape)] for d in at] for steps in laid], index)
        for at, index in ((kept, "i"), (dims, "j"))
    )
    loads = " ".join(f"let {m} = get_{m}(at_{m});" for m in names[1:])
    loads += "".join(f" let {m} = {value};" for m, value in (("w", "1f"), ("b", "0f")) if m not in names)
    arguments = [Tensor(m, kind(o), m == "o") for m, o in zip(names, operands)] + [STATS] * bool(keep)
    numbers = {"n": inner.count, "eps": unpack("I", pack("f", eps))[0]}
    each = f"put_o(at_o, {result});"
    return fold(run, arguments, text, size, passes, outer, inner, loads, each, keep, **numbers)


def softmax(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """softmax, log_softmax, and their gradients."""
    rank = len(operands[0].shape)
    return _rows(run, op, "ogy" if op.endswith("grad") else "ox", operands, [attrs["dim"] % rank]) if rank else None


def norm(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """layer_norm and rms_norm."""
    names, rank = "o" + "".join(n for n, there in zip("xwb", attrs["given"]) if there), len(operands[0].shape)
    return _rows(run, op, names, operands, range(rank - len(attrs["shape"]), rank), attrs["eps"])


def norm_grad(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """Their gradients. Those of weight and bias are sums over the rows, whose mean and factor are kept for them."""
    outputs = 1 + attrs["affine"] * (1 + (op == "layer_norm_grad"))
    given, rank = (operands[0], *operands[outputs:]), len(operands[0].shape) - len(attrs["shape"])
    keep = "stats[P.stats_ + i] = vec2<f32>(a0.x, a1.x);" if outputs == 3 else "stats[P.stats_ + i].y = a0.x;"
    keep *= attrs["affine"]
    first = _rows(run, op, "ogxw"[: len(given)], given, range(rank, len(given[0].shape)), attrs["eps"], keep)
    if outputs == 1 or not first:
        return first
    _, g, x, *_ = given
    names = "wb"[: outputs - 1] + "gx"
    laid = [o.strides for o in operands[1:outputs]] + [g.strides[rank:], x.strides[rank:]]
    outer = Walk(names, g.shape[rank:], laid)
    inner = Walk("gx", g.shape[:rank], [g.strides[:rank], x.strides[:rank]], "j")
    arguments = [Tensor(m, kind(o), m in "wb") for m, o in zip(names, (*operands[1:outputs], g, x))]
    mean = "stats[P.stats_ + j].x" if outputs == 3 else "0f"
    item = f"S(get_g(at_g) * (get_x(at_x) - {mean}) * stats[P.stats_ + j].y, get_g(at_g))"
    store = " ".join(f"put_{m}(at_{m}, a0.{c});" for m, c in zip(names[:-2], "xy"))
    second = fold(run, [*arguments, STATS], state("vec2<f32>"), 8, [(item, "")], outer, inner, store=store)
    steps = [(first, ["o", *"gxv"[: len(given) - 1], "stats"]), (second, [*names, "stats"])]
    return sequence("o" + names + "v" * (len(given) == 4), steps, {"stats": 8 * inner.count})


def cross_entropy(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """The reduced loss, sums; input, int64 target. Or the gradient of input; that of the loss, input, sums, target."""
    one, sums, x, *_, target = operands
    dim, ignored, mean = min(len(x.shape) - 1, 1), attrs["ignore_index"], attrs["reduction"] == "mean"
    if target.dtype.itemsize != 8 or not x.shape[dim] or attrs["reduction"] == "none":
        return None
    numbers = {"low": ignored & 0xFFFFFFFF, "high": ignored >> 32 & 0xFFFFFFFF, "size": x.shape[dim]}
    numbers |= {"step": x.strides[dim], "below": prod(x.shape[dim + 1 :]), "op": CHECKED.index("cross_entropy")}
    none, every = Walk("t", (), [()]), Walk("t", target.shape, [target.strides], "j")
    if op.endswith("grad"):
        each = [o.strides[:dim] + (0,) + o.strides[dim:] for o in operands[3:]]
        walk = Walk("ogxst", x.shape, [one.strides, (0,) * len(x.shape), x.strides, *each])
        given = [*[Tensor(m, kind(o), m == "o") for m, o in zip("ogxs", operands)], Tensor("t", raw(target))]
        grad = run.each([*given, TOTAL], walk, GRAD, numbers)
        item = [("f32(!(get_t(at_t).x == P.low && get_t(at_t).y == P.high))", "")]
        store = f"total[P.total_] = {'a0' if mean else '1f'};"
        count = fold(run, [given[4], TOTAL], state("f32"), 4, item, none, every, store=store, **numbers)
        return sequence("ogxst", [(count, ("t", "total")), (grad, (*"ogxst", "total"))], {"total": 4})
    outer = Walk("sxt", target.shape, [sums.strides, x.strides[:dim] + x.strides[dim + 1 :], target.strides])
    inner = Walk("x", x.shape[dim : dim + 1], [x.strides[dim : dim + 1]], "j")
    given = [*[Tensor(m, kind(o), m != "x") for m, o in zip("lsx", operands)], Tensor("t", raw(target)), RECORD, STATS]
    item, pair = [("S(get_x(at_x), 1)", "")], [("stats[P.stats_ + j]", "")]
    rows = fold(run, given, ONLINE + REPORT, 8, item, outer, inner, store=STORE, **numbers)
    store = f"put_l(0u, {'select(a0.x / a0.y, nan(), a0.y == 0)' if mean else 'a0.x'});"
    total = fold(run, [given[0], STATS], state("vec2<f32>"), 8, pair, none, every, store=store)
    return sequence("lsxt", [(rows, (*"lsxt", "stats")), (total, ("l", "stats"))], {"stats": 8 * every.count})
