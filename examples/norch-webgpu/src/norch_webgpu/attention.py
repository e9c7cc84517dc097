"""scaled_dot_product_attention and its gradient, some queries at a time: there is never more than a part of the matrix
of scores. Products make a part, a kernel its weights, products what comes of them; the gradient makes them again.
"""

import itertools
from math import prod
from struct import pack, unpack
from typing import Any

from norch.backend import Kernel, Operand

from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands, kind
from .matmul import Matrix, product
from .products import multiply
from .source import WIDTH, Tensor, Walk, main

SCORES = 1 << 23
"""So many at once, of so many queries of a head: later keys than a part's are left out where attention is causal."""
QUERIES = 512

FLOAT = KINDS["float32"]
Step = tuple[Any, list[tuple[str, int]]]
"""A kernel, and the names of its arguments with where in them it begins."""
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


def attention(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """Outputs out, or the gradients of query, key and value; then that of out, query, key, value, and a mask if any."""
    if not all(prod(o.shape) for o in operands):
        return None
    is_grad, batch = op.endswith("_grad"), operands[0].shape[:-2]
    names = ["dq", "dk", "dv", "o", "q", "k", "v", "m"] if is_grad else ["o", "q", "k", "v", "m"]
    given, first = dict(zip(names, operands)), "s = q k; d = o v" if is_grad else "s = q k"
    queries, keys, heads = given["q"].shape[-2], given["k"].shape[-2], prod(batch)
    rows = min(queries, QUERIES, max(SCORES // keys, 1))
    if is_grad and kind(given["q"]).per_word > 1:
        rows = queries  # lest the gradients of key and value be rounded more than once
    many = min(heads, max(SCORES // (rows * keys), 1))
    second = "o = s v'" if not is_grad else "dq = d k'; dk = d' q'; dv = s' o'"
    steps: list[Step] = []
    for head, row in itertools.product(range(0, heads, many), reversed(range(0, queries, rows))):
        count, size = min(many, heads - head), min(rows, queries - row)
        is_last = row + size == queries
        seen = min(keys, row + size) if attrs["is_causal"] and not is_last else keys
        scores = Matrix(FLOAT, _contiguous((*batch, size * seen))[:-1], seen, 1, size, seen)
        found = {"s": (scores, 0), "d": (scores, 0)}
        for name, operand in given.items():
            x = _lines(operand, batch, head, size if name in ("q", "o", "dq") else seen)
            found[name] = (x, row * x.line if name in ("q", "o", "dq") else 0)
        steps += _products(run, batch, count, found, first, False)
        steps.append(_weights(run, batch, count, size, seen, head, row, attrs, given.get("m"), is_grad))
        steps += _products(run, batch, count, found, second, not is_last)
    scratch = ("s", "d") if is_grad else ("s",)

    def call(*args: Any) -> None:
        places = dict(zip(names, zip(args[::2], args[1::2])))
        places |= {name: (args[0].device.pool.take(4 * many * rows * keys), 0) for name in scratch}
        for step, takes in steps:
            step(*[x for name, at in takes for x in (places[name][0], places[name][1] + at)])

    return None if any(step is None for step, _ in steps) else call


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[d + 1 :]) for d in range(len(shape)))


def _products(run: Runtime, batch: Any, count: int, found: Any, text: str, adds: bool) -> list[Step]:
    """Products, such as "dq = d k'; dk = d' q'", some of them turned. `adds`: to the gradients of key and value."""
    steps: list[Step] = []
    for names in (line.replace("=", "").split() for line in text.split("; ")):
        out, a, b = (found[x.strip("'")][0].turned if x.endswith("'") else found[x][0] for x in names)
        p = product(batch, out, a, b, count)._replace(adds=adds and names[0][:2] in ("dk", "dv"))
        steps.append((multiply(run, p), [(x.strip("'"), found[x.strip("'")][1]) for x in names]))
    return steps


def _lines(o: Operand, batch: tuple[int, ...], head: int, lines: int) -> Matrix:
    """The first `lines` rows of an operand, whose batch dims broadcast to `batch`, from a head on."""
    missing = len(batch) + 2 - len(o.shape)
    steps = [0] * missing + [0 if size == 1 else step for size, step in zip(o.shape, o.strides)]
    return Matrix(kind(o), tuple(steps[:-2]), steps[-2], steps[-1], lines, o.shape[-1], head)


def _weights(
    run: Runtime,
    batch: Any,
    count: int,
    rows: int,
    keys: int,
    head: int,
    row: int,
    attrs: Attrs,
    mask: Any,
    is_grad: bool,
) -> Step:
    """Of scores `s` the weights, and of their gradient `d` that of the scores."""
    numbers = {"rows": rows, "count": rows * count, "keys": keys, "first": head, "row": row}
    numbers["scale"] = unpack("I", pack("f", attrs["scale"]))[0]
    score, place, source, names = "get_s(at + j) * scale", "", ROWS, ["s", "d"] if is_grad else ["s"]
    arguments = [Tensor(name, FLOAT, True) for name in names]
    if attrs["is_causal"]:
        score = f"select({score}, -inf(), j > row + P.row)"
    elif mask:
        m = _lines(mask, batch, head, 0)
        walk = Walk("m", batch, [m.batch], "u", bake=False)
        numbers |= {"m_line": m.line, "m_other": m.other, **walk.numbers}
        source += f"fn base_m(u: u32) -> u32 {{ {walk.code()} return at_m; }}\n"
        place, get = "let at_m = base_m(head + P.first) + (row + P.row) * P.m_line;", "get_m(at_m + j * P.m_other)"
        score = f"select(-inf(), {score}, {get} != 0)" if m.kind.name == "bool" else f"{score} + {get}"
        arguments.append(Tensor("m", m.kind))
        names.append("m")
    end = (BACKWARD if is_grad else FORWARD).format(width=WIDTH)
    source += main(WEIGHTS.format(mask=place, score=score, end=end, width=WIDTH))
    return run.kernel(arguments, source, rows * count, numbers, trusted=True), [(name, 0) for name in names]
