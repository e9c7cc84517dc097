"""fused: programs of random steps, dtypes and layouts give the bits of the separate kernels."""

import random

import numpy as np
import pytest

import norch
from norch.backend import Operand, contract

BACKEND = norch.device("cpu").backend
FLOATS = ("float32", "float32", "float64", "float16", "bfloat16")
OTHERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
SHAPES = [(), (1,), (7,), (5, 3), (40, 33), (3, 300), (2, 3, 700), (70, 65), (2, 5, 4, 6), (3, 7, 5, 2, 6), (9000,)]

UNARY_OF_FLOATS = ("exp", "sigmoid", "tanh", "erf", "sin", "cos", "log1p", "neg", "abs", "floor", "relu", "silu")
BINARY_OF_FLOATS = ("add", "sub", "mul", "div", "maximum", "minimum", "relu_grad", "sigmoid_grad", "silu_grad")
BINARY_OF_INTEGERS = ("add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_xor")
WITH_ATTRS = (
    ("gelu", 1, {"approximate": "none"}),
    ("gelu", 1, {"approximate": "tanh"}),
    ("gelu_grad", 2, {"approximate": "tanh"}),
    ("leaky_relu", 1, {"negative_slope": 0.1}),
    ("elu", 1, {"alpha": 1.5, "scale": 1.0, "input_scale": 0.5}),
    ("hardtanh_grad", 2, {"min_val": -1, "max_val": 0.5}),
    ("lerp_by_tensor", 3, {}),
)
WITH_SCALARS = (
    ("axpy", 2, 1, {}),
    ("clamp", 2, 1, {}),
    ("addcmul", 3, 1, {}),
    ("addcdiv", 3, 1, {}),
    ("lerp", 2, 2, {"is_small": True}),
    ("lerp", 2, 2, {"is_small": False}),
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
        filled = norch.tensor(values, dtype=dtype(name))
        return Operand(dtype(name), self.shape, strides), (filled.buffer, offset)

    def scalar(self, name):
        value = True if name == "bool" else self.draw.randrange(1, 5)
        return Operand(dtype(name), (), (), True), (value + 0.3 if name in FLOATS else value,)


def random_step(draw, earlier):
    """An op, its dtype, the dtypes of what it reads, its attributes. earlier: the dtypes that there are."""
    kinds = ("unary", "binary", "binary", "binary", "compare", "where", "cast", "attrs", "scaled", "integers")
    kind = draw.choice(kinds)
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
        op, tensors, scalars, attrs = draw.choice(WITH_SCALARS)
        return op, floating, (*(floating,) * tensors, *(f"{floating} scalar",) * scalars), attrs
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
            if must or (op == "clamp" and place) or (by_scalar and place and reads[-1][2] and draw.random() < 0.3):
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


INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def elements(operand, buffer, offset):
    """The bits of the operand's elements; all NaNs are alike, since the sign of one is chance."""
    kind = np.dtype(f"u{operand.dtype.itemsize}")
    memory = np.frombuffer(buffer, kind)[offset:]
    strides = [s * kind.itemsize for s in operand.strides]
    bits = np.array(np.lib.stride_tricks.as_strided(memory, operand.shape, strides))
    infinity = INFINITY.get(operand.dtype.name)
    if infinity is not None:
        bits[(bits & kind.type(2 ** (8 * kind.itemsize - 1) - 1)) > infinity] = infinity + 1
    return bits


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
        is_converted = len(steps) > 1 and all(op == "copy" for op, *_ in steps[:-1]) and "16" in steps[-1][1]
        assert len(given) > 24 or len(steps) > 8 or is_converted, described
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


def test_most_random_programs_have_a_kernel():
    compiled = 0
    for seed in range(100):
        draw = random.Random(seed)
        operands = Operands(draw, draw.choice(SHAPES))
        steps, inputs = random_program(draw, operands)
        out, _ = operands.tensor(steps[-1][1], broadcasts=False)
        attrs = {"steps": text_of(steps, 1), "results": (len(steps) - 1,)}
        compiled += BACKEND.compile("fused", (out, *[operand for operand, _ in inputs]), attrs) is not None
    assert compiled > 90


def program(steps, *kinds, shape=(1000,), results=None):
    """The kernel of a program of float32 tensors ("t") and scalars ("s")."""
    tensor = Operand(norch.float32, shape, norch.empty(shape).stride())
    operands = [tensor if kind == "t" else Operand(norch.float32, (), (), True) for kind in ("t", *kinds)]
    attrs = {"steps": steps, "results": results or (steps.count(";"),)}
    return BACKEND.compile("fused", tuple(operands), attrs)


FIRST = ("add", "sub", "mul")
SECOND = ("add", "sub", "mul", "sigmoid", "tanh", "relu", "silu", "exp")


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("first", FIRST)
def test_two_steps_at_once_round_twice(first, second):
    """Each pair of steps that may have a loop of its own, with every mixture of tensors and scalars."""
    rng = np.random.default_rng(0)
    vector, scalar = Operand(norch.float32, (1003,), (1,)), Operand(norch.float32, (), (), True)
    tensors = [norch.from_numpy(rng.standard_normal(1003, np.float32)) for _ in range(3)]
    out = norch.empty(1003)
    later = (("s", 0), ("o", 2)), (("o", 2), ("s", 0))
    for kinds in ("ttt", "tts", "tst", "tss", "stt", "sts"):
        chosen = zip(kinds, tensors, (1.7, 0.3, -1.1), strict=True)
        inputs = [(vector, (t.buffer, 0)) if kind == "t" else (scalar, (number,)) for kind, t, number in chosen]
        for reads in later if second in FIRST else ((("s", 0),),):
            steps = [
                (first, "float32", (("o", 0), ("o", 1)), {}),
                (second, "float32", reads, {}),
            ]
            attrs = {"steps": text_of(steps, 1), "results": (1,)}
            kernel = BACKEND.compile("fused", (vector, *[operand for operand, _ in inputs]), attrs)
            kernel(out.buffer, 0, *[a for _, arguments in inputs for a in arguments])
            made, where = run_apart(steps, inputs, (1003,))[1]
            want = elements(made, *where)
            assert (elements(vector, out.buffer, 0) == want).all(), (kinds, attrs)


def test_an_output_may_be_an_input_that_later_steps_read():
    x = norch.arange(1000, dtype=norch.float32)
    kept = x.clone()
    other = norch.empty(1000)
    kernel = program("mul float32 o1 o2;add float32 s0 o1", "t", "s", results=(0,))
    kernel(x.buffer, 0, x.buffer, 0, 3.0)
    assert (x == kept * 3).all()
    tensor = Operand(norch.float32, (1000,), (1,))
    attrs = {"steps": "mul float32 o2 o3;add float32 s0 o2", "results": (0, 1)}
    kernel = BACKEND.compile("fused", (tensor, tensor, tensor, Operand(norch.float32, (), (), True)), attrs)
    x.copy_(kept)
    kernel(x.buffer, 0, other.buffer, 0, x.buffer, 0, 3.0)
    assert (x == kept * 3).all()
    assert (other == kept * 4).all()


def test_scalars_come_at_run_time():
    x, out = norch.ones(1000), norch.empty(1000)
    kernel = program("mul float32 o1 o2;add float32 s0 o3", "t", "s", "s")
    for a, b in ((2.0, 1.0), (-1, 0.5)):
        kernel(out.buffer, 0, x.buffer, 0, a, b)
        assert (out == a + b).all()


def test_no_elements_and_one():
    for shape in ((0,), (3, 0), ()):
        out = norch.full(shape, 7.0)
        program("neg float32 o1;abs float32 s0", "t", shape=shape)(out.buffer, 0, out.buffer, 0)
        assert (out == 7).all()


@pytest.mark.parametrize(
    "steps",
    [
        "no_such_op float32 o1;neg float32 s0",
        "softmax float32 o1;neg float32 s0",
        "add float32 o1;neg float32 s0",
        "copy int32 o1;floor_divide int32 s0 s0;copy float32 s1",
        "copy float64 o1;add float32 s0 o1",
        "eq float32 o1 o1;neg float32 s0",
        "where float32 o1 o1 o1;neg float32 s0",
        "clamp float32 o1 o1 o1;neg float32 s0",
    ],
)
def test_what_has_no_kernel_is_declined(steps):
    assert program(steps, "t") is None


@pytest.mark.parametrize(
    ("steps", "results", "message"),
    [
        ("neg float32 o2", (0,), "reads 'o2'"),
        ("neg float32 s0", (0,), "reads 's0'"),
        ("neg float32 x1", (0,), "reads 'x1'"),
        ("neg float32 o0", (0,), "reads an output"),
        ("neg", (0,), "without a dtype"),
        ("neg float33 o1", (0,), "float33"),
        ("neg float32 o1", (1,), "result 0"),
        ("copy int32 o1", (0,), "result 0"),
    ],
)
def test_what_is_no_program_is_an_error(steps, results, message):
    with pytest.raises(ValueError, match=message):
        program(steps, "t", results=results)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_captured_chain_is_one_kernel(name, monkeypatch):
    asked = []
    compile_ = type(BACKEND).compile

    def noting(self, op, operands, attrs):
        if op == "fused":
            asked.append(attrs["steps"])
        return compile_(self, op, operands, attrs)

    monkeypatch.setattr(type(BACKEND), "compile", noting)

    def chain(x, bias):
        return norch.where(x > 0, x * norch.sigmoid(x * 1.7) + bias, x * 0.5)

    captured = norch.capture(chain)
    bias = norch.arange(40, dtype=dtype(name)) / 7
    for seed in range(5):
        norch.manual_seed(seed)
        x = norch.randn(33, 40).to(dtype(name))
        assert captured(x, bias).tolist() == chain(x, bias).tolist()
    assert len(asked) == 1
    assert asked[0].count(";") == 6
