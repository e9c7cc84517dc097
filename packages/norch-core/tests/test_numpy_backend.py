"""The NumPy reference backend, against Python's numbers: every primitive, dtype and layout."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from norch.backend.contract import COMPARISON, Operand
from norch.dtype import (
    BOOL,
    DTYPES,
    FLOATING,
    INTEGER,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    uint8,
)
from norch.numpy_backend.backend import NumpyBackend
from norch.spec import contiguous_strides

BACKEND = NumpyBackend()
FLOATS = [d for d in DTYPES if d.category == FLOATING]
INTS = [d for d in DTYPES if d.category == INTEGER]
DIGITS = {"float64": (53, -1022), "float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}
NAN, INF = math.nan, math.inf
GUARD = 0x5A
LAYOUTS = ["dense", "gaps"]
ids = {"ids": lambda v: v.name if isinstance(v, DType) else None}


# --- Harness --------------------------------------------------------------------------------------------------------


class Placed:
    """A tensor operand: values in a buffer, either densely or transposed, with gaps and an offset."""

    def __init__(self, values: Any, dtype: DType, layout: str = "dense", shape: tuple[int, ...] | None = None) -> None:
        array = None if shape is not None else np.asarray(values).astype(dtype.numpy)
        self.shape = shape if array is None else array.shape
        self.dtype, size = dtype, dtype.itemsize
        if layout == "dense":
            strides, self.offset = contiguous_strides(self.shape), 0
        else:
            strides, self.offset = tuple(2 * s for s in contiguous_strides(self.shape[::-1]))[::-1], 5
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, strides)) if 0 not in self.shape else 0
        self.buffer = BACKEND.allocate((self.offset + span + 3) * size, 0)
        self.buffer.data[...] = GUARD
        self.operand = Operand(dtype, self.shape, strides)
        if array is not None:
            self.view()[...] = array

    def view(self) -> Any:
        strides = tuple(s * self.dtype.itemsize for s in self.operand.strides)
        start = self.offset * self.dtype.itemsize
        return np.ndarray(self.shape, self.dtype.numpy, self.buffer.data, start, strides)

    def expanded(self, shape: tuple[int, ...]) -> Placed:
        strides = (0,) * (len(shape) - len(self.shape)) + tuple(
            0 if n == 1 else s for n, s in zip(self.shape, self.operand.strides)
        )
        self.shape, self.operand = shape, self.operand._replace(shape=shape, strides=strides)
        return self

    def assert_gaps_untouched(self) -> None:
        touched = np.zeros(self.buffer.nbytes, bool)
        size = self.dtype.itemsize
        strides = (*(s * size for s in self.operand.strides), 1)
        np.ndarray((*self.shape, size), bool, touched, self.offset * size, strides)[...] = True
        assert (self.buffer.data[~touched] == GUARD).all()


def call(op: str, outputs: Sequence[Placed], inputs: Sequence[Any], attrs: dict[str, Any] | None = None) -> None:
    """Runs a primitive; an input that is no Placed is a scalar of the last output's dtype."""
    operands, args = [], []
    for x in (*outputs, *inputs):
        if isinstance(x, Placed):
            operands.append(x.operand)
            args += [x.buffer, x.offset]
        else:
            tensors = [i.dtype for i in inputs if isinstance(i, Placed) and i.dtype is not bool_]
            operands.append(Operand(tensors[0] if tensors else outputs[0].dtype, (), (), True))
            args.append(x)
    kernel = BACKEND.compile(op, tuple(operands), attrs or {})
    assert kernel is not None
    assert kernel(*args) is None
    for out in outputs:
        out.assert_gaps_untouched()


def result(
    op: str, dtype: DType, shape: tuple[int, ...], inputs: Sequence[Any], layout: str = "dense", **attrs: Any
) -> Any:
    out = Placed(None, dtype, layout, shape)
    call(op, [out], inputs, attrs)
    return out.view()


def wrap(value: int, dtype: DType) -> int:
    if dtype.category == BOOL:
        return bool(value)
    half = 1 << (8 * dtype.itemsize - 1) if dtype.is_signed else 0
    return (value + half) % (1 << 8 * dtype.itemsize) - half


def ulps(got: float, want: float, dtype: DType) -> float:
    """How far `got` is from the float64 value `want`, in units in the last place of `dtype`."""
    digits, lowest = DIGITS[dtype.name]
    if math.isnan(want) or math.isnan(got):
        return 0 if math.isnan(want) and math.isnan(got) else INF
    if got == want:
        return 0
    largest = (2 - 2.0 ** (1 - digits)) * 2.0 ** (1 - lowest)
    if abs(want) >= largest or math.isinf(got):
        return 0 if math.copysign(1, got) == math.copysign(1, want) and abs(got) >= largest <= abs(want) else INF
    exponent = max(math.frexp(want)[1] - 1, lowest) if want else lowest
    return abs(got - want) / 2.0 ** (exponent - digits + 1)


