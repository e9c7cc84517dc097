"""Objects that a captured step is given, makes or returns: caches of keys and values, outputs of models."""

import gc
from dataclasses import dataclass
from itertools import count as count_up
from weakref import ref

import pytest

import norch


class Layer:
    """As the caches of language models are."""

    def __init__(self):
        self.keys = None
        self.length = 0


class Growing:
    def __init__(self, layers=2):
        self.layers = [Layer() for _ in range(layers)]

    def update(self, at, x):
        layer = self.layers[at]
        layer.keys = x if layer.keys is None else norch.cat([layer.keys, x])
        return layer.keys


class Fixed:
    def __init__(self, device, rows=40):
        self.keys = norch.zeros(rows, 3, device=device)
        self.length = norch.tensor(0, device=device)

    def update(self, x):
        at = norch.arange(x.shape[0], device=x.device) + self.length
        self.length.add_(x.shape[0])
        self.keys.index_copy_(0, at, x)
        return self.keys


@dataclass
class Output:
    out: object
    cache: object = None
    more: object = None


def rows(i, device):
    return norch.full((1, 3), float(i), device=device)


def test_objects_that_it_makes_are_made_by_each_replay(device):
    def model(x):
        cache = Growing()
        for at in range(2):
            x = cache.update(at, x * (at + 2)) + 1
        return Output(x, cache, more={"layers": cache.layers, "same": cache, "kind": Layer, "count": 3})

    run = norch.capture(model)
    kept = [(model(rows(i, device)), run(rows(i, device))) for i in range(8)]
    assert run.report().replayed == 5, str(run.report())
    for wanted, got in kept:
        assert type(got) is Output
        assert type(got.cache) is Growing
        assert got.out.tolist() == wanted.out.tolist()
        assert [y.keys.tolist() for y in got.cache.layers] == [y.keys.tolist() for y in wanted.cache.layers]
        assert got.more["layers"] is got.cache.layers
        assert got.more["same"] is got.cache
        assert got.more["kind"] is Layer
        assert [y.length for y in got.cache.layers] == [0, 0]
    assert len({id(got.cache) for _, got in kept}) == 8


def test_a_backward_pass_goes_through_objects(device):
    w = norch.ones(3, device=device, requires_grad=True)

    @norch.capture
    def model(x):
        cache = Growing(1)
        return Output(cache.update(0, x * w).sum(), cache)

    for i in range(7):
        w.grad = None
        out = model(rows(i, device))
        (out.out + out.cache.layers[0].keys.sum()).backward()
        assert w.grad.tolist() == [2.0 * i] * 3
    assert model.report().replayed >= 3, str(model.report())


def test_an_object_that_it_is_given_and_returns_is_that_object(device):
    @norch.capture
    def decode(x, cache):
        keys = cache.update(x)
        return Output(keys.sum(0), cache)

    cache = Fixed(device)
    for i in range(10):
        out = decode(rows(i + 1, device), cache)
        assert out.cache is cache
        assert out.out.tolist() == [sum(range(i + 2))] * 3
    assert cache.length.item() == 10
    assert decode.report().replayed == 7, str(decode.report())


def test_an_object_that_was_there_is_itself(device):
    class Model:
        def __init__(self):
            self.config = Growing(0)

        def __call__(self, x):
            return Output(x * 2, self.config)

    model = Model()
    run = norch.capture(lambda x: model(x))
    for _ in range(8):
        out = run(norch.ones(3, device=device))
        assert out.cache is model.config
    assert run.report().replayed >= 4, str(run.report())
    del out
    model.config = Growing(0)
    for _ in range(5):
        assert run(norch.ones(3, device=device)).cache is model.config


def test_what_it_makes_is_not_kept_alive(device):
    @norch.capture
    def model(x):
        cache = Growing(1)
        return Output(cache.update(0, x * 2), cache)

    for _ in range(5):
        out = model(rows(1, device))
    alive = [thing for thing in gc.get_objects() if type(thing) is Growing]
    assert alive == [out.cache]
    del out, alive
    assert not any(type(thing) is Growing for thing in gc.get_objects())


def test_a_list_that_is_kept_and_returned_is_refused(device):
    kept = []

    class Model:
        def __call__(self, x):
            self.outs = [x * 2]
            return self.outs

    model = Model()
    run = norch.capture(lambda x: model(x))
    for i in range(6):
        out = run(rows(i, device))
        assert out is model.outs
        kept.append(out)
    assert [out[0].tolist() for out in kept] == [[[2.0 * i] * 3] for i in range(6)]
    assert "is kept after it" in str(run.report())


