"""Fused elementwise programs: the same bits as their steps one by one."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch.backend import Operand, parse_steps
from norch.dtype import bfloat16, bool_, float16, float32, float64, int64

RNG = np.random.default_rng(5)
DTYPES = {d.name: d for d in (float32, float16, bfloat16, bool_)}
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, 65504.0, 1.0, -1.0, 2.0, 0.5, 88.0, -104.0, 20.5]

UNARY = [
    "neg",
    "abs",
    "sign",
    "sqrt",
    "floor",
    "ceil",
    "round",
    "trunc",
    "exp",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
]
UNARY += [
    "tanh",
    "sigmoid",
    "erf",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
]
BINARY = ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "atan2", "floor_divide", "remainder"]
COMPARISON = ["eq", "ne", "lt", "le", "gt", "ge"]
TERNARY = ["clamp", "axpy"]
ACTIVATIONS = [
    "relu", "leaky_relu negative_slope=0.1", "hardtanh min_val=-1.0 max_val=1.5", "silu", "gelu approximate=none",
    "elu alpha=1.5 scale=1.25 input_scale=0.75", "softplus beta=1.5 threshold=20.0", "gelu approximate=tanh",
    "hardsigmoid", "hardswish",
]  # fmt: skip
GRADS = [a.replace(" ", "_grad ", 1) if " " in a else a + "_grad" for a in (*ACTIVATIONS, "tanh", "sigmoid")]
LIGHT = [op for op in UNARY[:17] if op not in ("sqrt", "log", "log2", "log10")]


@pytest.fixture
def backend(cuda):
    return norch.device(cuda).backend


class Tensor:
    """A buffer, and the operand and offset that are seen of it."""

    def __init__(self, backend, operand, offset, raw):
        self.backend, self.operand, self.offset, self.raw = backend, operand, offset, raw
        self.buffer = backend.allocate(raw.nbytes, 0)
        backend.copy_in(self.buffer, 0, memoryview(raw).cast("B"))

    def copy(self):
        return Tensor(self.backend, self.operand, self.offset, self.values())

    def values(self):
        out = np.empty_like(self.raw)
        self.backend.copy_out(self.buffer, 0, memoryview(out).cast("B"))
        return out


def raw_values(dtype, count, edges=True):
    numbers = RNG.normal(0, 2, count).astype(np.float32)
    if edges:
        numbers = np.where(RNG.random(count) < 0.1, RNG.choice(np.array(EDGES, np.float32), count), numbers)
    if dtype is bool_:
        return (numbers > 0).astype(np.uint8)
    if dtype is float32:
        return numbers
    if dtype is float16:
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16).view(np.uint16)
    return (numbers.view(np.uint32) >> 16).astype(np.uint16)


def tensor(backend, dtype, shape, layout="rows", offset=0):
    strides, step = [], 1
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n + 8 * (layout == "padded" and step == 1)
    if layout == "turned" and len(shape) > 1:
        strides = [1]
        for n in shape[:-1]:
            strides.append(strides[-1] * n)
        strides = strides[: len(shape)]
    elif layout == "gaps":
        strides = [3 * s for s in strides]
    elif layout == "row" and len(shape) > 1:
        strides = [0] * (len(shape) - 1) + [1]
    elif layout == "column" and len(shape) > 1:
        strides = [*strides[:-1], 0]
        strides = [s // shape[-1] for s in strides]
    elif layout == "one":
        strides = [0] * len(shape)
    count = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + offset
    return Tensor(backend, Operand(dtype, tuple(shape), tuple(strides)), offset, raw_values(dtype, count))


def check(backend, steps, results, shape, inputs, outs=None):
    """Runs a program and its steps, and compares the outputs' bits. inputs: tensors, or (dtype, number)."""
    parsed = parse_steps(steps)
    outs = outs or [tensor(backend, DTYPES[parsed[r].dtype], shape) for r in results]
    operands = [t.operand for t in outs]
    operands += [i.operand if isinstance(i, Tensor) else Operand(i[0], (), (), True) for i in inputs]
    kernel = backend.compile("fused", tuple(operands), {"steps": steps, "results": tuple(results)})
    assert kernel is not None, steps
    fresh = [i.copy() if isinstance(i, Tensor) else i for i in inputs]
    arguments = []
    for t in (*outs, *inputs):
        arguments += [t.buffer, t.offset] if isinstance(t, Tensor) else [t[1]]
    kernel(*arguments)
    made = []
    for at, step in enumerate(parsed):
        out = outs[results.index(at)].copy() if at in results else tensor(backend, DTYPES[step.dtype], shape)
        reads = [fresh[int(w[1:]) - len(outs)] if w[0] == "o" else made[int(w[1:])] for w in step.reads]
        given = [r.operand if isinstance(r, Tensor) else Operand(r[0], (), (), True) for r in reads]
        one = backend.compile(step.op, (out.operand, *given), dict(step.attrs))
        assert one is not None, step
        flat = [out.buffer, out.offset]
        for r in reads:
            flat += [r.buffer, r.offset] if isinstance(r, Tensor) else [r[1]]
        one(*flat)
        made.append(out)
    for t, r in zip(outs, results, strict=True):
        got, expected = t.values(), made[r].values()
        if DTYPES[parsed[r].dtype] is float32:
            same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
        elif DTYPES[parsed[r].dtype] is bool_:
            same = got == expected
        else:
            limit = 0x7C00 if DTYPES[parsed[r].dtype] is float16 else 0x7F80
            same = (got == expected) | (((got & 0x7FFF) > limit) & ((expected & 0x7FFF) > limit))
        wrong = np.flatnonzero(~same.ravel())
        assert not len(wrong), (steps, r, len(wrong), wrong[:5], got.ravel()[wrong[:5]], expected.ravel()[wrong[:5]])