def assert_close(got: Any, want: Sequence[float], dtype: DType, limit: float | None = None) -> None:
    """16-bit results may be 0.51 ulp off (rounded once, from a float32 that is 3 off), the others 2."""
    limit = limit or (2 if dtype.itemsize > 2 else 0.51)
    values = np.asarray(got).astype(np.float64).ravel().tolist()
    worst = max(zip(map(ulps, values, want, itertools.repeat(dtype)), values, want), default=(0,))
    assert worst[0] <= limit, f"{worst[0]} ulp: got, expected {worst[1:]}"


def grid(values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """All pairs, as two columns."""
    pairs = list(itertools.product(values, values))
    return [a for a, _ in pairs], [b for _, b in pairs]


# --- Elementwise ----------------------------------------------------------------------------------------------------


def guarded(f: Callable[..., float]) -> Callable[..., float]:
    def wrapped(*args: float) -> float:
        try:
            return f(*args)
        except ValueError:
            return NAN
        except OverflowError:
            return INF

    return wrapped


def logarithm(f: Callable[[float], float], pole: float = 0) -> Callable[[float], float]:
    return guarded(lambda x: -INF if x == pole else f(x))


def rounded(f: Callable[[float], int]) -> Callable[[float], float]:
    return lambda x: float(f(x)) if math.isfinite(x) else x


def logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


FLOAT_UNARY: dict[str, Callable[[float], float]] = {
    "neg": operator.neg,
    "abs": abs,
    "sign": lambda x: x if math.isnan(x) else float((x > 0) - (x < 0)),
    "sigmoid": logistic,
    "floor": rounded(math.floor),
    "ceil": rounded(math.ceil),
    "round": rounded(round),
    "trunc": rounded(math.trunc),
    "log": logarithm(math.log),
    "log2": logarithm(math.log2),
    "log10": logarithm(math.log10),
    "log1p": logarithm(math.log1p, -1),
    "sinh": lambda x: math.copysign(guarded(math.sinh)(abs(x)), x),
    "atanh": guarded(lambda x: math.copysign(INF, x) if abs(x) == 1 else math.atanh(x)),
    **{
        op: guarded(getattr(math, op))
        for op in "exp expm1 sqrt sin cos tan asin acos atan cosh tanh asinh acosh erf".split()
    },
}
FLOAT_VALUES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.25, -7.75, 0.0078125, 11.0, -11.0, 100.0, -100.0]
FLOAT_VALUES += [89.5, 1e4, -1e4, INF, -INF, NAN]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, **ids)
@pytest.mark.parametrize("op", sorted(FLOAT_UNARY))
def test_unary_on_floats(op: str, dtype: DType, layout: str) -> None:
    x = Placed(np.reshape(FLOAT_VALUES, (2, -1)), dtype, layout)
    exact = x.view().astype(np.float64).ravel().tolist()
    got = result(op, dtype, x.shape, [x], layout)
    assert_close(got, [FLOAT_UNARY[op](v) for v in exact], dtype)


@pytest.mark.parametrize("dtype", [bool_, *INTS], **ids)
@pytest.mark.parametrize("op", "neg abs sign floor ceil round trunc bitwise_not".split())
def test_unary_on_integers(op: str, dtype: DType) -> None:
    values = [wrap(v, dtype) for v in (0, 1, -1, 2, 5, -7, 127, -128, 2**31, -(2**63))]
    f: Callable[[int], int] = {"neg": operator.neg, "abs": abs, "sign": lambda v: (v > 0) - (v < 0)}.get(
        op, lambda v: v
    )
    if op == "bitwise_not":
        f = operator.invert if dtype.category else operator.not_
    x = Placed(values, dtype, "gaps")
    assert result(op, dtype, x.shape, [x], "gaps").tolist() == [wrap(f(v), dtype) for v in values]


def float_floor_divide(a: float, b: float) -> float:
    if b == 0:
        return NAN if a == 0 or math.isnan(a) else math.copysign(INF, a) * math.copysign(1, b)
    return math.floor(a / b) if math.isfinite(a / b) else a / b


def float_divide(a: float, b: float) -> float:
    if b == 0:
        return NAN if a == 0 or math.isnan(a) else math.copysign(INF, a) * math.copysign(1, b)
    return a / b


