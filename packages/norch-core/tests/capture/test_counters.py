"""Integers in attributes of what a step is given, which it counts on: how many tokens a cache holds."""

from __future__ import annotations

import math
import operator
import warnings
from dataclasses import dataclass, field

import pytest

import norch
from norch.dispatch.traced import ARGUMENT, Trace, TracedInt, evaluate, traced


@dataclass
class Cache:
    """Keys of the last four tokens, as of a language model that looks no further back."""

    rows: int = 4
    length: int = 0
    keys: list[norch.Tensor] = field(default_factory=list)

    def next(self) -> int:
        self.length += 1
        return self.length

    def update(self, x: norch.Tensor) -> norch.Tensor:
        if not self.keys:
            self.keys.append(norch.zeros(self.rows, *x.shape[1:], device=x.device))
        keys, length = self.keys[0], self.length
        self.length += len(x)
        if length >= self.rows:
            keys.copy_(norch.cat([keys[1:], x]))
        else:
            keys.index_copy_(0, norch.arange(len(x), device=x.device) + length, x)
        return keys


@dataclass
class Outer:
    layers: list[Cache]
    text: str = "a"


def rows(i, device):
    return norch.full((1, 3), float(i + 1), device=device)


def both(step, make, device, calls=24, between=None):
    """What a step gave eagerly and captured, each with an object of its own, and the captured one."""
    captured = norch.capture(step)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in (step, captured):
            thing, outs = make(), []
            for i in range(calls):
                outs.append(function(rows(i, device), thing).tolist())
                if between is not None:
                    between(i, thing)
            found.append((outs, vars(thing)))
    assert found[0][0] == found[1][0]
    return captured.report(), found[0][1], found[1][1]


def test_a_cache_that_counts(device):
    report, eager, captured = both(lambda x, cache: cache.update(x).clone(), Cache, device)
    assert eager["length"] == captured["length"] == 24
    assert type(captured["length"]) is int
    assert len(report.programs) == 2  # before it is full, and after that
    assert report.replayed >= 16, str(report)


def test_numbers_that_are_computed_of_it(device):
    def step(x, cache):
        cache.length += 2
        return x * cache.length + (cache.length - 1) // 2 - norch.tensor(cache.length, device=x.device)

    report, eager, captured = both(step, Cache, device)
    assert eager == captured
    assert report.replayed >= 19, str(report)


def test_integers_of_integer_tensors(device):
    def step(x, cache):
        cache.length += 1
        return norch.arange(3, device=x.device) * cache.length + max(cache.length - 3, 0)

    report, *_ = both(step, Cache, device)
    assert report.replayed >= 16, str(report)


def test_layers_in_a_list(device):
    def step(x, outer):
        for layer in outer.layers:
            x = layer.update(x).sum(0, keepdim=True)
        return x

    report, eager, captured = both(step, lambda: Outer([Cache(2), Cache(5)]), device, 32)
    assert [c.length for c in captured["layers"]] == [32, 32]
    assert eager["text"] == captured["text"]
    assert report.replayed >= 20, str(report)


def test_what_is_set_between_calls(device):
    def reset(i, cache):
        if i % 7 == 6:
            cache.length = 0

    report, eager, captured = both(lambda x, cache: cache.update(x).clone(), Cache, device, 42, reset)
    assert eager["length"] == captured["length"]
    assert report.replayed >= 20, str(report)


def test_another_object_takes_over_the_programs(device):
    @norch.capture
    def step(x, cache):
        return cache.update(x).clone()

    for _ in range(6):
        wanted, cache = Cache(), Cache()
        for one in (wanted, cache):  # before the step, as a prompt does
            one.update(rows(0, device))
        for i in range(20):
            assert step(rows(i, device), cache).tolist() == wanted.update(rows(i, device)).tolist()
        assert cache.length == 21
    report = step.report()
    assert report.recorded <= 20, str(report)
    assert report.replayed >= 98, str(report)


def test_one_that_becomes_another_thing(device):
    def step(x, cache):
        if cache.length is None:
            return x * 3
        cache.length += 1
        return x + cache.length

    def lose(i, cache):
        if i == 12:
            cache.length = None

    both(step, Cache, device, 24, lose)


def _list(x, cache):
    return x * [2, 3, 5, 7, 11, 13, 17][cache.length % 7]


def _slice(x, cache):
    return x + norch.arange(40.0, device=x.device)[: cache.length].sum()


def _part(x, cache):
    return x + norch.arange(40.0, device=x.device)[cache.length]


