"""fused: programs of random steps, dtypes and layouts give the bits of the separate kernels."""

import random

import numpy as np
import pytest

import norch
from norch.backend import Operand, contract

BACKEND = norch.device("cpu").backend
FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
OTHERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
SHAPES = [(), (1,), (7,), (5, 3), (40, 33), (3, 300), (2, 3, 700), (70, 65), (2, 5, 4, 6), (9000,)]

UNARY_OF_FLOATS = ("exp", "sigmoid", "tanh", "erf", "sin", "cos", "log1p", "neg", "abs", "sign", "floor", "relu", "silu")
BINARY_OF_FLOATS = ("add", "sub", "mul", "div", "maximum", "minimum", "relu_grad", "sigmoid_grad", "silu_grad")
BINARY_OF_INTEGERS = ("add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_xor")
WITH_ATTRS = (
    ("gelu", 1, {"approximate": "none"}),
    ("gelu", 1, {"approximate": "tanh"}),
    ("gelu_grad", 2, {"approximate": "tanh"}),
    ("leaky_relu", 1, {"negative_slope": 0.1}),
    ("elu", 1, {"alpha": 1.5, "scale": 1.0, "input_scale": 0.5}),
    ("hardtanh_grad", 2, {"min_val": -1, "max_val": 0.5}),
)


def dtype(name):
    return getattr(norch, name)


class Operands:
    """Buffers in random layouts, each with the operand that says how it lies."""

    def __init__(self, draw, shape):
        self.draw, self.shape = draw, shape
        self.rng = np.random.default_rng(draw.randrange(1 << 30))

    def strides(self, broadcasts):
        dims = list(range(len(self.shape)))
        kind = self.draw.choice(("dense", "dense", "permuted", "stepped", "pitched", "broadcast", "row", "column"))
        if kind == "permuted":
            self.draw.shuffle(dims)
        step = 3 if kind == "stepped" else 1
        strides = [0] * len(dims)
        for d in reversed(dims):
            strides[d] = step
            step = step * self.shape[d] + (2 if kind == "pitched" else 0)
        if broadcasts and dims:
            for d in dims:
                if (kind == "row" and d != dims[-1]) or (kind == "column" and d == dims[-1]):
                    strides[d] = 0
                if kind == "broadcast" and self.draw.random() < 0.5:
                    strides[d] = 0
        return tuple(strides)

    def tensor(self, name, *, broadcasts=True):
        """An operand, its buffer and offset, filled with numbers."""
        strides = self.strides(broadcasts)
        offset = self.draw.choice((0, 0, 3))
        count = offset + 1 + sum((n - 1) * s for n, s in zip(self.shape, strides, strict=True))
        if name == "bool":
            values = self.rng.integers(0, 2, count)
        elif name in FLOATS:
            values = self.rng.standard_normal(count) * 3
            values[self.rng.random(count) < 0.02] = self.draw.choice((0.0, -0.0, np.inf, -np.inf))
        else:
            values = self.rng.integers(0, 9, count)
        filled = norch.tensor(values.tolist(), dtype=dtype(name))
        return Operand(dtype(name), self.shape, strides), (filled.buffer, offset)

    def scalar(self, name):
        value = True if name == "bool" else self.draw.randrange(1, 5)
        return Operand(dtype(name), (), (), True), (value + 0.3 if name in FLOATS else value,)


def random_step(draw, earlier):
    """An op, its dtype, the dtypes of what it reads, its attributes. earlier: the dtypes that there are."""
    kind = draw.choice(("unary", "binary", "binary", "binary", "compare", "where", "cast", "attrs", "scaled", "integers"))
    floating = draw.choice([name for name in earlier if name in FLOATS] or ["float32"])
    if kind == "unary":
        return draw.choice(UNARY_OF_FLOATS), floating, (floating,), {}
    if kind == "binary":
        return draw.choice(BINARY_OF_FLOATS), floating, (floating, floating), {}
    if kind == "compare":
        name = draw.choice(earlier)
        return draw.choice(contract.COMPARISON), "bool", (name, name), {}
    if kind == "where":
        name = draw.choice(earlier)
        return "where", name, ("bool", name, name), {}
    if kind == "cast":
        return "copy", draw.choice(FLOATS + OTHERS), (draw.choice(earlier),), {}
    if kind == "attrs":
        op, count, attrs = draw.choice(WITH_ATTRS)
        return op, floating, (floating,) * count, attrs
    if kind == "scaled":
        return draw.choice(("axpy", "clamp")), floating, (floating, floating, f"{floating} scalar"), {}
    name = draw.choice([name for name in earlier if name in OTHERS[:-1]] or ["int32"])
    return draw.choice(BINARY_OF_INTEGERS), name, (name, name), {}