def float_power(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -INF if a < 0 and b % 2 == 1 else INF
    except ValueError:
        return NAN if a else INF * (math.copysign(1, a) if b % 2 == 1 else 1)


def either_nan(f: Callable[[float, float], float]) -> Callable[[float, float], float]:
    return lambda a, b: NAN if math.isnan(a) or math.isnan(b) else f(a, b)


FLOAT_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": float_divide,
    "floor_divide": float_floor_divide,
    "remainder": lambda a, b: a % b if b else NAN,
    "pow": float_power,
    "atan2": math.atan2,
    "maximum": either_nan(max),
    "minimum": either_nan(min),
}
PAIR_VALUES = [0.0, 0.5, -0.5, 1.0, -1.0, 1.75, -2.5, 3.0, -8.0, 300.0]
SPECIAL = [INF, -INF, NAN]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, **ids)
@pytest.mark.parametrize("op", sorted(FLOAT_BINARY))
def test_binary_on_floats(op: str, dtype: DType, layout: str) -> None:
    a, b = grid(PAIR_VALUES if op in ("floor_divide", "remainder") else PAIR_VALUES + SPECIAL)
    x, y = Placed(np.reshape(a, (2, -1)) if len(a) % 2 == 0 else a, dtype, layout), None
    y = Placed(np.reshape(b, x.shape), dtype, layout)
    assert_close(result(op, dtype, x.shape, [x, y], layout), list(map(FLOAT_BINARY[op], a, b)), dtype)


def truncated_power(a: int, b: int) -> int:
    if b >= 0:
        return a**b
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def shifted(a: int, b: int, dtype: DType, left: bool) -> int:
    if not 0 <= b < 8 * dtype.itemsize:
        return -1 if a < 0 and not left else 0
    return a << b if left else a >> b


INT_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "pow": truncated_power,
    "maximum": max,
    "minimum": min,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}
INT_VALUES = [0, 1, -1, 2, -3, 7, 100, -128, 2**15, -(2**31), 2**63 - 1]


@pytest.mark.parametrize("dtype", INTS, **ids)
@pytest.mark.parametrize("op", [*sorted(INT_BINARY), "bitwise_left_shift", "bitwise_right_shift"])
def test_binary_on_integers(op: str, dtype: DType) -> None:
    a, b = grid([wrap(v, dtype) for v in INT_VALUES])
    if op.endswith("shift"):
        a, b = grid([wrap(v, dtype) for v in (0, 1, 3, 7, 8, 31, 40, 64, 100, -1, -100)])
        f: Any = lambda x, y: shifted(x, y, dtype, "left" in op)  # noqa: E731
    elif op == "pow":
        b = [v if v < 200 else 9 for v in b]
        f = truncated_power
    else:
        f = INT_BINARY[op]
        if op in ("floor_divide", "remainder"):
            a, b = map(list, zip(*[(x, y) for x, y in zip(a, b) if y]))
    x, y = Placed(a, dtype, "gaps"), Placed(b, dtype)
    assert result(op, dtype, x.shape, [x, y], "gaps").tolist() == [wrap(f(u, v), dtype) for u, v in zip(a, b)]


@pytest.mark.parametrize(
    ("op", "expected"),
    [("add", "0111"), ("mul", "0001"), ("maximum", "0111"), ("minimum", "0001"), ("bitwise_and", "0001"),
     ("bitwise_or", "0111"), ("bitwise_xor", "0110")],
)  # fmt: skip
def test_binary_on_bool(op: str, expected: str) -> None:
    a, b = grid([False, True])
    assert result(op, bool_, (4,), [Placed(a, bool_), Placed(b, bool_)]).tolist() == [c == "1" for c in expected]


@pytest.mark.parametrize("dtype", INTS, **ids)
@pytest.mark.parametrize("op", ["floor_divide", "remainder"])
def test_integer_division_by_zero(op: str, dtype: DType) -> None:
    x = Placed([1, 2], dtype)
    for divisor in (Placed([1, 0], dtype), 0):
        with pytest.raises(ZeroDivisionError):
            result(op, dtype, (2,), [x, divisor])


@pytest.mark.parametrize("dtype", DTYPES, **ids)
@pytest.mark.parametrize("op", COMPARISON)
def test_comparison(op: str, dtype: DType) -> None:
    values = {BOOL: [0, 1], INTEGER: [0, 1, 100, 127], FLOATING: [0.0, -0.0, 1.5, -2.0, INF, NAN]}[dtype.category]
    a, b = grid(values)
    x, y = Placed(a, dtype, "gaps"), Placed(b, dtype)
    f = getattr(operator, op)
    assert result(op, bool_, x.shape, [x, y], "gaps").tolist() == list(map(f, a, b))
    assert result(op, bool_, x.shape, [x, values[1]]).tolist() == [f(v, values[1]) for v in a]


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_scalars_by_value(dtype: DType) -> None:
    x = Placed([0, 1, 1], dtype, "gaps")
    s: Any = {BOOL: True, INTEGER: 3, FLOATING: 0.75}[dtype.category]
    values = x.view().tolist()
    f = operator.or_ if dtype is bool_ else operator.add
    assert result("add", dtype, (3,), [x, s]).tolist() == [f(v, s) for v in values]
    assert result("add", dtype, (3,), [s, x]).tolist() == [f(s, v) for v in values]
    assert result("add", dtype, (3,), [s, s]).tolist() == [f(s, s)] * 3
    assert result("fill", dtype, (2, 3), [s], "gaps").tolist() == [[s] * 3] * 2
    condition = Placed([False, True, False], bool_)
    assert result("where", dtype, (3,), [condition, x, s], "gaps").tolist() == [s, values[1], s]
    assert result("where", dtype, (3,), [condition, s, x]).tolist() == [values[0], s, values[2]]
    assert result("where", dtype, (3,), [True, x, s]).tolist() == values
    if dtype is not bool_:
        assert result("sub", dtype, (3,), [s, x]).tolist() == [wrap(s - v, dtype) if s == 3 else s - v for v in values]


