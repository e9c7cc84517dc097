"""Graphs that are deep, or wide by sharing, and what training leaves in memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator

import pytest

import norch
from norch import Tensor


def leaf(*values: float) -> Tensor:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


def test_sixty_doublings() -> None:
    x = leaf(1, 2)
    y = x
    for _ in range(60):
        y = y + y
    y.sum().backward()
    assert x.grad.tolist() == [2.0**60, 2.0**60]


def test_ten_thousand_ops_in_a_chain() -> None:
    limit = sys.getrecursionlimit()
    x = leaf(1)
    y = x
    for i in range(10_000):
        y = y * 1.0001 if i % 2 else y.sin()
    y.sum().backward()
    assert 0 < x.grad.item() < 1
    assert sys.getrecursionlimit() == limit
    del y


def test_a_deep_graph_is_freed_without_overflowing_the_stack() -> None:
    code = """
import sys, threading
import norch

def chain():
    x = norch.ones(1, requires_grad=True)
    y = x
    for i in range(50_000):  # some thousand would overflow the thread's stack, were they freed by recursion
        y = y * y if i % 3 == 0 else y + 1 if i % 3 == 1 else y[...]
    del x, y

threading.stack_size((1024 if sys.version_info >= (3, 13) else 256) * 1024)  # 3.13 needs as much for lists of lists
thread = threading.Thread(target=chain)
thread.start()
thread.join()
print("done")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "done\n", done.stderr[-2000:]


def mlp() -> Callable[[], None]:
    norch.manual_seed(0)
    weights = [norch.randn(4, 8, requires_grad=True), norch.randn(8, 1, requires_grad=True)]
    data = norch.randn(16, 4)

    def step() -> None:
        hidden = (data @ weights[0]).tanh() * 1
        hidden[0] = 0.5
        hidden.t()[1:3].mul_(2)
        out = norch.cat([hidden, hidden.softmax(1)])[:16] @ weights[1]
        values, _ = out.sort(0)
        loss = (values * norch.arange(16.0).unsqueeze(1)).mean() + out.max()
        loss.backward()
        with norch.no_grad():
            for w in weights:
                w -= 0.01 * w.grad
                w.grad = None

    return step


def penalty() -> Callable[[], None]:
    x = leaf(1, 2, 3)

    def step() -> None:
        y = (x**3).sum()
        y.register_hook(lambda g: g * 2)
        z = x.exp()
        z.retain_grad()
        (first,) = norch.autograd.grad(y + z.sum(), x, create_graph=True)
        (first * first).sum().backward()
        x.grad = None

    return step


def unused() -> Callable[[], None]:
    x = leaf(1, 2, 3)

    class Double(norch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            y = x * 2
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            return g * 2

    def step() -> None:
        y = Double.apply(x)
        y[0] = x[1]
        y.exp().sigmoid_()  # a graph that nothing differentiates

    return step


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("make", [mlp, penalty, unused])
def test_steps_leave_nothing_behind(make: Callable[[], Callable[[], None]], no_collector: None) -> None:
    step = make()
    grown = []
    tracemalloc.start()
    try:
        for _ in range(50):
            step()
        for _ in range(3):
            gc.collect()
            objects, (before, _) = len(gc.get_objects()), tracemalloc.get_traced_memory()
            for _ in range(80):
                step()
            assert len(gc.get_objects()) - objects < 20  # less than one object for four steps
            assert gc.collect() == 0  # no cycles; this also empties the interpreter's lists of tuples to be used again
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    # The interpreter's own caches fill up now and then; a leak grows in every round.
    assert min(grown) < 2_000, grown


def test_results_die_at_once(no_collector: None) -> None:
    x = leaf(1, 2)
    makers: list[Callable[[], Tensor]] = [
        lambda: x * 2,
        lambda: x.exp(),
        lambda: x[0],
        lambda: norch.cat([x, x]),
        lambda: (x * 1).mul_(2),
        lambda: x.sort()[0],
        lambda: x.softmax(0),
        lambda: (x * 2).detach(),
    ]
    for make in makers:
        died = weakref.ref(make())
        assert died() is None


def test_the_graph_lets_go_of_what_it_needs_not() -> None:
    x = leaf(1, 2)
    y = x * 3
    watch = weakref.ref(y)
    z = y + 1
    del y
    assert watch() is None  # add keeps no operand
    y = x * 3
    watch = weakref.ref(y)
    w = y * y
    del y
    assert watch() is not None
    w.sum().backward()
    assert watch() is None  # the backward pass freed it
    assert z.requires_grad


def test_a_leaf_that_died_gets_no_gradient() -> None:
    alive, dead = leaf(1), leaf(2)
    watch = weakref.ref(dead)
    y = alive * 3 + dead * 5
    del dead
    assert watch() is None  # the graph keeps its node only
    y.sum().backward()
    assert alive.grad.tolist() == [3]
    assert watch() is None


def test_wide_sharing_visits_each_node_once() -> None:
    x = leaf(1)
    calls: list[int] = []
    y = x * 1
    y.register_hook(lambda g: calls.append(1))
    total = y
    for i in range(200):
        total = total + y * i
    total.sum().backward()
    assert len(calls) == 1
    assert x.grad.item() == 1 + sum(range(200))