def random_program(draw, operands):
    """Steps as (op, dtype, reads, attrs), and the inputs that they read."""
    inputs = [operands.tensor(draw.choice(FLOATS)) for _ in range(draw.randrange(1, 4))]
    steps = []
    for _ in range(draw.randrange(1, 12)):
        tensors = [("o", i, o.dtype.name) for i, (o, _) in enumerate(inputs) if not o.is_scalar]
        there = tensors + [("s", i, step[1]) for i, step in enumerate(steps)]
        op, result, wanted, attrs = random_step(draw, [name for *_, name in there])
        reads = []
        for place, want in enumerate(wanted):
            name, _, must = want.partition(" ")
            found = [(kind, i) for kind, i, has in there if has == name]
            by_scalar = op not in ("relu", "silu") and not attrs and not op.endswith("_grad") and op != "copy"
            if must or op == "clamp" and place or (by_scalar and place and reads[-1][2] and draw.random() < 0.3):
                inputs.append(operands.scalar(name))
                reads.append(("o", len(inputs) - 1, False))
                continue
            if not found or draw.random() < 0.1:
                inputs.append(operands.tensor(name))
                found = [("o", len(inputs) - 1)]
            reads.append((*draw.choice(found[-4:]), True))
        steps.append((op, result, [read[:2] for read in reads], attrs))
    return steps, inputs


def run_apart(steps, inputs, shape):
    """The results of the steps' own kernels: operands and their arguments."""
    found = []
    dense = norch.empty(shape).stride()
    for op, name, reads, attrs in steps:
        out = Operand(dtype(name), shape, tuple(dense))
        buffer = norch.zeros(shape, dtype=dtype(name)).buffer
        given = [inputs[i] if kind == "o" else found[i] for kind, i in reads]
        kernel = BACKEND.compile(op, (out, *[operand for operand, _ in given]), attrs)
        kernel(buffer, 0, *[a for _, arguments in given for a in arguments])
        found.append((out, (buffer, 0)))
    return found


def text_of(steps, outputs):
    lines = []
    for op, name, reads, attrs in steps:
        words = [f"{kind}{i + (outputs if kind == 'o' else 0)}" for kind, i in reads]
        lines.append(" ".join([op, name, *words, *[f"{k}={v}" for k, v in attrs.items()]]))
    return ";".join(lines)


def elements(operand, buffer, offset):
    """The bytes of the operand's elements."""
    kind = np.dtype(f"u{operand.dtype.itemsize}")
    memory = np.frombuffer(buffer, kind)[offset:]
    return np.lib.stride_tricks.as_strided(memory, operand.shape, [s * kind.itemsize for s in operand.strides]).copy()


def check(seed):
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    operands = Operands(draw, shape)
    steps, inputs = random_program(draw, operands)
    wanted = run_apart(steps, inputs, shape)
    results = draw.sample(range(len(steps)), min(len(steps), draw.choice((1, 1, 2, 3))))
    if len(steps) - 1 not in results:
        results[0] = len(steps) - 1
    outputs = [operands.tensor(steps[i][1], broadcasts=False) for i in results]
    attrs = {"steps": text_of(steps, len(outputs)), "results": tuple(results)}
    given = [operand for operand, _ in (*outputs, *inputs)]
    kernel = BACKEND.compile("fused", tuple(given), attrs)
    described = f"seed {seed}: {attrs} {[(o.dtype.name, o.shape, o.strides) for o in given]}"
    if kernel is None:
        assert len(given) > 24 or len(steps) > 8, described
        return
    BACKEND.set_num_threads(1 + seed % 2)
    kernel(*[a for _, arguments in (*outputs, *inputs) for a in arguments])
    for (out, arguments), step in zip(outputs, results, strict=True):
        got, want = elements(out, *arguments), elements(wanted[step][0], *wanted[step][1])
        assert (got == want).all(), f"{described}: result of step {step}"


@pytest.fixture(autouse=True)
def threads():
    before = norch.get_num_threads()
    yield
    norch.set_num_threads(before)


@pytest.mark.parametrize("first", range(0, 400, 25))
def test_random_programs_give_the_bits_of_the_separate_kernels(first):
    for seed in range(first, first + 25):
        check(seed)