USES = {
    "text": lambda x, cache: x * float(f"{cache.length}"),
    "float": lambda x, cache: x * float(cache.length),
    "root": lambda x, cache: x * math.sqrt(cache.length),
    "float first": lambda x, cache: x * (0.5 * cache.length),
    "bits": lambda x, cache: x * (cache.length & 3),
    "bits last": lambda x, cache: x * (5 ^ cache.length),
    "key": lambda x, cache: x * {n: n * n for n in range(50)}[cache.length],
    "list": _list,
    "range": lambda x, cache: sum((x for _ in range(cache.length)), x),
    "slice": _slice,
    "part": _part,
    "shape": lambda x, cache: x + norch.ones(cache.length, device=x.device).sum(),
    "full": lambda x, cache: x + norch.full((1, 3), cache.length, device=x.device),
    "data": lambda x, cache: x * norch.tensor([cache.length, 1, 2], device=x.device),
    "roll": lambda x, cache: (x * norch.arange(3, device=x.device)).roll(cache.length, 1),
    "narrow": lambda x, cache: x + norch.arange(40.0, device=x.device).narrow(0, cache.length, 2).sum(),
    "power": lambda x, cache: (x / 30) ** cache.length,
    "power of integers": lambda x, cache: norch.arange(3, device=x.device) ** (cache.length % 3),
    "alpha": lambda x, cache: norch.add(x, x, alpha=cache.length),
    "clamp": lambda x, cache: x.clamp(max=cache.length),
    "masked": lambda x, cache: x.masked_fill(x > cache.length, cache.length),
    "where": lambda x, cache: norch.where(x > 4, x, cache.length),
    "assigned": lambda x, cache: _assigned(x.clone(), cache.length),
    "compared": lambda x, cache: x == cache.length,
}


def _assigned(x, n):
    x[:, 1] = n
    return x


@pytest.mark.parametrize("name", USES)
def test_uses(device, name):
    def step(x, cache):
        cache.length += 1
        return USES[name](x, cache)

    _, eager, captured = both(step, Cache, device)
    assert eager == captured
    assert type(captured["length"]) is int


READ = {
    "index": lambda n: ([1.0] * 8 + [5.0] * 40)[n],
    "bound of a slice": lambda n: sum(([1.0, 1.0] + [0.0] * 6 + [1.0] * 40)[2:n]),
    "range": lambda n: sum(i // 8 for i in range(n)),
    "beside a float": lambda n: 5.0 if operator.lt(8.5, n) else 1.0,
    "behind a float": lambda n: max(8.0 - n, 0.0),
    "among others": lambda n: 2.0 if n in (9, 10, 11) else 1.0,
    "key": lambda n: {9: 2.0}.get(n, 1.0),
    "is an int": lambda n: n if isinstance(n, int) else 0,
}
"""Of most of these the first recordings say the same as if the number had no say."""


@pytest.mark.parametrize("name", READ)
def test_reading_it_is_noticed(device, name):
    def step(x, cache):
        return x * READ[name](cache.next())

    both(step, Cache, device)


def test_results_that_are_part_of_a_graph(device):
    w = norch.ones(3, device=device, requires_grad=True)

    def step(x, cache):
        cache.length += 1
        return x * w * cache.length

    captured, cache, wanted = norch.capture(step), Cache(), Cache()
    for i in range(8):
        w.grad = None
        captured(rows(i, device), cache).sum().backward()
        found, w.grad = w.grad.tolist(), None
        step(rows(i, device), wanted).sum().backward()
        assert found == w.grad.tolist()
    assert cache.length == wanted.length == 8
    assert "a result is part of a graph" in str(captured.report()) or captured.report().replayed == 0


def test_fullgraph(device):
    @norch.capture(fullgraph=True)
    def step(x, cache):
        cache.length += 1
        return x * cache.length

    cache = Cache()
    for i in range(8):
        assert step(rows(i, device), cache).tolist() == [[(i + 1.0) ** 2] * 3]
    assert step.report().replayed == 4


def test_the_arithmetic_of_integers():
    trace = Trace()
    n, m = traced(13, (ARGUMENT, 0), trace), traced(-4, (ARGUMENT, 1), trace)
    with trace:
        made = [n + 2, 2 + n, n - m, 7 - n, n * m, n // m, 100 // n, n % 5, 100 % n, n / 2, 2**n, -n, abs(m), n + 0.5]
        assert not trace.pinned
        decisions = [n > 12, n == 13, n != m, bool(n), max(n, m) == 13, min(3, n) == 3, n <= 5]
    wanted = [15, 15, 17, -6, -52, -4, 7, 3, 9, 6.5, 8192, -13, 4, 13.5]
    assert made == wanted
    assert decisions == [True, True, True, True, True, True, False]
    for value, expected in zip(made, wanted, strict=True):
        assert evaluate(value.expression, [13, -4]) == expected
    assert evaluate(made[2].expression, [5, 1]) == 4
    assert all(type(x) is TracedInt for x in made[:9])
    assert type(n + 1) is int  # once the run is over


@pytest.mark.parametrize(
    "use",
    [int, float, str, repr, hash, "{:03}".format, math.sqrt, lambda n: n & 1, lambda n: 1 << n, lambda n: ~n,
     lambda n: n.bit_length(), lambda n: divmod(n, 3), lambda n: {13: 1}[n]],
)  # fmt: skip
def test_what_python_must_know(use):
    trace = Trace()
    with trace:
        assert use(traced(13, (ARGUMENT, 0), trace)) == use(13)
    assert trace.pinned is not None


def test_a_step_that_raises_leaves_plain_integers(device):
    @norch.capture
    def step(x, cache):
        cache.length += 1
        if x.shape[0] == cache.length:
            raise KeyError("full")
        return x * cache.length

    cache = Cache()
    for i in range(6):
        with pytest.raises(KeyError):
            step(norch.ones(i + 1, device=device), cache)
        assert type(cache.length) is int
        cache.length = 10
        assert step(norch.ones(i + 1, device=device), cache).tolist() == [11.0] * (i + 1)
        assert type(cache.length) is int
        cache.length = i + 1
