"""What a captured step is called with, and what it returns."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from capture_harness import numbers, same_bits

import norch

Pair = namedtuple("Pair", "first second")


def batch(device, i, *shape, **options):
    return norch.tensor(numbers(i, *shape, **options), device=device)


def test_nested_containers_and_keywords(device):
    def make():
        def step(tree, *rest, scale, more=None):
            a, (b, c) = tree["a"], tree["rest"]
            return OrderedDict(z=Pair(a + b, [c * scale]), y=(rest[0], {"n": 3, "t": more["x"] - a}), x=None)

        def feed(i):
            one, two, three = (batch(device, 10 * i + k, 3) for k in range(3))
            return {"a": one, "rest": Pair(two, three)}, one * 2, {"scale": 2, "more": {"x": two + 1}}

        return step, feed

    same_bits(make)


def test_views_as_arguments(device):
    def make():
        def step(x, y):
            return x @ y, x.sum(0), y.T

        def feed(i):
            x = batch(device, i, 6, 4)
            return x[1:3, 1:], x.T[1:, 2:4]

        return step, feed

    same_bits(make)


def test_slices_of_a_data_set(device):
    def make():
        data, labels = batch(device, 0, 40, 3), batch(device, 1, 40)

        def step(x, y):
            return ((x.sum(1) - y) ** 2).mean(), x[1], y[2:]

        def feed(i):
            at = (i * 7) % 36
            return data[at : at + 4], labels[at : at + 4]

        return step, feed

    same_bits(make, 12)


def test_two_slices_of_one_tensor(device):
    """They share a buffer, and lie elsewhere to each other at each call."""

    def make():
        data = batch(device, 0, 40)
        places = [(0, 4), (0, 4), (0, 4), (8, 4), (4, 8), (12, 20), (20, 12), (4, 5), (5, 4), (4, 4)]

        def step(x, y):
            return x * 2 + y, x.sum(), y[1:]

        def feed(i):
            a, b = places[i % len(places)]
            return data[a : a + 4], data[b : b + 4]

        return step, feed

    _loosely(make, 30)


def _loosely(make, calls):
    """Same bits; how many calls are replayed is left open, but some are."""
    from capture_harness import image

    step, feed, *_ = make()
    plain, feed2, *_ = make()
    run = norch.capture(step)
    for i in range(calls):
        assert image(run(*feed(i))) == image(plain(*feed2(i))), i
    assert run.report().replayed
    return run


def test_the_same_tensor_twice(device):
    def make():
        def feed(i):
            x = batch(device, i, 3)
            return (x, x) if i % 2 else (x, batch(device, 50 + i, 3))

        return lambda x, y: x * 2 + y, feed

    same_bits(make, 12, replayed=6)


def test_parameters_as_arguments(device):
    """Another parameter is another step: its gradient is set."""

    def make():
        w = [norch.tensor(numbers(k, 3), device=device, requires_grad=True) for k in range(2)]

        def step(p, x):
            p.grad = None
            loss = (p * x).sum()
            loss.backward()
            return loss, p.grad

        return step, lambda i: (w[(i // 2) % 2], batch(device, i, 3)), lambda: w

    same_bits(make, 16, replayed=10)


def test_memory_of_a_parameter_as_argument(device):
    def make():
        w = [norch.tensor(numbers(k, 3), device=device, requires_grad=True) for k in range(2)]

        def step(p, x):
            return p * x

        return step, lambda i: (w[i % 2 if i > 7 else 0].detach(), batch(device, i, 3))

    _loosely(make, 16)


def test_an_argument_that_is_the_state(device):
    """First another tensor, then the step's own state, which the step changes before it reads the argument."""

    def make():
        state = batch(device, 0, 3)

        def step(x):
            state.mul_(2)
            return x + 1

        return step, lambda i: (state if i in (5, 8) else batch(device, i, 3),), lambda: state

    _loosely(make, 12)


def test_results_that_are_arguments_or_state(device):
    def make():
        state = norch.zeros(3, device=device)
        w = norch.ones(3, device=device, requires_grad=True)

        def step(x, y):
            state.add_(x)
            return x, y[1:], state, w, state[1:]

        return step, lambda i: (batch(device, i, 3), batch(device, i + 30, 3))

    step, feed = make()
    run = norch.capture(step)
    for i in range(8):
        x, y = feed(i)
        first, second, third, fourth, fifth = run(x, y)
        assert first is x
        assert fourth is step.__closure__[1].cell_contents or fourth.requires_grad
        y.mul_(3)
        assert second.tolist() == y[1:].tolist()
        assert fifth.tolist() == third[1:].tolist()
        third.add_(1)
        assert fifth.tolist() == third[1:].tolist()
    same_bits(make)


def test_results_that_are_each_other(device):
    def make():
        def step(x):
            y = x * 2
            return y, y, y[1:], y.T

        return step, lambda i: (batch(device, i, 3, 3),)

    run = norch.capture(make()[0])
    for i in range(6):
        a, b, c, d = run(batch(device, i, 3, 3))
        assert a is b
        a.zero_()
        assert c.sum().item() == d.sum().item() == 0
    same_bits(make)


