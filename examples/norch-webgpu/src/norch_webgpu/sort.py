"""sort: blocks are sorted by counting, then merged two by two. It is the order that is sorted, not the values."""

from collections.abc import Callable
from typing import Any

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import KINDS, Attrs, Kind, Operands, kind, raw
from .memory import Memory
from .reduction import GROUP, across, types, with_dims
from .source import Tensor, main

# Of equals that with the lower place is first. NaN is larger than all else.
LESS = """fn less(a: T, b: T) -> bool {{ return {0} || (is_nan({1}) && !is_nan({2})); }}
fn key_of(j: u32, at_x: u32) -> T {{ return key(at_x + j * P.x_step); }}
"""
BLOCKS = """let i = group / P.blocks; let start = group % P.blocks * 256u; let j = start + l;
    {line}
    if (j < P.n) {{ keys[l] = key_of(j, at_x); }}
    workgroupBarrier();
    if (j >= P.n) {{ return; }}
    let mine = keys[l]; let last = min(256u, P.n - start);
    var before = 0u;
    for (var m = 0u; m < last; m += 1u) {{ before += u32(less(keys[m], mine) || (m < l && !less(mine, keys[m]))); }}
    put_o(i * P.n + start + before, j);"""
MERGE = """let i = g / P.n; let j = g % P.n;
    if (i >= P.i_count) {{ return; }}
    {line}
    let start = j / P.width * P.width; let pair = j / P.width / 2u * 2u * P.width;
    let right = start != pair; // which of the two runs this element is in
    let other = min(select(start + P.width, pair, right), P.n);
    var low = other; var end = min(other + P.width, P.n);
    let place = get_old(i * P.n + j); let mine = key_of(place, at_x);
    while (low < end) {{ // how many of the other run come before: equals do if they are to the left
        let middle = (low + end) / 2u; let b = key_of(get_old(i * P.n + middle), at_x);
        if ((right && !less(mine, b)) || (!right && less(b, mine))) {{ low = middle + 1u; }} else {{ end = middle; }}
    }}
    put_o(i * P.n + pair + (j - start) + (low - other), place);"""
EMIT = """let i = g / P.n; let j = g % P.n;
    if (i >= P.i_count) {{ return; }}
    {line}
    let place = get_order(i * P.n + j);
    put_s(at_s + j * P.s_step, get_x(at_x + place * P.x_step));
    put_p(at_p + j * P.p_step, vec2<u32>(place, 0u));"""


def ordered(
    run: Runtime, x: Operand, found: Kind, dim: int, key: str, descending: bool = False
) -> Callable[[Memory, int], Memory]:
    """A function from a tensor to the places of its elements in order, a line of `dim` after another.

    key: WGSL of T, `is_nan` of it, and `key(at)`.
    """
    lines, n, word = across("x", dim, x), x.shape[dim], KINDS["bytes4"]
    text = key + LESS.format(*("b < a", "a", "b") if descending else ("a < b", "b", "a"))
    numbers = {**lines.numbers, "n": n, "x_step": x.strides[dim], "blocks": -(-n // GROUP)}
    to, given = Tensor("o", word, True), Tensor("x", found)
    body = f"var<workgroup> keys: array<T, {GROUP}>;\n" + main(BLOCKS.format(line=lines.code()), GROUP)
    sort: Any = run.kernel([to, given], text + body, lines.count * numbers["blocks"], numbers)
    body = main(MERGE.format(line=lines.code()))
    passes: list[Any] = []
    width = GROUP
    while width < n:
        arguments = [to, Tensor("old", word), given]
        passes.append(run.kernel(arguments, text + body, -(-n * lines.count // 64), {**numbers, "width": width}))
        width *= 2

    def call(x: Memory, offset: int) -> Memory:
        order, other = (x.device.pool.take(4 * n * lines.count) for _ in range(2))
        sort(order, 0, x, offset)
        for merge in passes:
            merge(other, 0, order, 0, x, offset)
            order, other = other, order
        return order

    return call


def sort(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    values, indices, x = (with_dims(o) for o in operands)
    dim, n, found = attrs["dim"], x.shape[attrs["dim"]], kind(x)
    key = types(found.computed) + "fn key(at: u32) -> T { return get_x(at); }\n"
    order, lines = ordered(run, x, found, dim, key, attrs["descending"]), across("spx", dim, values, indices, x)
    steps = {f"{name}_step": o.strides[dim] for name, o in zip("spx", (values, indices, x))}
    arguments = [Tensor("s", raw(x), True), Tensor("p", raw(indices), True), Tensor("x", raw(x))]
    arguments.append(Tensor("order", KINDS["bytes4"]))
    text, groups = main(EMIT.format(line=lines.code())), -(-n * lines.count // 64)
    emit: Any = run.kernel(arguments, text, groups, {**lines.numbers, "n": n, **steps})

    def call(*args: Any) -> None:
        emit(*args, order(*args[4:]), 0)

    return call
