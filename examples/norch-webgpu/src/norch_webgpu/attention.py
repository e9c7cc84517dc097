"""scaled_dot_product_attention and its gradient, some queries at a time: there is never more than a part of the matrix
of scores. Products make a part, a kernel its weights, products what comes of them; the gradient makes the weights again.
"""

import itertools
from math import prod
from struct import pack, unpack
from typing import Any

from norch import float32
from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands, kind
from .elementwise import moved
from .matmul import Matrix, product
from .products import multiply
from .source import WIDTH, Tensor, Walk, main

SCORES = 1 << 23
"""So many at once, of so many queries of a head: later keys than a part's are left out where attention is causal."""
QUERIES = 512

FLOAT = KINDS["float32"]
ROWS = f"""var<workgroup> shared_part: array<f32, {WIDTH}>;
fn together(mine: f32, l: u32, is_sum: bool) -> f32 {{
    workgroupBarrier(); shared_part[l] = mine; workgroupBarrier();
    for (var half = {WIDTH // 2}u; half > 0u; half /= 2u) {{
        if (l < half) {{
            let a = shared_part[l]; let b = shared_part[l + half];
            shared_part[l] = select(max(a, b), a + b, is_sum);
        }}
        workgroupBarrier();
    }}
    return shared_part[0];
}}
fn weight(x: f32) -> f32 {{ return select(exp_f32(x), 0f, x < -104f); }}
"""
WEIGHTS = """if (group >= P.count) {{ return; }}
    let row = group % P.rows; let head = group / P.rows; let at = group * P.keys; let scale = bitcast<f32>(P.scale);
    {mask}
    var most = -3e38f;
    for (var j = l; j < P.keys; j += {width}u) {{
        let x = {score};
        put_s(at + j, x); most = max(most, x);
    }}
    most = together(most, l, false);
    var sum = 0f;
    for (var j = l; j < P.keys; j += {width}u) {{ sum += weight(get_s(at + j) - most); }}
    sum = together(sum, l, true);
    let factor = select(1f / sum, 0f, sum == 0f); // 0 for a query that may attend to nothing
    {end}"""
