"""gather, embedding, scatter, scatter_add and sort. Before the first four a kernel looks for wrong indices; if it finds
one, they write nothing.

What is scattered to one place is added in its order, by one invocation, and rounded once: that of the first index which
names the place. The others come next in the order of the index, which is sorted.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from norch.backend import Kernel, Operand

from .devices import CHECKED, Runtime
from .dtypes import KINDS, Attrs, Operands, kind, raw
from .memory import Memory
from .reduction import KEY, with_dims
from .source import Scalar, Tensor, Walk

# Indices are read as their two words, which takes no shader-int64.
PLACE = """fn place_of(w: vec2<u32>) -> u32 { // which of P.size elements an index means, 2**32 - 1 for none
    if (w.y == 0u && w.x < P.size) { return w.x; }
    return select(0xffffffffu, P.size + w.x, w.y == 0xffffffffu && w.x >= 0u - P.size && P.size > 0u);
}
"""
REPORT = """fn report(w: vec2<u32>) {
    let first = P.record_ / 4u;
    if (atomicExchange(&record[first + 1u], 1u) == 0u) {
        atomicStore(&record[first + 2u], w.x); atomicStore(&record[first + 3u], w.y);
        atomicStore(&record[first + 4u], P.size); atomicStore(&record[first + 5u], P.op);
    }
}
"""
CHECK = """if (place_of(get_p(at_p)) == 0xffffffffu) {
        atomicStore(&record[P.record_ / 4u], P.call); report(get_p(at_p));
    }"""
WRONG = "if (get_record(0u) == P.call) { return; }\n"
SCATTER = """let mine = place_of(get_p(at_p + get_order(at_r + at_k * P.r_step) * P.p_step));
    if (at_k > 0u && place_of(get_p(at_p + get_order(at_r + (at_k - 1u) * P.r_step) * P.p_step)) == mine) { return; }
    var a = get_o(at_o + mine * P.o_step);
    for (var k = at_k; k < P.n; k++) {
        let j = get_order(at_r + k * P.r_step);
        if (place_of(get_p(at_p + j * P.p_step)) != mine) { break; }
        let b = get_x(at_x + j * P.x_step); a = VALUE;
    }
    put_o(at_o + mine * P.o_step, a);"""
# Runs of one element are merged two by two. It is the order that is sorted; of equals the first is first.
NTH = "fn nth(at_r: u32, k: u32) -> u32 { if (P.width == 1u) { return k; } return get_old(at_r + k * P.r_step); }\n"
MERGE = """let start = at_k / P.width * P.width; let pair = at_k / P.width / 2u * 2u * P.width;
    let right = start != pair; // which of the two runs this element is in
    let other = min(select(start + P.width, pair, right), P.n);
    var low = other; var end = min(other + P.width, P.n);
    let place = nth(at_r, at_k); let mine = key_at(at_x + place * P.x_step);
    while (low < end) { // how many of the other run come before: equals do if they are to the left
        let middle = (low + end) / 2u; let b = key_at(at_x + nth(at_r, middle) * P.x_step);
        if (b < mine || (right && b == mine)) { low = middle + 1u; } else { end = middle; }
    }
    put_o(at_r + (pair + (at_k - start) + (low - other)) * P.r_step, place);"""
EMIT = """let place = get_order(at_r + at_k * P.r_step);
    put_s(at_s + at_k * P.s_step, get_x(at_x + place * P.x_step));
    put_p(at_p + at_k * P.p_step, vec2<u32>(place, 0u));"""
CALL = Scalar("call", KINDS["bytes4"], lambda number: number & 0xFFFFFFFF)
RECORD, ORDER = Tensor("record", KINDS["bytes1"], True), Tensor("order", KINDS["bytes4"])
FOUND = Tensor("record", KINDS["bytes4"])  # which is read by all invocations, and fast


def _lines(names: str, dim: int, shape: tuple[int, ...], *operands: Operand) -> tuple[Walk, dict[str, int]]:
    """A walk where at_NAME is where the line along `dim` of an element begins and at_k its place in it; the steps."""
    layouts = [[s * (d != dim) for d, s in enumerate(o.strides)] for o in operands]
    walk = Walk(names + "k", shape, [*layouts, [int(d == dim) for d in range(len(shape))]])
    return walk, {"n": shape[dim], **{f"{name}_step": o.strides[dim] for name, o in zip(names, operands)}}


def gather(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    (out, x, index), dim = (with_dims(o) for o in operands), attrs["dim"]
    walk = Walk("oxp", out.shape, [out.strides, [s * (d != dim) for d, s in enumerate(x.strides)], index.strides])
    arguments: list[Any] = [Tensor("o", raw(x), True), Tensor("x", raw(x)), Tensor("p", raw(index)), FOUND, CALL]
    numbers = {"size": x.shape[dim], "step": x.strides[dim]}
    body = WRONG + "put_o(at_o, get_x(at_x + place_of(get_p(at_p)) * P.step));"
    return _checked(run, op, index, 2, x.shape[dim], run.each(arguments, walk, body, numbers, _place(op)))


def embedding(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """A gather of rows, by an index that is never negative. It is native so that int64 need not be computed with."""
    out, index, weight = operands
    if index.dtype.itemsize != 8:
        return None
    rows, (step, other) = weight.shape[0], weight.strides
    table = weight._replace(shape=(rows, *out.shape), strides=(step, *[0] * len(index.shape), other))
    index = index._replace(shape=(1, *out.shape), strides=(0, *index.strides, 0))
    out = out._replace(shape=(1, *out.shape), strides=(0, *out.strides))
    kernel: Any = gather(run, op, (out, table, index), {"dim": 0})
    return lambda o, o_at, p, p_at, x, x_at: kernel(o, o_at, x, x_at, p, p_at)


def _place(op: str) -> str:
    return PLACE if op != "embedding" else PLACE.replace("P.size > 0u", "false")


def scatter(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    (out, index, src), dim, adds = (with_dims(o) for o in operands), attrs["dim"], op == "scatter_add"
    size, moved = out.shape[dim], kind(out) if adds else raw(out)
    # One order serves all lines along which the index does not change.
    alike = tuple([1 if d != dim and not index.strides[d] else s for d, s in enumerate(index.shape)])
    key = PLACE.replace("P.size", f"{size}u") + "fn key_at(at: u32) -> u32 { return place_of(get_x(at)); }\n"
    order, layout = ordered(run, index._replace(shape=alike), Tensor("x", raw(index)), dim, key)
    walk, numbers = _lines("opxr", dim, index.shape, out, index, src, layout)
    value = "b" if not adds else "a | b" if out.dtype.name == "bool" else "a + b"
    arguments: list[Any] = [Tensor("o", moved, True), Tensor("p", raw(index)), Tensor("x", moved), ORDER, FOUND, CALL]
    kernel = run.each(arguments, walk, WRONG + SCATTER.replace("VALUE", value), {**numbers, "size": size}, PLACE)
    return _checked(run, op, index, 1, size, lambda *args: kernel(*args[:6], order(*args[2:4]), 0, *args[6:]))


def _checked(run: Runtime, op: str, index: Operand, at: int, size: int, kernel: Any) -> Kernel | None:
    """`kernel`, which takes the error record and the call's number at the end, behind a check of its index."""
    numbers = {"size": size, "op": CHECKED.index(op)}
    arguments = [Tensor("p", raw(index)), RECORD, CALL]
    shape = [size if step else min(size, 1) for size, step in zip(index.shape, index.strides)]
    check = run.each(arguments, Walk("p", shape, [index.strides]), CHECK, numbers, REPORT + _place(op))

    def call(*args: Any) -> None:
        device, number = args[0].device, next(run.calls)
        with device:  # another call between the two would write its number
            check(*args[2 * at : 2 * at + 2], device.record, 0, number)
            kernel(*args, device.record, 0, number)
            device.unchecked = True

    return call


