"""gather, scatter, scatter_add, embedding. A first kernel looks for wrong indices; if it finds one, no other writes.

What is scattered to one place is added in its order, by one invocation, and rounded once: that of the first index which
names the place. Others are found by looking through a short line, or by sorting a long one.
"""

from typing import Any

from norch.backend import Kernel, Operand

from .devices import CHECKED, Runtime
from .dtypes import KINDS, Attrs, Kind, Operands, kind, raw
from .reduction import with_dims
from .sort import ordered
from .source import Scalar, Tensor, Walk, main

SHORT = 32
# An int64 is read as its two words, which takes no shader-int64.
PLACE = """fn place(at: u32) -> u32 {{ // which of P.size elements an index means
    let w = {words};
    if (w.y == 0u && w.x < P.size) {{ return w.x; }}
    if ({wraps} && w.y == 0xffffffffu && w.x >= 0u - P.size && P.size > 0u) {{ return P.size + w.x; }}
    return 0xffffffffu;
}}
"""
CHECK = """let i = g;
    if (i >= P.i_count) {{ return; }}
    {walk}
    if (place(at_p) != 0xffffffffu) {{ return; }}
    let first = P.record_ / 4u; let w = {words};
    atomicStore(&record[first], P.call);
    if (atomicExchange(&record[first + 1u], 1u) == 0u) {{
        atomicStore(&record[first + 2u], w.x); atomicStore(&record[first + 3u], w.y);
        atomicStore(&record[first + 4u], P.size); atomicStore(&record[first + 5u], P.op);
    }}"""
GATHER = """let i = g;
    if (i >= P.i_count || atomicLoad(&record[P.record_ / 4u]) == P.call) {{ return; }}
    {walk}
    put_o(at_o, get_x(at_x + place(at_p) * P.step));"""
SCATTER = """let i = g / P.n; let k = g % P.n;
    if (i >= P.i_count || atomicLoad(&record[P.record_ / 4u]) == P.call) {{ return; }}
    {walk}
    let j = {j}; let mine = place(at_p + j * P.p_step);
    {first}
    let at = at_o + mine * P.step;
    var a = get_o(at);
    for (var m = k; m < P.n; m += 1u) {{
        let j = {m}; let same = place(at_p + j * P.p_step) == mine;
        if (same) {{ let b = get_x(at_x + j * P.x_step); a = {value}; }} {otherwise}
    }}
    put_o(at, a);"""
ALONE = "for (var m = 0u; m < k; m += 1u) { if (place(at_p + m * P.p_step) == mine) { return; } }"
HEAD = "if (k > 0u && place(at_p + get_order(at_r + k - 1u) * P.p_step) == mine) { return; }"
CALL = Scalar("call", KINDS["bytes4"], lambda number: number & 0xFFFFFFFF)
RECORD = Tensor("record", KINDS["bytes1"], True)


def places(index: Operand, name: str = "p", wraps: bool = True) -> tuple[Kind, str, str]:
    """How an index is bound, `place(at)`, and its two words, whatever its dtype."""
    found = raw(index) if index.dtype.itemsize == 8 else kind(index)
    words = f"get_{name}(at)" if found.size == 8 else f"vec2<u32>(u32(get_{name}(at)), u32(get_{name}(at) >> 31u))"
    return found, PLACE.format(words=words, wraps=str(wraps).lower()), words.replace("(at)", f"(at_{name})")