FORWARD = "for (var j = l; j < P.keys; j += {width}u) {{ put_s(at + j, weight(get_s(at + j) - most) * factor); }}"
BACKWARD = """var dot = 0f;
    for (var j = l; j < P.keys; j += {width}u) {{
        let p = weight(get_s(at + j) - most) * factor; put_s(at + j, p); dot += p * get_d(at + j);
    }}
    dot = together(dot, l, true);
    for (var j = l; j < P.keys; j += {width}u) {{ put_d(at + j, get_s(at + j) * (get_d(at + j) - dot) * scale); }}"""


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def attention(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """Outputs out, or the gradients of query, key and value; then that of out, query, key, value, and the mask if any."""
    is_grad, batch = op.endswith("_grad"), operands[0].shape[:-2]
    outs, (query, key, value, *mask) = (operands[:4], operands[4:]) if is_grad else (operands[:1], operands[1:])
    if not all(prod(o.shape) for o in operands):
        return None
    names = ["dq", "dk", "dv", "o", "q", "k", "v", "m"] if is_grad else ["o", "q", "k", "v", "m"]
    queries, keys, heads = query.shape[-2], key.shape[-2], prod(batch)
    rows = min(queries, QUERIES, max(SCORES // keys, 1))
    many, most = max(SCORES // (rows * keys), 1), 0
    sums = [Operand(float32, o.shape, contiguous(o.shape)) for o in outs[1:3]]
    rounded = is_grad and rows < queries and kind(query).per_word > 1  # sums of parts, which are rounded once
    steps: list[tuple[Kernel | None, list[tuple[str, int]]]] = []
    for head, row in itertools.product(range(0, heads, many), reversed(range(0, queries, rows))):
        count, size = min(many, heads - head), min(rows, queries - row)
        begins, seen = row + size == queries, keys
        if attrs["is_causal"] and not begins:
            seen = min(keys, row + size)
        most = max(most, count * size * seen)
        scores = Matrix(FLOAT, contiguous((*batch, size * seen))[:-1], seen, 1, size, seen)
        q, o, dq = (_lines(x, batch, head, size) for x in (query, outs[-1], outs[0]))
        k, v = (_lines(x, batch, head, seen) for x in (key, value))
        at_q, at_o, at_dq = (row * x.line for x in (q, o, dq))

        def multiplied(out: str, a: str, b: str, *of: Any, adds: bool = False) -> None:
            p = product(batch, *of, count=count)._replace(adds=adds)
            places = {"q": at_q, "o": at_o, "dq": at_dq}
            steps.append((multiply(run, p), [(x, places.get(x, 0)) for x in (out, a, b)]))

        multiplied("s", "q", "k", scores, q, k)
        if is_grad:
            multiplied("d", "o", "v", scores, o, v)
        steps.append(_weights(run, batch, count, size, seen, head, row, attrs, mask, is_grad))
        if not is_grad:
            multiplied("o", "s", "v", o, scores, v.turned)
            continue
        multiplied("dq", "d", "k", dq, scores, k.turned)
        for out, a, b, of, to, total in (("dk", "d", "q", q, outs[1], sums[0]), ("dv", "s", "o", o, outs[2], sums[1])):
            into = _lines(total if rounded else to, batch, head, seen)
            multiplied(f"{out}_sum" if rounded else out, a, b, into, scores.turned, of.turned, adds=not begins)
    if rounded:
        steps += [(moved(run, "copy", pair, {}), [(n, 0), (f"{n}_sum", 0)]) for n, pair in zip(("dk", "dv"), zip(outs[1:], sums))]
    room = {"s": most, "d": most} | ({"dk_sum": prod(outs[1].shape), "dv_sum": prod(outs[2].shape)} if rounded else {})
    return None if any(step is None for step, _ in steps) else _sequence(names, room, steps)


def _sequence(names: list[str], room: dict[str, int], steps: Any) -> Kernel:
    """Kernels one after the other. `room`: scratch memory, in numbers of 4 bytes."""
    used = {name for _, takes in steps for name, _ in takes}

    def call(*args: Any) -> None:
        pool = args[0].device.pool
        found = dict(zip(names, zip(args[::2], args[1::2])))
        found |= {name: (pool.take(4 * size), 0) for name, size in room.items() if name in used}
        for step, takes in steps:
            step(*[x for name, at in takes for x in (found[name][0], found[name][1] + at)])

    return call


def _lines(o: Operand, batch: tuple[int, ...], head: int, lines: int) -> Matrix:
    """The first `lines` rows of an operand, whose batch dims broadcast to `batch`, from a head on."""
    missing = len(batch) + 2 - len(o.shape)
    steps = [0] * missing + [0 if size == 1 else step for size, step in zip(o.shape[:-2], o.strides)]
    return Matrix(kind(o), tuple(steps), *o.strides[-2:], lines, o.shape[-1], head)


def _weights(
    run: Runtime, batch: Any, count: int, rows: int, keys: int, head: int, row: int, attrs: Attrs, mask: Any, is_grad: bool
) -> tuple[Kernel | None, list[tuple[str, int]]]:
    """Of scores `s` the weights, and of what they are worth, `d`, the gradient of the scores."""
    numbers = {"rows": rows, "count": rows * count, "keys": keys, "first": head, "row": row}
    numbers["scale"] = unpack("I", pack("f", attrs["scale"]))[0]
    score, place, source, names = "get_s(at + j) * scale", "", ROWS, ["s", "d"] if is_grad else ["s"]
    arguments = [Tensor(name, FLOAT, True) for name in names]
    if attrs["is_causal"]:
        score = f"select({score}, -inf(), j > row + P.row)"
    elif mask:
        m = _lines(mask[0], batch, head, 0)
        line, other = (0 if size == 1 else step for size, step in zip(mask[0].shape[-2:], mask[0].strides[-2:]))
        walk = Walk("m", batch, [m.batch], "u", bake=False)
        numbers |= {"m_line": line, "m_other": other, **walk.numbers}
        source += f"fn base_m(u: u32) -> u32 {{ {walk.code()} return at_m; }}\n"
        place = "let at_m = base_m(head + P.first) + (row + P.row) * P.m_line;"
        get = "get_m(at_m + j * P.m_other)"
        score = f"select(-inf(), {score}, {get} != 0)" if mask[0].dtype.name == "bool" else f"{score} + {get}"
        arguments.append(Tensor("m", m.kind))
        names.append("m")
    end = (BACKWARD if is_grad else FORWARD).format(width=WIDTH)
    source += main(WEIGHTS.format(mask=place, score=score, end=end, width=WIDTH))
    return run.kernel(arguments, source, rows * count, numbers, trusted=True), [(name, 0) for name in names]