def test_a_tensor_in_two_attributes(device):
    class Model:
        def __call__(self, x):
            self.last = self.again = x * 2
            return self.last.sum()

    model = Model()
    run = norch.capture(lambda x: model(x))
    for i in range(6):
        run(rows(i, device))
        assert model.last is model.again
        assert model.again.tolist() == [[2.0 * i] * 3]
    assert run.report().replayed == 3


def test_a_text_of_an_object_that_changes_is_refused(device):
    @norch.capture
    def step(x, layer):
        layer.length = f"{layer.length}1"
        return x * 2

    layer = Layer()
    for _ in range(8):
        step(rows(1, device), layer)
    assert layer.length == "011111111"
    assert "the step changes `Layer.length`" in str(step.report())


def generate(step, device, tokens):
    cache = Growing()
    return [step(rows(i, device), cache).out.tolist() for i in range(tokens)]


def growing(x, cache):
    for at in range(2):
        x = cache.update(at, x * 2).sum(0, keepdim=True)
    return Output(x, cache)


def test_a_growing_cache_is_soon_left_as_it_is(device):
    run, wanted = norch.capture(growing), generate(growing, device, 12)
    for _ in range(12):
        assert generate(run, device, 12) == wanted
    report = run.report()
    assert report.recorded <= 8, str(report)
    assert "others like it: not replayed" in str(report)


def test_shapes_in_turn_are_not_recorded_again_and_again(device):
    run = norch.capture(lambda x: x * 2)
    for _ in range(10):
        for n in range(1, 13):
            assert run(norch.ones(n, device=device)).tolist() == [2.0] * n
    assert run.report().recorded <= 24, str(run.report())


def test_a_cache_that_goes_takes_its_program_with_it(device):
    @norch.capture
    def decode(x, cache):
        return cache.update(x).sum(0)

    for _ in range(3):
        cache = Fixed(device, 80)
        for i in range(75):
            assert decode(rows(1, device), cache).tolist() == [i + 1] * 3
    report = decode.report()
    assert len(report.programs) == 1
    assert report.recorded <= 9, str(report)
    assert report.replayed > 200


@pytest.mark.parametrize("value", [bytearray(2), {1, 2}, iter(())], ids=lambda value: type(value).__name__)
def test_what_no_replay_can_return(value, device):
    class Model:
        def __call__(self, x):
            return Output(x * 2, type(value)())

    model = Model()
    if type(value) is type(iter(())):
        model = lambda x: Output(x * 2, iter([1]))  # noqa: E731
    run = norch.capture(lambda x: model(x))
    for _ in range(5):
        assert type(run(rows(1, device)).cache) in (type(value), type(iter([])))
    assert "neither a tensor nor a number" in str(run.report())


class Scale:
    def __init__(self, by):
        self.by = by


def test_calls_with_objects_values_and_keywords(device):
    @norch.capture
    def step(x, scale, flag, *, n=1):
        return x * scale.by + (n if flag is True else 10 * n)

    kept = Scale(2)
    for i in range(40):
        x = norch.ones(3, device=device)
        assert step(x, kept, True, n=3).tolist() == [5] * 3
        assert step(x, kept, 1, n=3).tolist() == [32] * 3
        assert step(x, scale=kept, n=3, flag=True).tolist() == [5] * 3
        if i % 8 == 0:
            other = None  # its place may be the next one's
            other = Scale(i)
        assert step(x, other, True).tolist() == [other.by + 1] * 3
    assert step.report().replayed > 110, str(step.report())


def test_lists_that_grow_leave_nothing_behind(device):
    """Each length is a signature of its own, of a family of its own."""
    step = norch.capture(lambda given: norch.stack(given).sum(0))
    given = []
    for _ in range(150):
        given.append(norch.ones(2, device=device))
        assert step(given).tolist() == [len(given)] * 2
    assert len(step.families) <= 64
    assert len(step.entries) <= 40


def test_objects_that_live_long_are_recorded_at_once():
    """Though programs of others like them came to nothing."""

    sizes = count_up(1)  # each has a step of its own

    class Cache:
        def __init__(self):
            self.total = norch.zeros(next(sizes), 3)

    step = norch.capture(lambda cache, x: cache.total.add_(x).mean())

    def eager_calls(count):
        cache, before = Cache(), step.eager
        for i in range(count):
            assert step(cache, norch.ones(3)).item() == i + 1
        return step.eager - before

    assert [eager_calls(20) for _ in range(5)][-1] == 20
    assert eager_calls(150) == 150
    assert eager_calls(150) < 20
    assert eager_calls(150) < 20