def test_views_of_what_is_not_returned(device):
    same_bits(lambda: (lambda x: ((x * 2)[1:], (x + 1).T), lambda i: (batch(device, i, 3, 3),)))


def test_results_stay_when_the_step_runs_again(device):
    def make():
        return lambda x: (x * 2, x.sum()), lambda i: (batch(device, i, 3),)

    step, feed = make()
    run = norch.capture(step)
    kept = [run(*feed(i)) for i in range(8)]
    for i, (a, b) in enumerate(kept):
        assert a.tolist() == (feed(i)[0] * 2).tolist()
        assert b.tolist() == feed(i)[0].sum().tolist()


def test_gradients_as_results(device):
    def make():
        w = norch.tensor(numbers(1, 3), device=device, requires_grad=True)

        def step(x):
            (w * x).sum().backward()
            return w.grad

        return step, lambda i: (batch(device, i, 3),), lambda: w

    def around(i, step, feed, state):
        if i == 6:
            state().grad = None
        if i == 8:
            state().grad = norch.ones(3, device=device)

    same_bits(make, 12, replayed=8, around=around)


def test_numbers_as_arguments(device):
    def make():
        return lambda x, k, flag, name: x * k if flag else x + k, lambda i: (
            batch(device, i, 3), (2, 0.5)[i % 2], i % 4 < 2, "mean",
        )  # fmt: skip

    same_bits(make, 20, replayed=8)


def test_a_number_that_always_changes(device):
    def make():
        return lambda x, lr: (x - lr * x, lr), lambda i: (batch(device, i, 3), 0.1 / (i + 1))

    _same(make)


def _same(make, calls=12):
    from capture_harness import image

    step, feed, *_ = make()
    plain, feed2, *_ = make()
    run = norch.capture(step)
    for i in range(calls):
        assert image(run(*feed(i))) == image(plain(*feed2(i))), i
    return run


def test_a_number_that_always_changes_and_decides(device):
    """Once the number passes 4 the step does something else."""

    def make():
        return lambda x, k: x * k if k < 4.5 else x + k, lambda i: (batch(device, i, 3), float(i))

    _same(make)


def test_zeros_of_both_signs_and_nan(device):
    def make():
        return lambda x, k: x * k, lambda i: (batch(device, i, 3), (0.0, -0.0, float("nan"))[i % 3])

    _same(make, 15)


def test_numpy_numbers(device):
    def make():
        return lambda x, k: x * k, lambda i: (batch(device, i, 3), np.float32(0.5))

    same_bits(make)


def test_other_shapes_dtypes_and_layouts(device):
    def make():
        def feed(i):
            x = batch(device, i, 4, 4)
            return (x if i % 4 == 0 else x.T if i % 4 == 1 else x[:3] if i % 4 == 2 else x.double(),)

        return lambda x: x.sum(0) * 2, feed

    same_bits(make, 20, replayed=8)


def test_arguments_of_a_graph(device):
    """A leaf as input, of which the gradient is taken; a result of ops outside."""

    def make():
        def step(x):
            (x * x).sum().backward()
            return x.detach() + 1

        def feed(i):
            x = batch(device, i, 3).requires_grad_()
            return (x,) if i % 2 else (x * 2,)

        return step, feed

    from capture_harness import image

    step, feed = make()
    run = norch.capture(step)
    for i in range(12):
        (x,), (y,) = feed(i), feed(i)
        if not x.is_leaf:
            x.retain_grad(), y.retain_grad()
        assert image(step(x)) == image(run(y))
        assert x.grad.tolist() == y.grad.tolist()


def test_arguments_of_other_kinds(device):
    """An object is known by itself; those of a kind that are made anew each time are never captured, nor kept."""
    import gc
    import weakref

    class Batch:
        def __init__(self, x):
            self.x = x

    run, seen = norch.capture(lambda b: b.x * 2), []
    for i in range(12):
        b = Batch(batch(device, i, 3))
        seen.append(weakref.ref(b))
        assert run(b).tolist() == (b.x * 2).tolist()
    del b
    gc.collect()
    assert not any(ref() is not None for ref in seen)


def test_vmapped_calls(device):
    run = norch.capture(lambda x: x * 2 + 1)
    for i in range(6):
        x = batch(device, i, 4, 3)
        assert norch.func.vmap(run)(x).tolist() == (x * 2 + 1).tolist()
        assert norch.func.grad(lambda x: run(x).sum())(x).tolist() == norch.full_like(x, 2).tolist()


@pytest.mark.parametrize("mode", [norch.no_grad, norch.inference_mode])
def test_grad_modes(device, mode):
    def make():
        w = norch.ones(3, device=device, requires_grad=True)

        def step(x):
            return (w * x).detach() if norch.is_grad_enabled() else w * x

        def run(x):
            return step(x)

        return run, lambda i: (batch(device, i, 3),)

    step, feed = make()
    run = norch.capture(step)
    for i in range(12):
        with mode() if i % 2 else norch.enable_grad():
            a, b = run(*feed(i)), step(*feed(i))
            assert a.tolist() == b.tolist()
            assert a.is_inference() == b.is_inference() if hasattr(a, "is_inference") else True