def test_scalars_out_of_range_wrap_around() -> None:
    x = Placed([1, 2], int8)
    assert result("add", int8, (2,), [x, 300]).tolist() == [45, 46]
    assert result("fill", uint8, (1,), [-1]).tolist() == [255]
    assert result("mul", float32, (2,), [Placed([1, 0], float32), 1e300]).tolist()[0] == INF


@pytest.mark.parametrize("dtype", [float16, bfloat16], **ids)
def test_16_bit_floats_are_rounded_once(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    x = Placed(rng.normal(size=500), dtype)
    exact = x.view().astype(np.float64).tolist()
    for op, scalar in (("mul", 0.1), ("add", 1e-3), ("pow", 2.0), ("div", 3.0)):
        want = [FLOAT_BINARY[op](v, scalar) for v in exact]
        assert_close(result(op, dtype, (500,), [x, scalar]), want, dtype, 0.501)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1)])
@pytest.mark.parametrize("op", ["add", "sub", "pow", "maximum", "floor_divide"])
@pytest.mark.parametrize("dtype", [float32, bfloat16, int32], **ids)
def test_0d_and_empty(op: str, dtype: DType, shape: tuple[int, ...]) -> None:
    a, b = (Placed(np.full(shape, v), dtype, "gaps") for v in (7, 2))
    expected = (FLOAT_BINARY if dtype.category == FLOATING else INT_BINARY)[op](7, 2)  # type: ignore[operator]
    assert (result(op, dtype, shape, [a, b], "gaps") == expected).all()
    assert (result(op, dtype, shape, [a, 2]) == expected).all()
    call("add", [Placed(None, float32, shape=(0,))], [x := Placed([], float32), x])


def test_empty_view_past_the_end_of_its_buffer() -> None:
    out, x = (Placed(None, float32, shape=(4, 0)) for _ in range(2))
    x.offset = 1000
    call("exp", [out], [x])


@pytest.mark.parametrize("dtype", [float32, float16, int64, bool_], **ids)
def test_broadcast_operands(dtype: DType) -> None:
    row = Placed([[1, 0, 1]], dtype, "gaps").expanded((4, 3))
    column = Placed([[1], [0], [0], [1]], dtype).expanded((4, 3))
    one = Placed(1, dtype).expanded((4, 3))
    f = operator.or_ if dtype is bool_ else operator.add
    got = result("add", dtype, (4, 3), [row, column], "gaps")
    assert got.tolist() == [[f(*p) for p in r] for r in zip(*[iter(zip(row.view().flat, column.view().flat))] * 3)]
    assert result("mul", dtype, (4, 3), [row, one]).tolist() == row.view().tolist()


@pytest.mark.parametrize("op", ["add", "sigmoid", "pow"])
@pytest.mark.parametrize("dtype", [float32, bfloat16], **ids)
def test_output_may_be_an_input(op: str, dtype: DType) -> None:
    x = Placed([0.5, 2.0, 3.0], dtype)
    inputs = [x] if op == "sigmoid" else [x, x]
    want = [(FLOAT_UNARY | FLOAT_BINARY)[op](*[v] * len(inputs)) for v in (0.5, 2.0, 3.0)]  # type: ignore[operator]
    call(op, [x], inputs)
    assert_close(x.view(), want, dtype)


SOURCES = {BOOL: [0, 1], INTEGER: [0, 1, 100, 127], FLOATING: [0.0, -0.0, 1.0, 0.5, -1.0, 99.75]}


