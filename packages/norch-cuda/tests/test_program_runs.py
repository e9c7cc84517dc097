"""Programs on streams, in threads, with graphs of the user and with memory that is given back; whole captured steps."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
from program_harness import NUMBER, VECTOR, N, buffer_of, values

import norch
from norch.backend import Fed, Operand, Place
from norch.dtype import float32

RNG = np.random.default_rng(5)


@pytest.fixture
def backend(cuda):
    return norch.device(cuda).backend


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


class Cache:
    """Of keys and values, as the fixed-size one of a language model."""

    def __init__(self, layers, rows):
        self.layers = [[norch.zeros(2, rows, 64, device="cuda") for _ in "kv"] for _ in range(layers)]
        self.length = norch.tensor(0, device="cuda")


def test_a_cache_after_another_takes_over_its_graph(cuda):
    """The graph is made for the second one again, and gets only other arguments for those after it."""
    weights = values_of(4, 64, 64)

    def decode(x, cache):
        at = cache.length.view(1)
        for (keys, held), weight in zip(cache.layers, weights, strict=True):
            keys.index_copy_(1, at, x @ weight)
            held.index_copy_(1, at, x)
            x = norch.scaled_dot_product_attention(x, keys, held).tanh() + x
        cache.length.add_(1)
        return x

    step = norch.capture(decode)
    for turn in range(5):
        cache, other = Cache(4, 24), Cache(4, 24)
        for x in values_of(20, 2, 1, 64) + turn:
            assert step(x, cache).cpu().numpy().tobytes() == decode(x, other).cpu().numpy().tobytes()
        for ours, theirs in zip(cache.layers, other.layers, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                assert a.cpu().numpy().tobytes() == b.cpu().numpy().tobytes()
    report = step.report()
    assert (report.eager, len(report.programs)) == (1, 1), str(report)
    assert report.replayed >= 88, str(report)


def values_of(*shape):
    return norch.tensor(RNG.uniform(-1, 1, shape).astype(np.float32), device="cuda")
