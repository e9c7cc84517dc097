"""sort: runs of one element are merged two by two. It is the order that is sorted, not the values."""

from collections.abc import Callable
from typing import Any

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands, kind, raw
from .memory import Memory
from .reduction import KEY, across, with_dims
from .source import Tensor, main

# Of equals that with the lower place is first.
MERGE = """let i = g / P.n; let j = g % P.n;
    if (i >= P.i_count) {{ return; }}
    {line}
    let start = j / P.width * P.width; let pair = j / P.width / 2u * 2u * P.width;
    let right = start != pair; // which of the two runs this element is in
    let other = min(select(start + P.width, pair, right), P.n);
    var low = other; var end = min(other + P.width, P.n);
    let place = nth(i, j); let mine = key_of(place, at_x);
    while (low < end) {{ // how many of the other run come before: equals do if they are to the left
        let middle = (low + end) / 2u; let b = key_of(nth(i, middle), at_x);
        if (less(b, mine) || (right && b == mine)) {{ low = middle + 1u; }} else {{ end = middle; }}
    }}
    put_o(i * P.n + pair + (j - start) + (low - other), place);"""
EMIT = """let i = g / P.n; let j = g % P.n;
    if (i >= P.i_count) {{ return; }}
    {line}
    let place = get_order(i * P.n + j);
    put_s(at_s + j * P.s_step, get_x(at_x + place * P.x_step));
    put_p(at_p + j * P.p_step, vec2<u32>(place, 0u));"""


def ordered(
    run: Runtime, x: Operand, given: Tensor, dim: int, computed: str, key: str, sign: str = "<"
) -> Callable[[Memory, int], Memory]:
    """A function from a tensor to the places of its elements in order, a line of `dim` after another.

    given: the tensor as an argument, x. key: WGSL of `key_at(at)`, whole numbers of the type `computed`.
    """
    lines, n, word = across("x", dim, x), x.shape[dim], KINDS["bytes4"]
    source = f"""{key}
    fn less(a: {computed}, b: {computed}) -> bool {{ return a {sign} b; }}
    fn key_of(j: u32, at_x: u32) -> {computed} {{ return key_at(at_x + j * P.x_step); }}
    fn nth(i: u32, j: u32) -> u32 {{ if (P.width == 1u) {{ return j; }} return get_old(i * P.n + j); }}
    """ + main(MERGE.format(line=lines.code()))
    numbers, arguments = (
        {**lines.numbers, "n": n, "x_step": x.strides[dim]},
        [Tensor("o", word, True), Tensor("old", word)],
    )
    widths, groups = [1 << k for k in range(max(1, (n - 1).bit_length()))], -(-n * lines.count // 64)
    passes: list[Any] = [run.kernel([*arguments, given], source, groups, {**numbers, "width": w}) for w in widths]

    def call(x: Memory, offset: int) -> Memory:
        order, other = (x.device.pool.take(4 * n * lines.count) for _ in range(2))
        for merge in passes:
            merge(other, 0, order, 0, x, offset)
            order, other = other, order
        return order

    return call


def sort(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    values, indices, x = (with_dims(o) for o in operands)
    dim, n, found = attrs["dim"], x.shape[attrs["dim"]], kind(x)
    computed, value = ("i32", "key(get_x(at))") if found.is_floating else (found.computed, "get_x(at)")
    key = KEY * found.is_floating + f"fn key_at(at: u32) -> {computed} {{ return {value}; }}\n"
    order = ordered(run, x, Tensor("x", found), dim, computed, key, ">" if attrs["descending"] else "<")
    lines = across("spx", dim, values, indices, x)
    steps = {f"{name}_step": o.strides[dim] for name, o in zip("spx", (values, indices, x))}
    arguments = [Tensor("s", raw(x), True), Tensor("p", raw(indices), True), Tensor("x", raw(x))]
    arguments.append(Tensor("order", KINDS["bytes4"]))
    text, groups = main(EMIT.format(line=lines.code())), -(-n * lines.count // 64)
    emit: Any = run.kernel(arguments, text, groups, {**lines.numbers, "n": n, **steps})
    return lambda *args: emit(*args, order(*args[4:]), 0)