@pytest.mark.parametrize("target", DTYPES, **ids)
@pytest.mark.parametrize("source", DTYPES, **ids)
def test_copy_casts(source: DType, target: DType) -> None:
    values = [v for v in SOURCES[source.category] if v >= 0 or target is not uint8]
    x = Placed(np.reshape(values[: len(values) // 2 * 2], (2, -1)), source, "gaps")
    exact = x.view().ravel().tolist()
    got = result("copy", target, x.shape, [x], "gaps").ravel().tolist()
    if target.category == FLOATING:
        assert_close(got, [float(v) for v in exact], target, 0.5)
    else:
        assert got == [bool(v) if target is bool_ else int(v) for v in exact]


def test_copy_of_what_does_not_fit() -> None:
    x = Placed([NAN, INF, -INF, 1e30], float64)
    assert result("copy", bool_, (4,), [x]).tolist() == [True] * 4
    for dtype in INTS:
        result("copy", dtype, (4,), [x])  # any values, but no warning
    assert result("copy", float16, (4,), [x]).tolist()[1:] == [INF, -INF, INF]
    wide = Placed([300, -1, 2**40 + 5], int64)
    assert result("copy", int8, (3,), [wide]).tolist() == [44, -1, 5]


@pytest.mark.parametrize("op", "exp log tanh sigmoid erf sin cos".split())
def test_float32_within_2_ulp(op: str) -> None:
    rng = np.random.default_rng(1)
    every_exponent = rng.integers(0, 2**32, 1500, dtype=np.uint64).astype(np.uint32).view(np.float32)
    every_exponent = every_exponent[np.isfinite(every_exponent)]
    x = np.concatenate(
        [every_exponent, rng.uniform(-12, 12, 1500), rng.uniform(0, 2, 1000), rng.uniform(-105, 90, 500)]
    )
    placed = Placed(x, float32)
    exact = placed.view().astype(np.float64).tolist()
    assert_close(result(op, float32, x.shape, [placed]), [FLOAT_UNARY[op](v) for v in exact], float32, 2)


@pytest.mark.parametrize("dtype", FLOATS, **ids)
def test_sigmoid_and_erf_at_the_ends(dtype: DType) -> None:
    x = Placed([-INF, -1e4, 1e4, INF, -0.0], dtype)
    assert result("sigmoid", dtype, (5,), [x]).tolist() == [0, 0, 1, 1, 0.5]
    assert result("erf", dtype, (5,), [x]).tolist() == [-1, -1, 1, 1, 0]
    if dtype is float64:
        assert_close(result("sigmoid", dtype, (1,), [Placed([-740.0], dtype)]), [math.exp(-740)], dtype)


# --- Reductions and matmul ------------------------------------------------------------------------------------------


def reduced(x: Any, dims: tuple[int, ...], f: Callable[[list[Any]], Any]) -> list[Any]:
    """`f` of the elements of each group that a reduction over `dims` joins, in row-major order."""
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    groups: dict[tuple[int, ...], list[Any]] = {place: [] for place in np.ndindex(shape)}
    for place in np.ndindex(x.shape):
        groups[tuple(0 if d in dims else i for d, i in enumerate(place))].append(x[place].item())
    return [f(group) for group in groups.values()]


def nan_wins(f: Callable[[list[float]], float]) -> Callable[[list[float]], float]:
    return lambda values: NAN if any(map(math.isnan, values)) else f(values)


REDUCERS: dict[str, Callable[[list[Any]], Any]] = {
    "sum": math.fsum, "prod": math.prod, "amax": nan_wins(max), "amin": nan_wins(min),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
@pytest.mark.parametrize("op", sorted(REDUCERS))
def test_reductions(op: str, dtype: DType, dims: tuple[int, ...], layout: str) -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 5, (3, 4, 2)) if dtype.category != FLOATING else rng.normal(size=(3, 4, 2))
    if dtype.category == FLOATING and op in ("amax", "amin"):
        values[1, 2, 1] = NAN
    x = Placed(values, dtype, layout)
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    got = result(op, dtype, shape, [x], layout, dims=dims)
    want = reduced(x.view(), dims, REDUCERS[op])
    if dtype.category == FLOATING:
        np.testing.assert_allclose(
            got.astype(np.float64).ravel(), want, rtol=3 * 2.0 ** -DIGITS[dtype.name][0], atol=1e-6, equal_nan=True
        )
    else:
        assert got.ravel().tolist() == [wrap(int(v), dtype) if dtype.category else bool(v) for v in want]


@pytest.mark.parametrize("dtype", [float16, bfloat16], **ids)
def test_16_bit_sums_accumulate_in_float32(dtype: DType) -> None:
    ones = Placed(np.ones(20_000), dtype)
    assert result("sum", dtype, (1,), [ones], dims=(0,)).item() == np.float64(20_000).astype(dtype.numpy)
    tenth = Placed(np.full(1000, 0.1), dtype)
    exact = math.fsum(tenth.view().astype(np.float64).tolist())
    assert_close(result("sum", dtype, (1,), [tenth], dims=(0,)), [exact], dtype, 0.51)
    assert_close(result("cumsum", dtype, (1000,), [tenth], dim=0)[-1], [exact], dtype, 0.51)
    index = Placed(np.zeros(1000, int), int64)
    out = Placed([0.0], dtype)
    call("scatter_add", [out], [index, tenth], {"dim": 0})
    assert_close(out.view(), [exact], dtype, 0.51)
    row = Placed(np.full((1, 1000), 0.1), dtype)
    column = Placed(np.ones((1000, 1)), dtype)
    assert_close(result("matmul", dtype, (1, 1), [row, column]), [exact], dtype, 0.51)


@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_reductions_of_nothing_and_of_0d(dtype: DType) -> None:
    empty = Placed(np.empty((0, 3)), dtype)
    assert result("sum", dtype, (1, 3), [empty], "gaps", dims=(0,)).tolist() == [[0] * 3]
    assert result("prod", dtype, (1, 3), [empty], "gaps", dims=(0,)).tolist() == [[1] * 3]
    assert result("amax", dtype, (0, 1), [empty], dims=(1,)).shape == (0, 1)
    one = Placed(1, dtype)
    for op in REDUCERS:
        assert result(op, dtype, (), [one], "gaps", dims=()).tolist() == 1
    assert result("argmax", int64, (), [one], dims=()).tolist() == 0
    assert result("cumsum", dtype, (), [one], dim=0).tolist() == 1


def test_any_and_all() -> None:
    x = Placed([[True, False], [True, True], [False, False]], bool_, "gaps")
    assert result("any", bool_, (3, 1), [x], "gaps", dims=(1,)).tolist() == [[True], [True], [False]]
    assert result("all", bool_, (3, 1), [x], "gaps", dims=(1,)).tolist() == [[False], [True], [False]]
    assert result("any", bool_, (1, 1), [x], dims=(0, 1)).tolist() == [[True]]
    empty = Placed(np.empty((0, 2)), bool_)
    assert result("any", bool_, (1, 2), [empty], dims=(0,)).tolist() == [[False] * 2]
    assert result("all", bool_, (1, 2), [empty], dims=(0,)).tolist() == [[True] * 2]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_argmax_argmin_take_the_first(dtype: DType, layout: str) -> None:
    x = Placed([[0, 1, 1], [1, 0, 0], [1, 1, 1]], dtype, layout)
    assert result("argmax", int64, (3, 1), [x], layout, dims=(1,)).tolist() == [[1], [0], [0]]
    assert result("argmin", int64, (3, 1), [x], layout, dims=(1,)).tolist() == [[0], [1], [0]]
    assert result("argmax", int64, (1, 3), [x], layout, dims=(0,)).tolist() == [[1, 0, 0]]
    if dtype.category == FLOATING:
        x = Placed([INF, NAN, -INF, NAN], dtype, layout)
        assert result("argmax", int64, (1,), [x], dims=(0,)).tolist() == [1]
        assert result("argmin", int64, (1,), [x], dims=(0,)).tolist() == [1]


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_cumsum(dtype: DType, dim: int) -> None:
    values = np.random.default_rng(3).integers(0, 9, (3, 5)) * 20
    x = Placed(values, dtype, "gaps")
    want = np.zeros((3, 5), object)
    for i, j in np.ndindex(3, 5):
        group = x.view()[: i + 1, j] if dim == 0 else x.view()[i, : j + 1]
        want[i, j] = any(group) if dtype is bool_ else sum(group.tolist())
    got = result("cumsum", dtype, (3, 5), [x], "gaps", dim=dim)
    if dtype.category == FLOATING:
        assert_close(got, want.ravel().tolist(), dtype, 0.5)
    else:
        assert got.tolist() == [[wrap(v, dtype) for v in row] for row in want.tolist()]


MATMUL_SHAPES = [
    ((2, 3), (3, 4)),
    ((5, 2, 3), (5, 3, 1)),
    ((2, 2, 1, 3), (2, 2, 3, 2)),
    ((2, 0), (0, 3)),
    ((0, 2), (2, 3)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("left", "right"), MATMUL_SHAPES)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], **ids)
def test_matmul(dtype: DType, left: tuple[int, ...], right: tuple[int, ...], layout: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (Placed(rng.integers(0, 12, shape), dtype, layout) for shape in (left, right))
    shape = (*left[:-1], right[-1])
    got = result("matmul", dtype, shape, [a, b], layout)
    for *batch, i, j in np.ndindex(shape):
        row, column = a.view()[(*batch, i)].tolist(), b.view()[(*batch, slice(None), j)].tolist()
        want = sum(u * v for u, v in zip(row, column))
        assert got[(*batch, i, j)] == (want if dtype.category == FLOATING else wrap(want, dtype))


def test_matmul_of_expanded_operands() -> None:
    ones = Placed([[1.0]], float32).expanded((30, 40))
    b = Placed([np.arange(40.0)[:, None]], float32).expanded((2, 40, 1))
    a = Placed(np.ones((2, 30, 40)), float32)
    assert (result("matmul", float32, (2, 30, 1), [a, b]) == 780).all()
    assert (result("matmul", float32, (30, 30), [ones, Placed(np.ones((40, 30)), float32)]) == 40).all()


# --- Indexing, sort, arange -----------------------------------------------------------------------------------------


INDICES = [[[0, 2, -1], [1, -3, 0]], [[1, 1, 1], [0, 0, 0]]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_gather_and_scatter(dtype: DType, dim: int, layout: str) -> None:
    """`x` is larger than the index in every dim."""
    values = np.random.default_rng(5).integers(0, 2 if dtype is bool_ else 100, (3, 4, 5))
    x, index = Placed(values, dtype, layout), Placed(INDICES, int64, layout)
    src = Placed(values[:2, :2, :3] + 1, dtype, layout)
    gathered = result("gather", dtype, index.shape, [x, index], layout, dim=dim)
    added = x.view().astype(np.float64 if dtype.category == FLOATING else np.int64)
    for place in np.ndindex(index.shape):
        at = (*place[:dim], int(index.view()[place]), *place[dim + 1 :])
        assert gathered[place] == x.view()[at]
        added[at] += src.view()[place]
    out = Placed(values, dtype, layout)
    call("scatter_add", [out], [index, src], {"dim": dim})
    assert out.view().tolist() == added.astype(dtype.numpy).tolist()

    distinct = Placed(np.argsort(np.random.default_rng(6).random((2, 2, 3)), dim), int64, layout)
    want = x.view().copy()
    for place in np.ndindex(2, 2, 3):
        want[(*place[:dim], int(distinct.view()[place]), *place[dim + 1 :])] = src.view()[place]
    call("scatter", [x], [distinct, src], {"dim": dim})
    assert x.view().tolist() == want.tolist()


@pytest.mark.parametrize("dim", [0, 1])
def test_one_index_for_whole_slices(dim: int) -> None:
    table = np.arange(20.0).reshape(4, 5)
    line = [2, 0, -1, 2]
    x = Placed(table, float32, "gaps")
    index = Placed(np.reshape(line, (4, 1) if dim == 0 else (1, 4)), int64)
    shape = (4, 3) if dim == 0 else (3, 4)
    want = table[line, :3] if dim == 0 else table[:3, line]
    assert result("gather", float32, shape, [x, index.expanded(shape)], "gaps", dim=dim).tolist() == want.tolist()
    out = Placed(np.zeros((4, 5)), float32, "gaps")
    call("scatter_add", [out], [index, Placed(np.ones(shape), float32)], {"dim": dim})
    ones = out.view() if dim == 0 else out.view().T
    assert ones[:4, :3].tolist() == [[1] * 3, [0] * 3, [2] * 3, [0 if dim else 1] * 3]


@pytest.mark.parametrize("bad", [3, -4, 2**40])
@pytest.mark.parametrize("op", ["gather", "scatter", "scatter_add"])
@pytest.mark.parametrize("dtype", [float32, bfloat16], **ids)
def test_index_out_of_bounds(op: str, bad: int, dtype: DType) -> None:
    x = Placed(np.zeros((3, 2)), dtype)
    index = Placed([[0, 1], [bad, -5], [7, 0]], int64, "gaps")
    src = Placed(np.ones((3, 2)), dtype)
    with pytest.raises(IndexOutOfBounds) as caught:
        if op == "gather":
            result(op, dtype, (3, 2), [x, index], dim=0)
        else:
            call(op, [x], [index, src], {"dim": 0})
    assert (caught.value.index, caught.value.size) == (bad, 3)
    assert not x.view().any()


def test_index_into_nothing() -> None:
    empty, none = Placed(np.empty((0, 2)), float32), Placed(np.empty((0, 2)), int64)
    assert result("gather", float32, (0, 2), [empty, none], dim=0).shape == (0, 2)
    call("scatter_add", [Placed(np.ones((3, 2)), float32)], [none, empty], {"dim": 0})
    with pytest.raises(IndexOutOfBounds, match="index 0 is out of bounds for a dim of size 0"):
        result("gather", float32, (1, 2), [empty, Placed([[0, 0]], int64)], dim=0)


def test_indexing_0d() -> None:
    x, zero = Placed(2.5, float32), Placed(0, int64)
    assert result("gather", float32, (), [x, zero], dim=0).tolist() == 2.5
    call("scatter_add", [x], [zero, Placed(1.0, float32)], {"dim": 0})
    assert x.view().tolist() == 3.5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES, **ids)
def test_sort_is_stable_and_nan_is_largest(dtype: DType, dim: int, descending: bool, layout: str) -> None:
    array: Any = np.random.default_rng(7).integers(0, 2 if dtype is bool_ else 6, (20, 20))
    if dtype.category == FLOATING:
        array = np.array([-INF, -0.0, 0.0, 2.5, INF, NAN])[array]
    x = Placed(array, dtype, layout)
    values, indices = Placed(None, dtype, layout, x.shape), Placed(None, int64, layout, x.shape)
    call("sort", [values, indices], [x], {"dim": dim, "descending": descending})
    lines = x.view() if dim == 1 else x.view().T
    got = indices.view() if dim == 1 else indices.view().T
    sign = -1 if descending else 1

    def key(v: float) -> tuple[bool, float]:
        return (math.isnan(v) ^ descending, 0 if math.isnan(v) else sign * v)

    for line, order in zip(lines.tolist(), got.tolist()):
        assert order == sorted(range(20), key=lambda i: key(float(line[i])))
    np.testing.assert_array_equal(values.view(), np.take_along_axis(x.view(), indices.view(), dim))


def test_sort_0d_and_empty() -> None:
    for shape in ((), (0, 3)):
        x, indices = Placed(np.ones(shape), float32), Placed(None, int64, shape=shape)
        call("sort", [Placed(None, float32, shape=shape), indices], [x], {"dim": 0, "descending": True})
        assert not indices.view().any()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], **ids)
def test_arange(dtype: DType) -> None:
    start, step = (3.0, 0.1) if dtype.category == FLOATING else (100, 7)
    got = result("arange", dtype, (30,), [start, step], "gaps")
    if dtype.category == FLOATING:
        assert_close(got, [start + i * step for i in range(30)], dtype, 0.51)
    else:
        assert got.tolist() == [wrap(start + i * step, dtype) for i in range(30)]
    assert result("arange", dtype, (0,), [start, step]).shape == (0,)


# --- The backend ----------------------------------------------------------------------------------------------------


def test_a_kernel_for_every_primitive() -> None:
    assert set(KERNELS) == PRIMITIVES
    assert BACKEND.compile("conv2d", (), {}) is None


def test_no_kernel_where_the_op_takes_no_such_dtype() -> None:
    for op, dtype in [("exp", int32), ("div", int64), ("bitwise_not", float32), ("sub", bool_), ("matmul", bool_)]:
        operand = Operand(dtype, (2, 2), (2, 1))
        assert BACKEND.compile(op, (operand,) * 3 if op != "exp" else (operand,) * 2, {}) is None


def test_the_users_numpy_error_state_is_kept() -> None:
    with np.errstate(all="raise"):
        before = np.geterr()
        x, zero = Placed([1.0, 0.0, 1e30], float32), Placed([0.0, 0.0, 1e-30], float32)
        assert_close(result("div", float32, (3,), [x, zero]), [INF, NAN, INF], float32)
        assert np.geterr() == before
        with pytest.raises(ZeroDivisionError):
            result("remainder", int64, (1,), [Placed([1], int64), 0])
        assert np.geterr() == before


def test_memory() -> None:
    buffer = BACKEND.allocate(8, 0)
    assert (buffer.nbytes, buffer.modified) == (8, None)
    BACKEND.copy_in(buffer, 0, memoryview(bytes(range(8))))
    BACKEND.copy_in(buffer, 2, memoryview(np.array([-1], np.int16)))
    other = BACKEND.allocate(4, 0)
    BACKEND.copy(other, 1, buffer, 3, 3)
    BACKEND.copy(other, 0, buffer, 0, 0)
    data = bytearray(3)
    BACKEND.copy_out(other, 1, memoryview(data))
    assert data == bytes([255, 4, 5])
    view = BACKEND.host_view(buffer)
    view[0] = 77
    assert buffer.data[0] == 77
    assert BACKEND.data_ptr(buffer) == np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    empty = BACKEND.allocate(0, 0)
    BACKEND.copy_in(empty, 0, memoryview(b""))
    BACKEND.copy_out(empty, 0, memoryview(bytearray()))
    assert bytes(BACKEND.host_view(empty)) == b""


def test_from_host_shares_memory() -> None:
    array = np.zeros(3, np.float32)
    buffer = BACKEND.from_host(memoryview(array))
    assert isinstance(buffer, HostBuffer)
    assert buffer.nbytes == 12
    kernel = BACKEND.compile("fill", (Operand(float32, (2,), (1,)), Operand(float32, (), (), True)), {})
    assert kernel is not None
    kernel(buffer, 1, 2.5)
    assert array.tolist() == [0, 2.5, 2.5]
    nothing = BACKEND.from_host(memoryview(np.empty((0, 2))))
    assert nothing is not None
    assert nothing.nbytes == 0
    assert BACKEND.from_host(memoryview(b"read-only")) is None
    assert BACKEND.from_host(memoryview(array)[::2]) is None


@pytest.mark.parametrize("nbytes", [2**60, 2**63, 2**70])
def test_no_room(nbytes: int) -> None:
    with pytest.raises(MemoryError):
        BACKEND.allocate(nbytes, 0)


def test_the_plug_in_hook() -> None:
    from norch import numpy_backend

    backend = numpy_backend.norch_backend()
    assert (backend.device_type, backend.priority, backend.device_count()) == ("cpu", -100, 1)
    assert numpy_backend.norch_backend.norch_impl  # type: ignore[attr-defined]