def with_dtype(op, dtype, *reads):
    name, *attrs = op.split(" ")
    return " ".join((name, dtype, *reads, *attrs))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_step(backend, dtype):
    shape, number = (4099,), (DTYPES[dtype], 1.25)
    for op in (*UNARY, *ACTIVATIONS):
        steps = ";".join([with_dtype(op, dtype, "o1"), with_dtype("mul", dtype, "s0", "o2")])
        check(backend, steps, [1], shape, [tensor(backend, DTYPES[dtype], shape), number])
    for op in (*BINARY, *GRADS):
        steps = ";".join([with_dtype(op, dtype, "o1", "o2"), with_dtype("add", dtype, "s0", "o1")])
        check(backend, steps, [1], shape, [tensor(backend, DTYPES[dtype], shape) for _ in range(2)])
    for op in TERNARY:
        steps = ";".join([with_dtype(op, dtype, "o1", "o2", "o3"), with_dtype("sub", dtype, "s0", "o1")])
        check(backend, steps, [1], shape, [tensor(backend, DTYPES[dtype], shape), number, (DTYPES[dtype], 2.0)])
    for op in COMPARISON:
        steps = ";".join([with_dtype(op, "bool", "o1", "o2"), with_dtype("where", dtype, "s0", "o1", "o3")])
        check(backend, steps, [1], shape, [*[tensor(backend, DTYPES[dtype], shape) for _ in range(2)], number])
    for power in (2.0, 1.0, 0.5, -1.5, 3.0):
        steps = ";".join([with_dtype("pow", dtype, "o1", "o2"), with_dtype("add", dtype, "s0", "o1")])
        check(backend, steps, [1], shape, [tensor(backend, DTYPES[dtype], shape), (DTYPES[dtype], power)])


def test_steps_of_bools(backend):
    shape = (1027,)
    for op in ("add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum", *COMPARISON):
        steps = f"{op} bool o1 o2;bitwise_not bool s0;where float32 s1 o3 o4"
        inputs = [*[tensor(backend, bool_, shape) for _ in range(2)], tensor(backend, float32, shape), (float32, 0.25)]
        check(backend, steps, [2], shape, inputs)
        check(backend, f"{op} bool o1 o2;bitwise_not bool s0", [1], shape, inputs[:2])


def test_casts(backend):
    shape = (2053,)
    for source in DTYPES.values():
        for target in DTYPES.values():
            first = "bitwise_not bool o1" if source is bool_ else f"neg {source.name} o1"
            check(backend, f"{first};copy {target.name} s0", [1], shape, [tensor(backend, source, shape)])
            check(backend, f"copy {target.name} o1;copy float32 s0", [1], shape, [tensor(backend, source, shape)])


LAYOUTS = ["rows", "turned", "gaps", "padded", "row", "column", "one"]