def gather(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    (out, x, index), dim = (with_dims(o) for o in operands), attrs["dim"]
    steps = [step * (d != dim) for d, step in enumerate(x.strides)]
    return _gather(run, op, out, x, index, steps, dim, 2)


def embedding(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """A gather of rows, whose index is the same for all elements of a row, and never negative."""
    out, index, weight = operands
    index = index._replace(shape=out.shape, strides=(*index.strides, 0))
    steps = [*[0] * (len(out.shape) - 1), weight.strides[1]]
    kernel: Any = _gather(run, op, out, weight, index, steps, 0, 2, wraps=False)
    return kernel and (lambda o, o_at, p, p_at, x, x_at: kernel(o, o_at, x, x_at, p, p_at))


def _gather(
    run: Runtime, op: str, out: Operand, x: Operand, index: Operand, steps: Any, dim: int, at: int, wraps: bool = True
) -> Kernel | None:
    walk = Walk("oxp", out.shape, [out.strides, steps, index.strides])
    found, text, _ = places(index, wraps=wraps)
    tensors = [Tensor("o", raw(x), True), Tensor("x", raw(x)), Tensor("p", found)]
    numbers = {**walk.numbers, "size": x.shape[dim], "step": x.strides[dim]}
    kernel = run.kernel(
        [*tensors, RECORD, CALL], text + main(GATHER.format(walk=walk.code())), -(-walk.count // 64), numbers
    )
    return _checked(run, op, index, at, x.shape[dim], kernel, wraps)


def scatter(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    (out, index, src), dim, adds = (with_dims(o) for o in operands), attrs["dim"], op == "scatter_add"
    found, text, _ = places(index)
    n, moved = index.shape[dim], kind(out) if adds else raw(out)
    # One order serves all lines along which the index does not change.
    lines = [d for d in range(len(index.shape)) if d != dim]
    alike = [1 if d != dim and not index.strides[d] else s for d, s in enumerate(index.shape)]
    short, below, steps = n <= SHORT, n, dict.fromkeys(lines, 0)
    for d in reversed(lines):
        if alike[d] > 1:
            steps[d], below = below, below * alike[d]
    layouts = [[o.strides[d] for d in lines] for o in (out, index, src)] + [[steps[d] for d in lines]]
    walk = Walk("opxr", [index.shape[d] for d in lines], layouts)
    arguments = [Tensor("o", moved, True), Tensor("p", found), Tensor("x", moved)]
    if not short:
        arguments.append(Tensor("order", KINDS["bytes4"]))
    body = SCATTER.format(
        walk=walk.code(), j="k" if short else "get_order(at_r + k)", m="m" if short else "get_order(at_r + m)",
        first=ALONE if short else HEAD, otherwise="" if short else "else { break; }",
        value="b" if not adds else "a | b" if out.dtype.name == "bool" else "a + b",
    )  # fmt: skip
    numbers = {**walk.numbers, "size": out.shape[dim], "step": out.strides[dim], "n": n}
    numbers |= {"p_step": index.strides[dim], "x_step": src.strides[dim]}
    kernel: Any = run.kernel([*arguments, RECORD, CALL], text + main(body), -(-walk.count * n // 64), numbers)
    if short or not walk.count:
        return _checked(run, op, index, 1, out.shape[dim], kernel)
    key = places(index, "x")[1].replace("P.size", f"{out.shape[dim]}u")
    key += "alias T = u32;\nfn is_nan(v: T) -> bool { return false; }\nfn key(at: u32) -> T { return place(at); }\n"
    order = ordered(run, index._replace(shape=tuple(alike)), found, dim, key)

    def call(*args: Any) -> None:
        kernel(*args[:6], order(*args[2:4]), 0, *args[6:])

    return _checked(run, op, index, 1, out.shape[dim], call)


def _checked(
    run: Runtime, op: str, index: Operand, at: int, size: int, kernel: Any, wraps: bool = True
) -> Kernel | None:
    """`kernel`, which takes the error record and the call's number at the end, behind a check of its index."""
    walk, (found, text, words) = Walk("p", index.shape, [index.strides]), places(index, wraps=wraps)
    text += main(CHECK.format(walk=walk.code(), words=words))
    numbers = {**walk.numbers, "size": size, "op": CHECKED.index(op)}
    check: Any = run.kernel([Tensor("p", found), RECORD, CALL], text, -(-walk.count // 64), numbers)
    if not check or not kernel:
        return None

    def call(*args: Any) -> None:
        device, number = args[0].device, next(run.calls)
        with run.lock:  # another call between the two would write its number
            check(*args[2 * at : 2 * at + 2], device.record, 0, number)
            kernel(*args, device.record, 0, number)
            device.unchecked = True

    return call
