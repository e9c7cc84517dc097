"""cross_entropy by rows: of a row's logarithm of the sum of exp, and the number that the target names."""

from math import prod
from typing import Any

from .devices import CHECKED, Runtime
from .dtypes import KINDS, Attrs, Operands, kind, raw
from .indexing import RECORD
from .norms import ONLINE
from .reduction import fold, state
from .source import Tensor, Walk, main

IGNORED = "let w = get_t(at_t); let ignored = w.x == P.low && w.y == P.high;"
STORE = f"""{IGNORED}
    let sum = a0.x + log(a0.y); put_s(at_s, sum);
    let right = w.y == 0u && w.x < P.classes; let first = P.record_ / 4u;
    if (!right && !ignored && atomicExchange(&record[first + 1u], 1u) == 0u) {{
        atomicStore(&record[first + 2u], w.x); atomicStore(&record[first + 3u], w.y);
        atomicStore(&record[first + 4u], P.classes); atomicStore(&record[first + 5u], P.op);
    }}
    var loss = 0f; if (right && !ignored) {{ loss = sum - get_x(at_x + w.x * P.step); }}
    pairs[P.pairs_ + i] = vec2<f32>(loss, f32(!ignored));"""
GRAD = """let i = g;
    if (i >= P.i_count) {{ return; }}
    {walk}
    {ignored} let hit = i / P.inner % P.classes == w.x && w.y == 0u;
    let slope = exp(get_x(at_x) - get_s(at_s)) - f32(hit);
    put_o(at_o, select(slope * get_g(at_g){divided}, 0f, ignored));"""
TOTAL, PAIRS = Tensor("total", KINDS["float32"], element="f32"), Tensor("pairs", KINDS["bytes8"], element="vec2<f32>")


def _numbers(attrs: Attrs) -> dict[str, int]:
    return {"low": attrs["ignore_index"] & 0xFFFFFFFF, "high": attrs["ignore_index"] >> 32 & 0xFFFFFFFF}


def cross_entropy(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """The reduced loss, sums; input, int64 target."""
    loss, sums, x, target = operands
    dim = min(len(x.shape) - 1, 1)
    if target.dtype.itemsize != 8 or not x.shape[dim] or attrs["reduction"] == "none":
        return None
    outer = Walk("sxt", target.shape, [sums.strides, x.strides[:dim] + x.strides[dim + 1 :], target.strides])
    inner = Walk("x", x.shape[dim : dim + 1], [x.strides[dim : dim + 1]], "j")
    kinds = kind(loss), kind(sums), kind(x), raw(target)
    arguments = [Tensor(m, found, m in "ls") for m, found in zip("lsxt", kinds)]
    numbers = {**_numbers(attrs), "step": x.strides[dim], "classes": x.shape[dim], "op": CHECKED.index("cross_entropy")}
    item, pair = [("S(get_x(at_x), 1)", "")], [("pairs[P.pairs_ + j]", "")]
    rows: Any = fold(run, [*arguments, RECORD, PAIRS], ONLINE, 8, item, outer, inner, store=STORE, **numbers)
    store = f"put_l(0u, {'select(a0.x / a0.y, nan(), a0.y == 0)' if attrs['reduction'] == 'mean' else 'a0.x'});"
    one, count = Walk("", (), []), Walk("", target.shape, [], "j")
    total: Any = fold(run, [arguments[0], PAIRS], state("vec2<f32>"), 8, pair, one, count, store=store)

    def call(*args: Any) -> None:
        device = args[0].device
        pairs = device.pool.take(8 * outer.count)
        rows(*args, device.record, 0, pairs, 0)
        device.unchecked = True
        total(*args[:2], pairs, 0)

    return call


def cross_entropy_grad(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    """The gradient of input; gradient of the loss, input, sums, int64 target."""
    out, g, x, sums, target = operands
    dim = min(len(x.shape) - 1, 1)
    if target.dtype.itemsize != 8 or not x.shape[dim] or attrs["reduction"] == "none":
        return None
    each: Any = [o.strides[:dim] + (0,) + o.strides[dim:] for o in (sums, target)]
    walk = Walk("ogxst", x.shape, [out.strides, (0,) * len(x.shape), x.strides, *each])
    arguments = [Tensor(m, kind(o), m == "o") for m, o in zip("ogxs", (out, g, x, sums))] + [Tensor("t", raw(target))]
    numbers, is_mean = _numbers(attrs), attrs["reduction"] == "mean"
    text = main(GRAD.format(walk=walk.code(), ignored=IGNORED, divided=" / total[P.total_]" * is_mean))
    more = {"classes": x.shape[dim], "inner": prod(x.shape[dim + 1 :]), **walk.numbers, **numbers}
    grad: Any = run.kernel([*arguments, *[TOTAL] * is_mean], text, -(-walk.count // 64), more)
    if not is_mean:
        return grad
    item, store = [("f32(!(get_t(at_t).x == P.low && get_t(at_t).y == P.high))", "")], "total[P.total_] = a0;"
    one, targets = Walk("t", (), [()]), Walk("t", target.shape, [target.strides], "j")
    count: Any = fold(run, [TOTAL, arguments[4]], state("f32"), 4, item, one, targets, store=store, **numbers)

    def call(*args: Any) -> None:
        total = args[0].device.pool.take(4)
        count(total, 0, *args[8:])
        grad(*args, total, 0)

    return call
