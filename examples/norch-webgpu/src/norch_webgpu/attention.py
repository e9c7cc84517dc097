"""scaled_dot_product_attention and its gradient, some queries at a time: there is never more than a part of the matrix
of scores. Products make a part, softmax its weights, products what comes of them; the gradient makes them again.
"""

from math import prod
from typing import Any

from norch import float32
from norch.backend import Kernel, Operand

from .devices import Runtime, sequence
from .dtypes import Attrs, Operands, kind
from .elementwise import elementwise
from .norms import softmax
from .products import multiply, product, turned
from .reduction import contiguous

SCORES = 1 << 24
"""So many at once, of so many queries: later keys than a part's are left out where attention is causal."""
QUERIES = 512
# What is computed of a part, from the rest; a ' is for the transposed matrices.
FORWARD = "mul s q k; weights s s; mul o s v'"
BACKWARD = "mul s q k; weights s s; mul d g v; softmax_grad d d s; mul dq d k'; mul dk d' q'; mul dv s' g'"


def attention(run: Runtime, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
    """Outputs out, or the gradients of query, key and value; then that of out, query, key, value, and a mask if any."""
    if not all(prod(o.shape) for o in operands):
        return None
    is_grad, batch = op.endswith("_grad"), operands[0].shape[:-2]
    names = ["dq", "dk", "dv", "g", "q", "k", "v", "m"] if is_grad else ["o", "q", "k", "v", "m"]
    given = {}
    for name, o in zip(names, operands):  # batch dims are expanded, a mask's rows and columns too, as strides can
        steps = [step * (size > 1) for size, step in zip(o.shape, o.strides)]
        layout = (*batch, *o.shape[-2:]), (*[0] * (len(batch) + 2 - len(steps)), *steps)
        given[name] = Operand(o.dtype, *layout)
    queries, keys = given["q"].shape[-2], given["k"].shape[-2]
    rows = min(queries, QUERIES, max(SCORES // (prod(batch) * keys), 1))
    calls: list[tuple[Any, list[Any]]] = []  # kernels, each with its arguments and where in them it begins
    scratch, last_calls = dict.fromkeys("sd"[: 1 + is_grad], 4 * prod(batch) * rows * keys), []
    if is_grad and rows < queries and kind(given["k"]).per_word > 1:
        for name in ("dk", "dv"):  # summed in float32, lest they be rounded more than once
            out, given[name] = given[name], contiguous(given[name]._replace(dtype=float32))
            scratch[f"{name} sum"] = 4 * prod(out.shape)
            last_calls.append((elementwise(run, "copy", (out, given[name]), {}), [name, f"{name} sum"]))
    for row in reversed(range(0, queries, rows)):
        size = min(rows, queries - row)
        is_last = row + size == queries
        seen = min(keys, row + size) if attrs["is_causal"] and not is_last else keys
        shape = (*batch, size, seen)
        scores = contiguous(Operand(float32, shape, shape))
        part, starts = {"s": scores, "d": scores}, {}
        for name, o in given.items():
            lines, starts[name] = (size, row * o.strides[-2]) if name in ("q", "o", "g", "dq", "m") else (seen, 0)
            last = seen if name == "m" else o.shape[-1]
            part[name] = o._replace(shape=(*batch, lines, last))

        scaled, masks = f"v * f32({float(attrs['scale'])!r})", [part["m"]] if "m" in part else []
        score = f"select({scaled}, -inf(), j > i + P.row)" if attrs["is_causal"] else scaled
        for m in masks:
            get = "get_m(place_m(base_m(at / P.m / P.n), i, j))"
            score = f"select(-inf(), {score}, {get} != 0)" if m.dtype.name == "bool" else f"{score} + {get}"
        results = {"s": score, "d": scaled} | ({} if is_last else dict.fromkeys(("dk", "dv"), "v + get_o(to)"))
        for line in (BACKWARD if is_grad else FORWARD).split("; "):
            does, *takes = line.split()
            sides = [turned(part[name[:-1]]) if name[-1] == "'" else part[name] for name in takes]
            takes = [name.strip("'") for name in takes]
            if does == "mul":
                p = product(*sides, *masks)
                p = p._replace(numbers={**p.numbers, "row": row}, result=results.get(takes[0], "v"))
                kernel, takes = multiply(run, p), takes + ["m"] * len(masks)
            else:
                kernel = softmax(run, does, sides, {"dim": -1})
            takes = [f"{name} sum" if f"{name} sum" in scratch else name for name in takes]
            calls.append((kernel, [(name, starts.get(name, 0)) for name in takes]))
    return sequence(list(given), calls + last_calls, scratch)
