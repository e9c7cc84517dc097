"""Lists of calls made by hand, and what a backend would do with them, by NumPy: what the tests of fusion share."""

from __future__ import annotations

import numpy as np

import norch
from norch.backend import Fed, Operand, Place, parse_steps
from norch.capturing import fusion
from norch.capturing.calls import Call

DEVICE = norch.device("cpu")
NUMPY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum, "neg": np.negative, "lt": np.less,
    "where": np.where, "copy": np.copy, "fill": np.copy, "relu": lambda x: np.where(x <= 0, x.dtype.type(0), x),
    "leaky_relu": lambda x, negative_slope: np.where(x > 0, x, x * x.dtype.type(negative_slope)),
    "floor_divide": np.floor_divide,
}  # fmt: skip

REDUCTIONS = {"sum": np.sum, "amax": np.max}


def view(memory, operand, place, offset):
    """The elements of an operand, as an array on the place's memory."""
    kind = np.dtype(operand.dtype.name)
    strides = [s * kind.itemsize for s in operand.strides]
    return np.ndarray(operand.shape, kind, memory[place].data, offset * kind.itemsize, strides)


def located(call, numbers):
    """Operands with their arguments, numbers put in."""
    arguments, out = list(call.arguments), []
    for operand in call.operands:
        count = 1 if operand.is_scalar else 2
        given, arguments = arguments[:count], arguments[count:]
        out.append((operand, [numbers[a] if type(a) is Fed else a for a in given]))
    assert not arguments
    return out


def read(memory, operand, given):
    return np.dtype(operand.dtype.name).type(given[0]) if operand.is_scalar else view(memory, operand, *given).copy()


def execute(call, memory, numbers):
    """What a backend would do."""
    parts = located(call, numbers) if call.operands else []
    if call.op == "matmul":
        out, a, b = [view(memory, operand, *given) for operand, given in parts]
        out[...] = a @ b
    elif call.op == "copy_bytes":
        out, at, source, start, count = call.arguments
        memory[out][at : at + count] = memory[source][start : start + count]
    elif call.op == "opaque":  # changes what it is given
        for operand, given in parts:
            view(memory, operand, *given)[...] += 1
    elif call.op in ("fused", "fused_rows"):
        count = len(call.attrs["results"])
        values = [read(memory, *part) if i >= count else None for i, part in enumerate(parts)]
        steps = []
        shape = max(operand.shape for operand, _ in parts if not operand.is_scalar)
        for step in parse_steps(call.attrs["steps"]):
            given = [(values if r[0] == "o" else steps)[int(r[1:])] for r in step.reads]
            if step.op in REDUCTIONS:
                steps.append(REDUCTIONS[step.op](given[0], axis=-1, keepdims=True))
                continue
            tensors = [v for v in given if v.ndim]
            made = max(v.shape for v in tensors) if call.op == "fused_rows" and tensors else shape
            steps.append(compute(step.op, step.dtype, given, step.attrs, made))
        for (operand, given), result in zip(parts, call.attrs["results"], strict=False):
            assert operand.dtype.name == steps[result].dtype.name
            view(memory, operand, *given)[...] = steps[result]
    elif call.op in REDUCTIONS:
        (out, at), x = parts[0], read(memory, *parts[1])
        view(memory, out, *at)[...] = REDUCTIONS[call.op](x, axis=call.attrs["dims"], keepdims=True)
    else:
        given = [read(memory, *part) for part in parts[1:]]
        view(memory, parts[0][0], *parts[0][1])[...] = compute(
            call.op, parts[0][0].dtype.name, given, call.attrs, call.operands[0].shape
        )


def compute(op, dtype, given, attrs, shape):
    assert all(v is not None for v in given)
    return np.broadcast_to(NUMPY[op](*given, **attrs), shape).astype(dtype)


def check_aliases(call):
    """Outputs are apart, and each is exactly an input or apart from it."""
    parts = located(call, [0.0] * 9)
    spans = []
    for operand, given in parts:
        if not operand.is_scalar:
            place, offset = given
            size = operand.dtype.itemsize
            end = offset + 1 + sum((n - 1) * s for n, s in zip(operand.shape, operand.strides, strict=True))
            spans.append((place, offset * size, end * size, operand))
    outputs = len(call.attrs["results"])
    for i, (place, start, end, operand) in enumerate(spans[:outputs]):
        for j, (other, first, last, there) in enumerate(spans):
            if i != j and place == other and start < last and first < end:
                assert j >= outputs
                assert (start, operand) == (first, there)


def fused(calls, temporaries, memory, numbers=(), monkeypatch=None):
    """The fused list, after it was found to do what `calls` do to all but temporaries."""
    found = fusion.fuse(calls, temporaries)
    apart, together = [{k: v.copy() for k, v in memory.items()} for _ in range(2)]
    for call in calls:
        execute(call, apart, numbers)
    for call in found:
        if call.op in ("fused", "fused_rows"):
            check_aliases(call)
        execute(call, together, numbers)
    for place in memory:
        if place not in temporaries:
            assert (apart[place] == together[place]).all(), place
    return found


def tensor(shape=(4, 6), dtype=norch.float32, strides=None):
    return Operand(dtype, shape, strides or tuple(np.empty(shape, "u1").strides))


T, S = tensor(), Operand(norch.float32, (), (), True)
BYTES = 96


def call(op, *parts, attrs=None, line="step.py:1"):
    """parts: place, (place, offset), (operand, place, offset), or a float or Fed for a scalar."""
    operands, arguments = [], []
    for part in parts:
        if isinstance(part, float | Fed):
            operands.append(S)
            arguments.append(part)
            continue
        part = part if isinstance(part, tuple) else (part, 0)
        operand, place, offset = part if len(part) == 3 else (T, *part)
        operands.append(operand)
        arguments += [Place(place), offset]
    return Call(op, tuple(operands), attrs or {}, None, tuple(arguments), DEVICE, line)


def memory(places, nbytes=4 * BYTES):
    rng = np.random.default_rng(0)
    return {p: rng.standard_normal(nbytes // 4).astype(np.float32).view(np.uint8) for p in range(places)}


def ops(calls):
    return [c.op for c in calls]
