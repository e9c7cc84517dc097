"""Backend.program as a CUDA graph: what its kernels compute one by one, whatever changes from run to run."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

import norch
from norch.backend import Fed, Operand, Place
from norch.dtype import bfloat16, float32, int64

RNG = np.random.default_rng(5)
N = 1000
VECTOR = Operand(float32, (N,), (1,))
NUMBER = Operand(float32, (), (), True)
KEY = Operand(int64, (), (), True)
INDEX = Operand(int64, (N,), (1,))


@pytest.fixture
def backend(cuda):
    return norch.device(cuda).backend


def matrix(rows, columns, dtype=float32):
    return Operand(dtype, (rows, columns), (columns, 1))


def buffer_of(backend, array):
    buffer = backend.allocate(array.nbytes, 0)
    backend.copy_in(buffer, 0, memoryview(array).cast("B"))
    return buffer


def values(backend, buffer, dtype=np.float32):
    out = np.empty(buffer.nbytes // np.dtype(dtype).itemsize, dtype)
    backend.copy_out(buffer, 0, memoryview(out).cast("B"))
    return out


def one_by_one(calls, buffers, numbers=()):
    for call, arguments in calls:
        call(*[buffers[a] if type(a) is Place else numbers[a] if type(a) is Fed else a for a in arguments])


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


# --- Streams, threads, memory ----------------------------------------------------------------------------------------


def increments(backend, count=20, big=1 << 22):
    """Calls that add 1 to place 1 `count` times, by way of scratch memory; place 2 is that plus Fed(0). All slow."""
    vector = Operand(float32, (big,), (1,))
    add = backend.compile("add", (vector, vector, NUMBER), {})
    calls = [(add, (Place(0), 0, Place(1), 0, 1.0)), *[(add, (Place(0), 0, Place(0), 0, 1.0))] * (count - 2)]
    return [*calls, (add, (Place(1), 0, Place(0), 0, 1.0)), (add, (Place(2), 0, Place(1), 0, Fed(0)))], 4 * big


def test_runs_on_several_streams_come_one_after_the_other(backend):
    calls, size = increments(backend)
    run = backend.program(calls, size, [None] * 3, 0)
    streams = [norch.cuda.current_stream(), norch.cuda.Stream(), norch.cuda.Stream()]
    buffers = [buffer_of(backend, np.full(size // 4, 100 * i, np.float32)) for i in range(3)]
    results = [backend.allocate(size, 0) for _ in range(3)]
    norch.cuda.synchronize()
    for turn in range(4):
        for i in (0, 1, 2):
            with norch.cuda.stream(streams[i]):
                run((None, buffers[i], results[i]), (turn,))
    norch.cuda.synchronize()
    for i in range(3):
        assert set(values(backend, buffers[i])) == {100 * i + 80}
        assert set(values(backend, results[i])) == {100 * i + 83}


def test_a_program_may_go_while_it_runs(backend):
    """And the next one takes its memory."""
    calls, size = increments(backend)
    streams = [norch.cuda.current_stream(), norch.cuda.Stream()]
    found = []
    for turn in range(12):
        run = backend.program(calls, size, [None] * 3, 0)
        buffer, result = buffer_of(backend, np.full(size // 4, turn, np.float32)), backend.allocate(size, 0)
        norch.cuda.synchronize()
        with norch.cuda.stream(streams[turn % 2]):
            for _ in range(3):
                run((None, buffer, result), (turn,))
        del run, buffer
        gc.collect()
        found.append((turn, result))
    norch.cuda.synchronize()
    for turn, result in found:
        assert set(values(backend, result)) == {2 * turn + 60}


def test_cached_memory_is_given_back_but_for_a_programs_own(backend):
    sums = backend.compile("sum", (Operand(float32, (), ()), Operand(float32, (1 << 22,), (1,))), {"dims": (0,)})
    run = backend.program([(sums, (Place(2), 0, Place(1), 0))], 0, [None] * 3, 0)
    x, out = buffer_of(backend, np.ones(1 << 22, np.float32)), backend.allocate(4, 0)
    for _ in range(4):
        run((None, x, out), ())
        norch.cuda.empty_cache()
        others = [norch.full((1 << 20,), 7.0, device="cuda") for _ in range(8)]
        run((None, x, out), ())
        assert values(backend, out)[0] == 1 << 22
        assert all(o.amin().item() == 7 for o in others)


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


def test_many_threads_each_with_a_program(backend):
    add, failures = backend.compile("add", (VECTOR, VECTOR, NUMBER), {}), []

    def work(number):
        stream = norch.cuda.Stream()
        calls = [(add, (Place(0), 0, Place(1), 0, Fed(0)))] + [(add, (Place(0), 0, Place(0), 0, Fed(0)))] * 28
        run = backend.program([*calls, (add, (Place(1), 0, Place(0), 0, Fed(0)))], 4 * N, [None] * 2, 0)
        with norch.cuda.stream(stream):
            buffer = buffer_of(backend, np.zeros(N, np.float32))
            for turn in range(30):
                run((None, buffer), (number + turn % 2,))
            failures.extend(v for v in values(backend, buffer) if v != 30 * (30 * number + 15))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_graphs_of_the_user_keep_their_memory_and_may_go_while_another_is_recorded(cuda):
    x = norch.ones(1 << 20, device=cuda)
    first, second = norch.cuda.CUDAGraph(), norch.cuda.CUDAGraph()
    with norch.cuda.graph(first):
        y = (x + 1) * 2
    norch.cuda.empty_cache()
    others = [norch.full((1 << 20,), 7.0, device=cuda) for _ in range(4)]
    first.replay()
    assert y[0].item() == 4
    assert all(o.amin().item() == 7 for o in others)
    del first
    with norch.cuda.graph(second):
        z = x * 3
        del y  # the last of what the first graph made
        norch.cuda.empty_cache()
        z = z + 1
    second.replay()
    assert z[5].item() == 4


# --- Whole steps -----------------------------------------------------------------------------------------------------


def twins(make):
    """Two equal models with their optimisers."""
    out = []
    for _ in range(2):
        norch.manual_seed(3)
        out.append(make())
    return out


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "Adam", "RMSprop"])
def test_a_captured_step_trains_as_eager_does(cuda, optimizer):
    nn, optim = pytest.importorskip("norch.nn"), pytest.importorskip("norch.optim")

    def make():
        model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.2), nn.Linear(256, 10)).to(cuda)
        return model, getattr(optim, optimizer)(model.parameters(), lr=0.01)

    batches = [(norch.randn(32, 64), norch.randint(0, 10, (32,))) for _ in range(12)]
    losses = []
    for captured, (model, steps) in zip((False, True), twins(make), strict=True):
        criterion = nn.CrossEntropyLoss()

        def step(x, y, model=model, steps=steps, criterion=criterion):
            loss = criterion(model(x), y)
            steps.zero_grad()
            loss.backward()
            steps.step()
            return loss.detach()

        run = norch.capture(step) if captured else step
        norch.manual_seed(7)
        found = []
        for turn, (x, y) in enumerate(batches):
            steps.param_groups[0]["lr"] = 0.01 / (turn + 1)
            found.append(run(x.to(cuda), y.to(cuda)))
        losses.append([loss.item() for loss in found] + [p.sum().item() for p in model.parameters()])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("places", [7, 1000, 300_000])  # the memory of the last is cleared by a memset
def test_what_kernels_clear(cuda, places):
    def add(x, at):
        return norch.zeros(places, device=cuda).index_add(0, at, x)

    step = norch.capture(add)
    for run in range(6):
        x = norch.tensor(RNG.standard_normal(5000).astype(np.float32)).to(cuda)
        at = norch.tensor(RNG.integers(0, min(places, 50 + 20 * run), 5000)).to(cuda)
        assert np.array_equal(step(x, at).cpu().numpy(), add(x, at).cpu().numpy())
    assert step.report().replayed
