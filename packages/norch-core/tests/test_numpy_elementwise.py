"""The elementwise kernels of the NumPy reference backend, against Python's numbers: every dtype and layout."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_harness import (
    BACKEND,
    FLOATS,
    INF,
    INTS,
    LAYOUTS,
    NAN,
    Placed,
    assert_close,
    call,
    grid,
    ids,
    result,
    wrap,
)

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
from norch.numpy_backend.elementwise import UNARY


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
    expected = (FLOAT_BINARY if dtype.category == FLOATING else INT_BINARY)[op](7, 2)
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
    want = [(FLOAT_UNARY | FLOAT_BINARY)[op](*[v] * len(inputs)) for v in (0.5, 2.0, 3.0)]
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


@pytest.mark.parametrize("op", sorted(UNARY))
def test_unary_in_place_at_every_stride(op: str) -> None:
    """NumPy chooses a loop by the strides in bytes: np.negative chose a wrong one."""
    for dtype, rule in [(d, UNARY[op][d.category]) for d in DTYPES]:
        if rule is None:
            continue
        dense = Placed(np.linspace(-0.9, 0.9, 19) if dtype.category == FLOATING else np.arange(19), dtype)
        want = result(op, dtype, dense.shape, [dense]).astype(float)
        for stride in range(1, 10):
            block = Placed(np.zeros((19, stride)), dtype)
            column = block.view()[:, -1]
            column[:] = dense.view()
            operand = Operand(dtype, dense.shape, (stride,))
            kernel = BACKEND.compile(op, (operand, operand), {})
            assert kernel is not None
            kernel(block.buffer, stride - 1, block.buffer, stride - 1)
            np.testing.assert_allclose(column.astype(float), want, 1e-2, err_msg=f"{dtype}, stride {stride}")


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
