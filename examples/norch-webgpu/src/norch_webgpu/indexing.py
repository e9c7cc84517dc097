"""gather, embedding, scatter, scatter_add. A first kernel looks for wrong indices; if it finds one, no other writes.

What is scattered to one place is added in its order, by one invocation, and rounded once: that of the first index which
names the place. The others come next in the order of the index, which is sorted.
"""

from typing import Any

from norch.backend import Kernel, Operand

from .devices import CHECKED, Runtime
from .dtypes import KINDS, Attrs, Operands, kind, raw
from .reduction import with_dims
from .sort import ordered
from .source import Scalar, Tensor, Walk, main

# Indices are read as their two words, which takes no shader-int64.
PLACE = """fn place_of(w: vec2<u32>) -> u32 { // which of P.size elements an index means, 2**32 - 1 for none
    if (w.y == 0u && w.x < P.size) { return w.x; }
    return select(0xffffffffu, P.size + w.x, w.y == 0xffffffffu && w.x >= 0u - P.size && P.size > 0u);
}
"""
CHECK = """let i = g;
    if (i >= P.i_count) {{ return; }}
    {walk}
    let w = get_p(at_p); let first = P.record_ / 4u;
    if (place_of(w) != 0xffffffffu) {{ return; }}
    atomicStore(&record[first], P.call);
    if (atomicExchange(&record[first + 1u], 1u) == 0u) {{
        atomicStore(&record[first + 2u], w.x); atomicStore(&record[first + 3u], w.y);
        atomicStore(&record[first + 4u], P.size); atomicStore(&record[first + 5u], P.op);
    }}"""
GATHER = """let i = g;
    if (i >= P.i_count || atomicLoad(&record[P.record_ / 4u]) == P.call) {{ return; }}
    {walk}
    put_o(at_o, get_x(at_x + place_of(get_p(at_p)) * P.step));"""
SCATTER = """let i = {i}; let k = {k};
    if (i >= P.i_count || k >= P.n || atomicLoad(&record[P.record_ / 4u]) == P.call) {{ return; }}
    {walk}
    let mine = place_of(get_p(at_p + get_order(at_r + k) * P.p_step));
    if (k > 0u && place_of(get_p(at_p + get_order(at_r + k - 1u) * P.p_step)) == mine) {{ return; }}
    var a = get_o(at_o + mine * P.step);
    for (var m = k; m < P.n; m++) {{
        let j = get_order(at_r + m);
        if (place_of(get_p(at_p + j * P.p_step)) != mine) {{ break; }}
        let b = get_x(at_x + j * P.x_step); a = {value};
    }}
    put_o(at_o + mine * P.step, a);"""
CALL = Scalar("call", KINDS["bytes4"], lambda number: number & 0xFFFFFFFF)
RECORD = Tensor("record", KINDS["bytes1"], True)


def gather(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    (out, x, index), dim = (with_dims(o) for o in operands), attrs["dim"]
    walk = Walk("oxp", out.shape, [out.strides, [s * (d != dim) for d, s in enumerate(x.strides)], index.strides])
    arguments: list[Any] = [Tensor("o", raw(x), True), Tensor("x", raw(x)), Tensor("p", raw(index)), RECORD, CALL]
    numbers = {**walk.numbers, "size": x.shape[dim], "step": x.strides[dim]}
    text = _place(op) + main(GATHER.format(walk=walk.code()))
    return _checked(run, op, index, 2, x.shape[dim], run.kernel(arguments, text, -(-walk.count // 64), numbers))


def embedding(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """A gather of rows, by an index that is never negative. It is native so that int64 need not be computed with."""
    out, index, weight = operands
    if index.dtype.itemsize != 8:
        return None
    table = weight._replace(
        shape=(weight.shape[0], *out.shape),
        strides=(weight.strides[0], *[0] * len(index.shape), weight.strides[1]),
    )
    index = index._replace(shape=(1, *out.shape), strides=(0, *index.strides, 0))
    out = out._replace(shape=(1, *out.shape), strides=(0, *out.strides))
    kernel: Any = gather(run, op, (out, table, index), {"dim": 0})
    return lambda o, o_at, p, p_at, x, x_at: kernel(o, o_at, x, x_at, p, p_at)


def _place(op: str) -> str:
    return PLACE if op != "embedding" else PLACE.replace("P.size > 0u", "false")


def scatter(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    (out, index, src), dim, adds = (with_dims(o) for o in operands), attrs["dim"], op == "scatter_add"
    n, size, moved, p = index.shape[dim], out.shape[dim], kind(out) if adds else raw(out), Tensor("p", raw(index))
    # One order serves all lines along which the index does not change.
    lines = [d for d in range(len(index.shape)) if d != dim]
    alike = [1 if d != dim and not index.strides[d] else s for d, s in enumerate(index.shape)]
    below, steps = n, dict.fromkeys(lines, 0)
    for d in reversed(lines):
        if alike[d] > 1:
            steps[d], below = below, below * alike[d]
    layouts = [[o.strides[d] for d in lines] for o in (out, index, src)] + [[steps[d] for d in lines]]
    walk = Walk("opxr", [index.shape[d] for d in lines], layouts)
    i, k = ("g / P.n", "g % P.n") if src.strides[dim] == 1 else ("g % P.i_count", "g / P.i_count")  # near in memory
    value = "b" if not adds else "a | b" if out.dtype.name == "bool" else "a + b"
    body = SCATTER.format(i=i, k=k, walk=walk.code(), value=value)
    numbers = {**walk.numbers, "size": size, "step": out.strides[dim], "n": n}
    numbers |= {"p_step": index.strides[dim], "x_step": src.strides[dim]}
    tensors = [Tensor("o", moved, True), p, Tensor("x", moved), Tensor("order", KINDS["bytes4"])]
    kernel: Any = run.kernel([*tensors, RECORD, CALL], PLACE + main(body), -(-walk.count * n // 64), numbers)
    if not walk.count * n:
        return kernel
    key = PLACE.replace("P.size", f"{size}u") + "fn key_at(at: u32) -> u32 { return place_of(get_x(at)); }\n"
    order = ordered(run, index._replace(shape=tuple(alike)), Tensor("x", raw(index)), dim, "u32", key)
    return _checked(run, op, index, 1, size, lambda *args: kernel(*args[:6], order(*args[2:4]), 0, *args[6:]))


def _checked(run: Runtime, op: str, index: Operand, at: int, size: int, kernel: Any) -> Kernel | None:
    """`kernel`, which takes the error record and the call's number at the end, behind a check of its index."""
    walk = Walk("p", index.shape, [index.strides])
    numbers = {**walk.numbers, "size": size, "op": CHECKED.index(op)}
    text = _place(op) + main(CHECK.format(walk=walk.code()))
    check: Any = run.kernel([Tensor("p", raw(index)), RECORD, CALL], text, -(-walk.count // 64), numbers)

    def call(*args: Any) -> None:
        device, number = args[0].device, next(run.calls)
        with device:  # another call between the two would write its number
            check(*args[2 * at : 2 * at + 2], device.record, 0, number)
            kernel(*args, device.record, 0, number)
            device.unchecked = True

    return call
