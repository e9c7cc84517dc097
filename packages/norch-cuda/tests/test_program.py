"""Backend.program as a CUDA graph: what its kernels compute one by one, whatever changes from run to run."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from program_harness import INDEX, KEY, NUMBER, VECTOR, N, buffer_of, matrix, one_by_one, values

import norch
from norch.backend import Fed, Operand, Place
from norch.dtype import bfloat16, float32, int64

RNG = np.random.default_rng(5)


@pytest.fixture
def backend(cuda):
    return norch.device(cuda).backend


def compare(backend, calls, places, bound=(), scratch=0, runs=6, numbers=lambda run: (), sizes=None):
    """Runs a program and its calls on equal buffers, those of places that are not bound new ones each time."""
    sizes = sizes or [4 * N] * places
    make = lambda n: buffer_of(backend, RNG.integers(0, 4, n // 4).astype(np.float32))  # noqa: E731
    fixed = {place: make(sizes[place]) for place in bound}
    twins = {place: buffer_of(backend, values(backend, fixed[place])) for place in bound}
    run = backend.program(calls, scratch, [fixed.get(place) for place in range(places)], 0)
    kept = []
    for number in range(runs):
        buffers: list = [None] * places
        expected: list = [backend.allocate(max(scratch, 1), 0)] + [None] * (places - 1)
        for place in range(1, places):
            if place in fixed:
                buffers[place], expected[place] = fixed[place], twins[place]
            else:
                buffers[place] = make(sizes[place])
                expected[place] = buffer_of(backend, values(backend, buffers[place]))
        run(buffers, numbers(number))
        one_by_one(calls, expected, numbers(number))
        for place in range(1, places):
            np.testing.assert_array_equal(
                values(backend, buffers[place], np.uint32),
                values(backend, expected[place], np.uint32),
                str((number, place)),
            )
        kept.append(buffers)
    return run


@pytest.fixture
def mixed(backend):
    """Calls of many kernels, as a step has them: views, halves of a buffer, products, reductions, numbers."""
    half, every_second = Operand(float32, (N // 2,), (1,)), Operand(float32, (N // 2,), (2,))
    total, square, turned = Operand(float32, (1,), (1,)), matrix(20, 20), Operand(float32, (20, 20), (1, 20))
    kernel = lambda op, *operands, **attrs: backend.compile(op, operands, attrs)  # noqa: E731
    return [
        (kernel("mul", VECTOR, VECTOR, NUMBER), (Place(0), 0, Place(1), 0, 1.5)),
        (kernel("tanh", VECTOR, VECTOR), (Place(0), N, Place(0), 0)),
        (kernel("add", half, every_second, half), (Place(2), 0, Place(0), N, Place(1), N // 2)),
        (kernel("matmul", square, square, turned), (Place(3), 0, Place(2), 0, Place(2), 100)),
        (kernel("sum", total, VECTOR, dims=(0,)), (Place(4), 1, Place(0), N)),
        (kernel("fill", total, NUMBER), (Place(4), 0, Fed(1))),
        (kernel("pow", half, half, NUMBER), (Place(2), N // 2, Place(2), 0, Fed(0))),
    ]


@pytest.mark.parametrize("bound", [(), (1,), (1, 2), (1, 2, 3, 4)])
def test_it_computes_what_its_kernels_do(backend, mixed, bound):
    feeds = [(2.0, 7.0), (2.0, 7.0), (3, 0.5), (0.5, -1), (0.5, -1), (1.0, 0.0)]
    run = compare(backend, mixed, 5, bound, 8 * N, numbers=feeds.__getitem__, sizes=[0, 4 * N, 4 * N, 1600, 8])
    assert run.recorded == 1


def test_what_stays_is_not_changed(backend, mixed):
    buffers = [None, *(buffer_of(backend, RNG.random(n, dtype=np.float32)) for n in (N, N, 400, 2))]
    run = backend.program(mixed, 8 * N, [None] * 5, 0)
    run(buffers, (2.0, 3.0))  # call by call
    assert (run.recorded, run.changed) == (0, 0)
    for _ in range(3):
        run(tuple(buffers), [2.0, 3.0])
    assert (run.recorded, run.changed) == (1, 0)
    run(buffers, (2.0, 4.0))
    assert (run.recorded, run.changed) == (1, 1)
    buffers[4] = backend.allocate(8, 0)
    run(buffers, (2.0, 4.0))
    assert (run.recorded, run.changed) == (1, 3)  # sum and fill


def test_a_bound_buffer_may_change(backend, mixed):
    buffers = [None, *(buffer_of(backend, RNG.random(n, dtype=np.float32)) for n in (N, N, 400, 2))]
    run = backend.program(mixed, 8 * N, buffers, 0)
    for _ in range(3):
        run(buffers, (2.0, 3.0))
    for _ in range(3):
        buffers[1] = buffer_of(backend, RNG.random(N, dtype=np.float32))
        run(buffers, (2.0, 3.0))
        expected = [backend.allocate(8 * N, 0), *(backend.allocate(b.nbytes, 0) for b in buffers[1:])]
        expected[1] = buffers[1]
        one_by_one(mixed, expected, (2.0, 3.0))
        for a, b in zip(buffers[1:], expected[1:], strict=True):
            np.testing.assert_array_equal(values(backend, a), values(backend, b))
    assert run.recorded == 2  # it counts as one that changes from then on


def test_random_numbers_advance_with_what_they_are_fed(backend):
    calls = [
        (backend.compile("random", (VECTOR, KEY, KEY), {"kind": "normal"}), (Place(1), 0, Fed(0), Fed(1))),
        (
            backend.compile("dropout", (VECTOR, VECTOR, NUMBER, KEY, KEY), {}),
            (Place(2), 0, Place(1), 0, 0.5, Fed(0), Fed(2)),
        ),
    ]
    feeds = [(1, 0, 250), (1, 500, 750), (1, 1000, 1250), (2**64 - 1, 0, 2**40), (7, 2**63, 1)]
    run = compare(backend, calls, 3, runs=5, numbers=feeds.__getitem__)
    assert run.recorded == 1
    compare(backend, calls, 3, (1, 2), runs=5, numbers=feeds.__getitem__)


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
def test_products_of_a_library_whose_operands_change(backend, dtype):
    rows, inner, columns = 256, 512, 384
    size = dtype.itemsize
    out, x, w = matrix(rows, columns, dtype), matrix(rows, inner, dtype), matrix(inner, columns, dtype)
    calls = [
        (backend.compile("matmul", (out, x, w), {}), (Place(3), 0, Place(1), 0, Place(2), 0)),
        (backend.compile("neg", (out, out), {}), (Place(3), 0, Place(3), 0)),
        (backend.compile("matmul", (out, x, w), {}), (Place(4), 0, Place(1), 0, Place(2), 0)),
    ]
    sizes = [0, rows * inner * size, inner * columns * size, rows * columns * size, rows * columns * size]
    for bound in [(), (2,), (1, 2), (3,)]:
        run = compare(backend, calls, 5, bound, sizes=sizes)
        assert run.recorded == 1


def test_kernels_of_several_launches_whose_operands_change(backend):
    """Clearing, sorting by a library, sums in two stages."""
    big, keys, one = Operand(float32, (1 << 16,), (1,)), Operand(int64, (1 << 16,), (1,)), Operand(float32, (), ())
    calls = [
        (
            backend.compile("sort", (big, keys, big), {"dim": 0, "descending": False}),
            (Place(1), 0, Place(2), 0, Place(3), 0),
        ),
        (backend.compile("sum", (one, big), {"dims": (0,)}), (Place(4), 0, Place(1), 0)),
        (backend.compile("scatter_add", (big, keys, big), {"dim": 0}), (Place(1), 0, Place(2), 0, Place(3), 0)),
    ]
    if any(kernel is None for kernel, _ in calls):
        pytest.skip("another form of these ops")
    run = compare(backend, calls, 5, sizes=[0, 1 << 18, 1 << 19, 1 << 18, 4])
    assert run.recorded == 1


@pytest.mark.parametrize("bound", [(), (2, 3)])
def test_attention_whose_operands_change(backend, bound):
    """Its kernels for Hopper get addresses inside of descriptors of tensors."""
    batch, length, size = (2, 3), 130, 64
    heads = Operand(bfloat16, (*batch, length, size), (3 * length * size, length * size, size, 1))
    sums = Operand(float32, (*batch, length), (3 * length, length, 1))
    attrs = {"is_causal": True, "scale": 0.125}
    forward = backend.compile("scaled_dot_product_attention_sums", (heads, sums, *[heads] * 3), attrs)
    backward = backend.compile("scaled_dot_product_attention_sums_grad", (*[heads] * 8, sums), attrs)
    query, key, value, grad, out, totals, *found = [(Place(i), 0) for i in range(1, 10)]
    calls = [
        (forward, (*out, *totals, *query, *key, *value)),
        (backward, (*found[0], *found[1], *found[2], *grad, *query, *key, *value, *out, *totals)),
    ]
    whole = 6 * length * size * 2
    run = compare(backend, calls, 10, bound, sizes=[0, *[whole] * 5, 6 * length * 4, *[whole] * 3])
    assert run.recorded == 1


@pytest.mark.parametrize("bound", [(), (1, 2, 3)])
def test_calls_that_may_run_side_by_side_wait_for_what_they_need(backend, bound):
    """Of windows of a few buffers, scratch memory among them, and of sums that take scratch memory of their own."""
    n, windows = 1 << 17, 5
    vector, total = Operand(float32, (n,), (1,)), Operand(float32, (1,), (1,))
    square = matrix(256, 512)
    kernels = {
        "add": backend.compile("add", (vector, vector, vector), {}),
        "sum": backend.compile("sum", (total, vector), {"dims": (0,)}),
        "matmul": backend.compile("matmul", (matrix(256, 256), square, Operand(float32, (512, 256), (1, 512))), {}),
        "clamp": backend.compile("clamp", (vector, vector, NUMBER, NUMBER), {}),
    }

    def window():
        return (Place(int(RNG.integers(4))), int(RNG.integers(windows)) * (n // 2))

    for _ in range(4):
        calls = []
        for _ in range(60):
            op = str(RNG.choice(["add", "add", "sum", "matmul", "clamp"]))
            operands = {"add": 3, "sum": 2, "matmul": 3, "clamp": 2}[op]
            reads = [window() for _ in range(operands - 1)]
            out = window()
            while any(out[0] == place and abs(out[1] - at) < n for place, at in reads):
                out = window()
            flat = [x for pair in (out, *reads) for x in pair]
            calls.append((kernels[op], tuple(flat + ([-100.0, Fed(0)] if op == "clamp" else []))))
        size = 4 * n * (windows + 1) // 2
        numbers = [(100.0,), (50.0,), (20.0,), (20.0,)]
        run = compare(backend, [*begun(backend, size), *calls], 4, bound, size, 4, numbers.__getitem__, [size] * 4)
        assert run.recorded == 1


def begun(backend, size):
    """A call that gives scratch memory a value."""
    fill = backend.compile("fill", (Operand(float32, (size // 4,), (1,)), NUMBER), {})
    return [(fill, (Place(0), 0, 1.0))]


def test_places_may_have_the_same_memory(backend):
    n = 1 << 20
    vector = Operand(float32, (n,), (1,))
    add = backend.compile("add", (vector, vector, NUMBER), {})
    calls = [(add, (Place(1), 0, Place(1), 0, 1.0)), (add, (Place(2), 0, Place(2), 0, 1.0))] * 8
    run = backend.program(calls, 0, [None] * 3, 0)
    one, two = (buffer_of(backend, np.zeros(n, np.float32)) for _ in range(2))
    for _ in range(3):
        run((None, one, two), ())
    for _ in range(3):
        run((None, one, one), ())
    for _ in range(2):
        run((None, two, one), ())
    assert set(values(backend, one)) == {24 + 48 + 16}
    assert set(values(backend, two)) == {24 + 16}


def test_a_program_of_no_work(backend):
    run = backend.program([], 0, [None], 0)
    empty = Operand(float32, (0,), (1,))
    other = backend.program(
        [(backend.compile("neg", (empty, empty), {}), (Place(1), 0, Place(1), 0))], 0, [None] * 2, 0
    )
    for _ in range(4):
        assert run((None,), ()) is None
        assert other((None, backend.allocate(4, 0)), ()) is None


def test_a_run_allocates_nothing(backend, mixed):
    buffers = [None, *(buffer_of(backend, RNG.random(n, dtype=np.float32)) for n in (N, N, 400, 2))]
    run = backend.program(mixed, 8 * N, [None] * 5, 0)
    for number in range(3):
        run(buffers, (number, 3.0))
    before = norch.cuda.memory_stats()
    for number in range(20):
        run(buffers, (number, 3.0))
    after = norch.cuda.memory_stats()
    assert after["cuda_allocations"] == before["cuda_allocations"]
    assert after["allocated_bytes"] == before["allocated_bytes"]
    del run
    gc.collect()
    assert norch.cuda.memory_stats()["allocated_bytes"] < before["allocated_bytes"]


# --- What it refuses, and what kernels report ------------------------------------------------------------------------


def test_what_is_no_kernel_of_its_own_is_left_to_core(backend):
    for other in (lambda *args: None, len):
        assert backend.program([(other, (Place(1), 0))], 0, [None] * 2, 0) is None


def test_buffers_that_do_not_do(backend):
    neg = backend.compile("neg", (VECTOR, VECTOR), {})
    run = backend.program([(neg, (Place(1), 0, Place(2), 10))], 0, [None] * 3, 0)
    good, small = backend.allocate(4 * N + 40, 0), backend.allocate(4 * N + 36, 0)
    for _ in range(3):
        run((None, good, good), ())
        with pytest.raises(ValueError, match="place 2: the program needs 4040 bytes, the buffer has 4036"):
            run((None, good, small), ())
        with pytest.raises(TypeError, match="place 2: expected"):
            run((None, good, bytearray(5000)), ())
        with pytest.raises(TypeError, match="3 places got 2"):
            run((None, good), ())
    fill = backend.compile("fill", (VECTOR, NUMBER), {})
    run = backend.program([(fill, (Place(1), 0, Fed(0)))], 0, [None] * 2, 0)
    for number in (1.0, 2.0, 3.0, 4.0):
        with pytest.raises(TypeError):
            run((None, good), ("3",))
        with pytest.raises(TypeError, match="fed 1 numbers got 0"):
            run((None, good), ())
        run((None, good), (number,))
        assert values(backend, good)[N - 1] == number


def test_an_index_out_of_range_is_reported_when_it_is_waited_for(backend):
    gather = backend.compile("gather", (VECTOR, VECTOR, INDEX), {"dim": 0})
    run = backend.program([(gather, (Place(3), 0, Place(1), 0, Place(2), 0))], 0, [None] * 4, 0)
    x, out = buffer_of(backend, np.ones(N, np.float32)), backend.allocate(4 * N, 0)
    good, bad = buffer_of(backend, np.zeros(N, np.int64)), buffer_of(backend, np.full(N, N))
    for index in (good, good, bad, good, bad):
        run((None, x, index, out), ())
        if index is bad:
            with pytest.raises(IndexError, match=f"index {N} is out of bounds"):
                norch.cuda.synchronize()
        else:
            assert values(backend, out).tolist() == [1] * N


def test_no_memory_for_scratch(backend):
    neg = backend.compile("neg", (VECTOR, VECTOR), {})
    run = backend.program([(neg, (Place(0), 0, Place(1), 0))], 1 << 46, [None] * 2, 0)
    for _ in range(3):
        with pytest.raises(MemoryError):
            run((None, backend.allocate(4 * N, 0)), ())


def test_it_is_not_part_of_a_graph_of_the_user(backend):
    neg, buffer = backend.compile("neg", (VECTOR, VECTOR), {}), backend.allocate(4 * N, 0)
    run = backend.program([(neg, (Place(1), 0, Place(1), 0))], 0, [None] * 2, 0)
    for _ in range(3):
        with (
            pytest.raises(ValueError, match=r"cannot be recorded in a graph"),
            norch.cuda.graph(norch.cuda.CUDAGraph()),
        ):
            run((None, buffer), ())
        run((None, buffer), ())
