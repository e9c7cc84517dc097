"""The other kernels of the NumPy reference backend, and the backend itself, against Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kernel_harness import (
    BACKEND,
    DIGITS,
    FLOATS,
    INF,
    INTS,
    LAYOUTS,
    NAN,
    Placed,
    assert_close,
    call,
    ids,
    result,
    wrap,
)

from norch.backend.contract import PRIMITIVES, IndexOutOfBounds, Operand
from norch.dtype import (
    DTYPES,
    FLOATING,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    int32,
    int64,
)
from norch.numpy_backend.backend import KERNELS, HostBuffer

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
    assert values.view().tobytes() == np.take_along_axis(x.view(), indices.view(), dim).tobytes()


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
    assert numpy_backend.norch_backend.norch_impl