class Decoder:
    def __init__(self, device):
        self.run = norch.capture(self.decode)
        self.weight = norch.full((3,), 2.0, device=device)

    def decode(self, x, cache):
        return Output((cache.update(x) * self.weight).sum(0), cache)


def test_an_object_like_one_that_is_gone_takes_over_its_program(device):
    model, gone = Decoder(device), None
    for turn in range(6):
        cache = Fixed(device)
        for i in range(8):
            out = model.run(rows(i + turn, device), cache)
            assert out.cache is cache
            assert out.out.tolist() == [2.0 * sum(range(turn, turn + i + 1))] * 3
        assert cache.length.item() == 8
        assert cache.keys[:9, 0].tolist() == [*range(turn, turn + 8), 0]
        assert gone is None or gone() is None  # the program holds nothing of the one before
        gone = ref(cache.keys.buffer)
        del out
    report = model.run.report()
    # Two recordings, one for each of the others, and one at the 16th replay.
    assert (report.eager, report.recorded, len(report.programs)) == (1, 8, 1), str(report)
    assert report.replayed == 39, str(report)


def test_what_is_looked_at_again_after_another_took_over(device):
    model = Decoder(device)
    for _ in range(3):
        cache = Fixed(device, 80)
        for i in range(30):  # with the 16th replay
            assert model.run(rows(1, device), cache).out.tolist() == [2.0 * (i + 1)] * 3
    assert model.run.report().replayed > 80


def test_two_objects_in_turn_have_programs_of_their_own(device):
    model, caches = Decoder(device), [Fixed(device), Fixed(device)]
    for i in range(8):
        for scale, cache in enumerate(caches, 1):
            wanted = [2.0 * scale * (i + 1)] * 3
            assert model.run(rows(scale, device), cache).out.tolist() == wanted
    assert len(model.run.report().programs) == 2


@pytest.mark.parametrize("given", [{"by": 3}, {"rows": 5}, {"same": True}, {"more": 7}], ids=str)
def test_an_object_that_is_not_like_the_one_before(given, device):
    """By numbers, shapes, the memory that its tensors share, or tensors that are elsewhere."""
    beside = []

    class Cache:
        def __init__(self, by=2, rows=4, same=False, more=0):
            self.by, self.keys = by, norch.zeros(rows, 3, device=device)
            self.values = self.keys if same else norch.zeros(rows, 3, device=device)
            self.at = len(beside)
            beside.append(norch.full((3,), float(more), device=device))

    def step(x, cache):
        cache.keys.add_(x)
        cache.values.add_(x * cache.by)
        return cache.keys.sum(0) + cache.values.sum(0) + beside[cache.at]

    run = norch.capture(step)
    for more in ({}, given, given):
        cache, other = Cache(**more), Cache(**more)
        found = [(run(rows(i, device), cache).tolist(), step(rows(i, device), other).tolist()) for i in range(7)]
        found.append((cache.values.tolist(), other.values.tolist()))
        del cache
        for got, wanted in found:
            assert got == wanted
    report = run.report()
    assert report.recorded <= 5, str(report)
    assert report.replayed >= 9, str(report)


def test_a_program_that_nobody_takes_over_is_let_go(device):
    class Cache(Fixed):
        reads = False

    def step(x, cache):
        cache.keys.add_(x)
        return cache.keys.sum() * (x.sum().item() if cache.reads else 1)

    run, cache = norch.capture(step), Cache(device)
    for _ in range(6):
        run(rows(1, device), cache)
    buffer, cache = ref(cache.keys.buffer), Cache(device)
    cache.reads = True
    for i in range(6):
        assert run(rows(2, device), cache).item() == 40 * 3 * 2 * (i + 1) * 6
    assert buffer() is None
    assert "values are read" in str(run.report())


def test_gradients_do_not_go_through_a_program_that_another_left(device):
    w = norch.ones(3, device=device, requires_grad=True)
    run = norch.capture(lambda x, cache: (cache.update(x) * w).sum())
    for _ in range(3):
        cache, w.grad = Fixed(device), None
        for i in range(6):
            run(rows(1, device), cache).backward()
            assert w.grad.tolist() == [(i + 1) * (i + 2) / 2] * 3
