"""gather, embedding, scatter, scatter_add and sort. What meets a wrong index writes nothing: a gather no element, a
scatter nothing in that line.

What is scattered to one place is added in its order, by one invocation, and rounded once: that of the first index which
names the place. The others come next in the order of the index, which is sorted.
"""

from typing import Any

from norch.backend import Kernel, Operand

from .devices import CHECKED, RECORD, Runtime, sequence
from .dtypes import KINDS, Attrs, Operands, kind, raw
from .reduction import KEY, contiguous, lines, with_dims
from .source import Tensor, Walk

# Indices are read as their two words, which takes no shader-int64.
PLACE = """const NONE = 0xffffffffu;
fn place_of(w: vec2<u32>) -> u32 { // which of P.size elements an index means, NONE if it is out of range
    if (w.y == 0u && w.x < P.size) { return w.x; }
    return select(NONE, P.size + w.x, w.y == 0xffffffffu && w.x >= 0u - P.size && P.size > 0u);
}
"""
REPORT = """fn report(w: vec2<u32>) {
    let first = P.record_ / 4u;
    if (atomicExchange(&record[first], 1u) == 0u) {
        atomicStore(&record[first + 1u], w.x); atomicStore(&record[first + 2u], w.y);
        atomicStore(&record[first + 3u], P.size); atomicStore(&record[first + 4u], P.op);
    }
}
"""
GATHER = """let w = get_p(at_p); let place = place_of(w);
    if (place == NONE) { report(w); return; }
    put_o(at_o, get_x(at_x + place * P.step));"""
SCATTER = """let wrong = get_p(at_p + get_order(at_r + (P.n - 1u) * P.r_step) * P.p_step); // if any is: none comes last
    if (place_of(wrong) == NONE) { report(wrong); return; }
    let mine = place_of(get_p(at_p + get_order(at_r + at_k * P.r_step) * P.p_step));
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
ORDER = Tensor("order", KINDS["bytes4"])


def gather(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """Also embedding: a gather of rows by an index that is never negative, which need not compute with int64."""
    if op == "embedding":
        (out, index, x), names, dim, place = operands, "opx", 0, PLACE.replace("P.size > 0u", "false")
        layouts: Any = [out.strides, (*[0] * len(index.shape), x.strides[1]), (*index.strides, 0)]
    else:
        (out, x, index), names, dim, place = (with_dims(o) for o in operands), "oxp", attrs["dim"], PLACE
        layouts = [out.strides, [s * (d != dim) for d, s in enumerate(x.strides)], index.strides]
    if index.dtype.itemsize != 8:
        return None
    arguments = [*[Tensor(m, raw(o), m == "o") for m, o in zip(names, operands)], RECORD]
    numbers = {"size": x.shape[dim], "step": x.strides[dim], "op": CHECKED.index(op)}
    return run.each(arguments, Walk("oxp", out.shape, layouts), GATHER, numbers, REPORT + place)


def scatter(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    (out, index, src), dim, adds = (with_dims(o) for o in operands), attrs["dim"], op == "scatter_add"
    size, moved = out.shape[dim], kind(out) if adds else raw(out)
    # One order serves all lines along which the index does not change.
    alike = tuple([1 if d != dim and not index.strides[d] else s for d, s in enumerate(index.shape)])
    key = PLACE.replace("P.size", f"{size}u") + "fn key_at(at: u32) -> u32 { return place_of(get_x(at)); }\n"
    steps, scratch, layout = ordered(run, index._replace(shape=alike), Tensor("x", raw(index)), dim, key)
    walk, numbers = lines("opxr", dim, index.shape, out, index, src, layout)
    body = SCATTER.replace("VALUE", "b" if not adds else "a | b" if out.dtype.name == "bool" else "a + b")
    arguments = [Tensor("o", moved, True), Tensor("p", raw(index)), Tensor("x", moved), ORDER, RECORD]
    numbers |= {"size": size, "op": CHECKED.index(op)}
    kernel = run.each(arguments, walk, body, numbers, REPORT + PLACE)
    return sequence(("o", "x", "src"), [*steps, (kernel, ("o", "x", "src", "order"))], scratch)


def ordered(run: Runtime, x: Operand, given: Tensor, dim: int, key: str) -> tuple[list[Any], dict[str, int], Operand]:
    """The steps of a sequence, and its scratch memory, from a tensor, `given` as x, to the places in their line of its
    elements, in the order of WGSL's `key_at(at)`, a whole number; and how these lie in memory, as "order"."""
    layout, words = contiguous(x), [Tensor("o", KINDS["bytes4"], True), Tensor("old", KINDS["bytes4"])]
    walk, numbers = lines("xr", dim, x.shape, x, layout)
    places, steps = ("order", "spare"), list[Any]()
    for k in reversed(range(max(1, (x.shape[dim] - 1).bit_length()))):
        merge = run.each([*words, given], walk, MERGE, {**numbers, "width": 1 << k}, key + NTH)
        steps, places = [(merge, (*places, "x")), *steps], places[::-1]
    return steps, dict.fromkeys(places, 4 * walk.count), layout


def sort(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Any:
    values, indices, x = (with_dims(o) for o in operands)
    found, down = kind(x), "~" * attrs["descending"]
    of, value = ("i32", "key(get_x(at))") if found.is_floating else (found.computed, "get_x(at)")
    key = KEY * found.is_floating + f"fn key_at(at: u32) -> {of} {{ return {down}{value}; }}\n"
    steps, scratch, layout = ordered(run, x, Tensor("x", found), attrs["dim"], key)
    walk, numbers = lines("spxr", attrs["dim"], x.shape, values, indices, x, layout)
    arguments = [Tensor(m, raw(o), m != "x") for m, o in zip("spx", operands)]
    emit = run.each([*arguments, ORDER], walk, EMIT, numbers)
    return sequence("spx", [*steps, (emit, (*"spx", "order"))], scratch)