@pytest.mark.parametrize(
    "shape", [(), (1,), (8,), (65,), (1 << 18,), ((1 << 18) + 5,), (64, 96), (63, 97), (5, 7, 24), (3, 1, 40)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_layout(backend, shape, dtype):
    steps = f"mul {dtype} o1 o2;sigmoid {dtype} s0;mul {dtype} o1 s1;lt bool s2 o3;where {dtype} s3 o3 s2"
    kind = DTYPES[dtype]
    for a in LAYOUTS:
        for b in LAYOUTS:
            inputs = [tensor(backend, kind, shape, a), (kind, 1.75), tensor(backend, kind, shape, b)]
            check(backend, steps, [4], shape, inputs)
    for layout in LAYOUTS[:4]:
        check(backend, steps, [4], shape, inputs, [tensor(backend, kind, shape, layout)])
    for offset in (1, 2, 3, 4, 8):
        inputs = [tensor(backend, kind, shape, offset=offset), (kind, 0.5), tensor(backend, kind, shape)]
        check(backend, steps, [4], shape, inputs)
        check(backend, steps, [4], shape, inputs, [tensor(backend, kind, shape, offset=offset)])


def test_several_outputs_and_those_that_are_inputs(backend):
    shape = (3, 1000)
    steps = "mul float32 o3 o4;copy bfloat16 s0;add float32 s0 o5;gt bool s2 o3"
    inputs = [tensor(backend, float32, shape), (float32, 3.0), tensor(backend, float32, shape)]
    outs = [tensor(backend, kind, shape, "padded") for kind in (float32, bfloat16, bool_)]
    check(backend, steps, [2, 1, 3], shape, inputs, outs)
    x = tensor(backend, float32, shape)
    check(backend, "exp float32 o1;add float32 s0 o1;mul float32 s1 o1", [2], shape, [x], [x])


def test_programs_at_random(backend):
    for _ in range(150):
        dtype = str(RNG.choice(["float32", "float32", "float16", "bfloat16"]))
        kind, shape = DTYPES[dtype], [(777,), (1 << 17,), (24, 56), (31, 9)][RNG.integers(4)]
        count, made, steps = int(RNG.integers(2, 12)), [], []
        tensors, scalars = int(RNG.integers(1, 5)), int(RNG.integers(0, 4))
        floats = [f"o{1 + i}" for i in range(tensors + scalars)]

        def pick(n, floats=floats):
            return [str(RNG.choice(floats[-6:])) for _ in range(n)]

        for at in range(count):
            chosen = RNG.integers(5)
            if chosen == 0:
                steps.append(with_dtype(str(RNG.choice([*LIGHT, *ACTIVATIONS])), dtype, *pick(1)))
            elif chosen == 1:
                steps.append(with_dtype(str(RNG.choice(GRADS)), dtype, *pick(2)))
            elif chosen == 2 and made and len(steps) < count - 1:
                steps.append(with_dtype(str(RNG.choice(COMPARISON)), "bool", *pick(2)))
                steps.append(with_dtype("where", dtype, f"s{len(steps) - 1}", *pick(2)))
            elif chosen == 3 and scalars:
                number = f"o{1 + tensors}"
                steps.append(with_dtype("axpy", dtype, *pick(2), number))
                steps.append(with_dtype("clamp", dtype, *pick(1), number, f"o{tensors + scalars}"))
            else:
                steps.append(with_dtype(str(RNG.choice(BINARY[:6])), dtype, *pick(2)))
            made.append(at)
            floats.append(f"s{len(steps) - 1}")
        inputs = [tensor(backend, kind, shape, str(RNG.choice(LAYOUTS))) for _ in range(tensors)]
        inputs += [(kind, float(RNG.normal())) for _ in range(scalars)]
        check_where_supported(backend, steps, shape, inputs)


def check_where_supported(backend, steps, shape, inputs):
    """Leaves out steps whose own kernel takes no scalar first."""
    scalars = {f"o{1 + i}" for i, given in enumerate(inputs) if not isinstance(given, Tensor)}
    tensors = [f"o{1 + i}" for i, given in enumerate(inputs) if isinstance(given, Tensor)]
    mended = []
    for line in steps:
        words = line.split(" ")
        first = 2
        if words[0] == "where":
            first = 3
        if words[first] in scalars:
            words[first] = tensors[0]
        if words[0].endswith("_grad") and words[first + 1] in scalars:
            words[first + 1] = tensors[0]
        mended.append(" ".join(words))
    check(backend, ";".join(mended), [len(mended) - 1], shape, inputs)


# Programs of a million elements are compiled, where NVRTC is installed.


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_every_step_of_a_large_program(backend, dtype):
    shape, kind = ((1 << 20) + 5,), DTYPES[dtype]
    inputs = [tensor(backend, kind, shape), tensor(backend, kind, shape), (kind, 1.25), (kind, 2.0)]
    forms = [(op, ["A"]) for op in (*UNARY, *ACTIVATIONS)] + [(op, ["A", "B"]) for op in (*BINARY, *GRADS)]
    forms += [(op, ["A", "C", "D"]) for op in ("clamp",)] + [("axpy", ["A", "B", "C"])]
    for start in range(0, len(forms), 6):
        part = forms[start : start + 6]
        names = {name: f"o{len(part) + at}" for at, name in enumerate("ABCD")}
        steps = [with_dtype(op, dtype, *[names[r] for r in reads]) for op, reads in part]
        check(backend, ";".join(steps), list(range(len(part))), shape, inputs)
    for op in COMPARISON:
        check(backend, f"{op} bool o1 o2;where {dtype} s0 o3 o1", [1], shape, inputs[:3])


def test_products_and_sums_of_large_programs_are_not_contracted(backend):
    shape = (1 << 20,)
    inputs = [tensor(backend, float32, shape) for _ in range(3)]
    check(backend, "mul float32 o1 o2;add float32 s0 o3", [1], shape, inputs)
    steps = "silu float32 o1;axpy float32 s0 o2 o4;sub float32 s1 s0;add float32 s2 o3"
    check(backend, steps, [3], shape, [*inputs, (float32, 1.7)])
    check(backend, "mul float32 o1 o2;tanh_grad float32 o3 s0;add float32 s1 s0", [2], shape, inputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(1024, 1032), (1023, 1027), (64, 129, 136), (1 << 20,)], ids=str)
def test_every_layout_of_a_large_program(backend, shape, dtype):
    kind = DTYPES[dtype]
    steps = f"mul {dtype} o1 o2;sigmoid {dtype} s0;add {dtype} s1 o3"
    for a, b in [("rows", "row"), ("column", "rows"), ("padded", "one"), ("rows", "turned"), ("turned", "turned")]:
        inputs = [tensor(backend, kind, shape, a), (kind, 1.75), tensor(backend, kind, shape, b)]
        check(backend, steps, [2], shape, inputs)
    for offset in (1, 4, 8):
        inputs = [tensor(backend, kind, shape, offset=offset), (kind, 0.5), tensor(backend, kind, shape)]
        check(backend, steps, [2], shape, inputs)
        check(backend, steps, [2], shape, inputs[::-1], [tensor(backend, kind, shape, "padded")])


@pytest.mark.parametrize("folder", ["new", "a file", "damaged"])
def test_compiled_programs_are_kept_on_disk_where_that_can_be(backend, tmp_path, monkeypatch, folder):
    """Where they cannot, they are compiled all the same."""
    kept = tmp_path / "kept"
    if folder == "a file":
        kept.write_text("")
    monkeypatch.setenv("NORCH_CACHE_DIR", str(kept))
    shape = (1 << 20,)
    unique = {"new": "exp", "a file": "log1p", "damaged": "expm1"}[folder]
    inputs = [tensor(backend, float32, shape) for _ in range(2)]
    if folder == "damaged":
        kept.mkdir()
        for at in range(3):
            (kept / f"{at}.cubin").write_bytes(b"damaged")
    check(backend, f"{unique} float32 o1;maximum float32 s0 o2;neg float32 s1;abs float32 s2", [3], shape, inputs)
    if kept.is_dir():
        assert all(f.suffix == ".cubin" for f in kept.iterdir())


def test_a_number_that_changes(backend):
    x, out = tensor(backend, float32, (1000,)), tensor(backend, float32, (1000,))
    number = Operand(float32, (), (), True)
    kernel = backend.compile(
        "fused", (out.operand, x.operand, number), {"steps": "abs float32 o1;axpy float32 o1 s0 o2", "results": (1,)}
    )
    for value in (0.0, 1.0, -1.0):
        kernel(out.buffer, 0, x.buffer, 0, value)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = x.raw + np.abs(x.raw) * np.float32(value)
        np.testing.assert_allclose(out.values(), expected, rtol=1e-6)


def test_what_is_not_fused(backend):
    def compiled(steps, dtype, results=(0,), inputs=1):
        operand = Operand(dtype, (8,), (1,))
        return backend.compile("fused", (operand,) * (1 + inputs), {"steps": steps, "results": results})

    assert compiled("add int64 o1 o1", int64) is None
    assert compiled("add float64 o1 o1", float64) is None
    assert compiled("nothing float32 o1", float32) is None
    assert compiled("add float32 o1", float32) is None
    assert compiled("neg float32 o1", float32, inputs=30) is None
    assert compiled(";".join(["neg float32 o1"] * 40), float32) is None
    assert compiled("neg float32 o0", float32) is None
    with pytest.raises(ValueError, match="reads 's0'"):
        compiled("neg float32 s0", float32)
    with pytest.raises(ValueError, match="no such result"):
        compiled("neg float32 o1", float32, (3,))


def test_nothing_is_written_beside_an_output(backend):
    for n, offset in [(8, 0), (1 << 17, 0), ((1 << 17) + 3, 1), (1001, 3)]:
        x = tensor(backend, float32, (n,))
        memory = Tensor(backend, Operand(float32, (n,), (1,)), 16 + offset, np.full(n + 64, 7, np.float32))
        kernel = backend.compile(
            "fused", (memory.operand, x.operand), {"steps": "neg float32 o1;neg float32 s0", "results": (1,)}
        )
        kernel(memory.buffer, memory.offset, x.buffer, 0)
        found = memory.values()
        np.testing.assert_array_equal(found[16 + offset : 16 + offset + n], x.raw)
        assert set(found[: 16 + offset]) | set(found[16 + offset + n :]) == {7.0}