def ordered(
    run: Runtime, x: Operand, given: Tensor, dim: int, key: str
) -> tuple[Callable[[Memory, int], Memory], Operand]:
    """A function from a tensor to the places in their line of its elements in order, and how these lie in memory.

    given: the tensor as an argument, x. key: WGSL of `key_at(at)`, whole numbers.
    """
    steps = tuple([prod(x.shape[d + 1 :]) * (size > 1) for d, size in enumerate(x.shape)])
    layout, words = x._replace(strides=steps), [Tensor("o", KINDS["bytes4"], True), Tensor("old", KINDS["bytes4"])]
    walk, numbers = _lines("xr", dim, x.shape, x, layout)
    widths = [1 << k for k in range(max(1, (x.shape[dim] - 1).bit_length()))]
    passes = [run.each([*words, given], walk, MERGE, {**numbers, "width": w}, key + NTH) for w in widths]

    def call(x: Memory, offset: int) -> Memory:
        order, other = (x.device.pool.take(4 * walk.count) for _ in range(2))
        for merge in passes:
            merge(other, 0, order, 0, x, offset)
            order, other = other, order
        return order

    return call, layout


def sort(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    values, indices, x = (with_dims(o) for o in operands)
    found, down = kind(x), "~" * attrs["descending"]
    of, value = ("i32", "key(get_x(at))") if found.is_floating else (found.computed, "get_x(at)")
    key = KEY * found.is_floating + f"fn key_at(at: u32) -> {of} {{ return {down}{value}; }}\n"
    order, layout = ordered(run, x, Tensor("x", found), attrs["dim"], key)
    walk, numbers = _lines("spxr", attrs["dim"], x.shape, values, indices, x, layout)
    emit = run.each(
        [Tensor("s", raw(x), True), Tensor("p", raw(indices), True), Tensor("x", raw(x)), ORDER], walk, EMIT, numbers
    )
    return lambda *args: emit(*args, order(*args[4:]), 0)
