"""Captured steps give the bits that eager ones give: values, state, gradients, random numbers."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from capture_harness import numbers, same_bits

import norch


def weights(device, *shapes, seed=0):
    draw = np.random.default_rng(seed)
    return [norch.tensor(draw.normal(size=s).astype(np.float32), device=device, requires_grad=True) for s in shapes]


def batch(device, i, *shape, **options):
    return norch.tensor(numbers(i, *shape, **options), device=device)


def regression(device, update):
    """A model of two layers, trained by `update(weights, gradients, i)`."""

    def make():
        w = weights(device, (3, 8), (8,), (8, 1))

        def step(x, y):
            loss = norch.mse_loss((x @ w[0] + w[1]).tanh() @ w[2], y)
            loss.backward()
            update(w)
            return loss

        return step, lambda i: (batch(device, i, 4, 3), batch(device, i + 100, 4, 1)), lambda: w

    return make


def forget(w):
    for p in w:
        p.grad = None


def zero(w):
    for p in w:
        p.grad.zero_()


def sgd(w, lr=0.1):
    with norch.no_grad():
        for p in w:
            p -= lr * p.grad


@pytest.mark.parametrize("clear", [forget, zero])
def test_training_by_hand(device, clear):
    def update(w):
        sgd(w)
        clear(w)

    # Gradients that are there from the second call on are a program of their own.
    same_bits(regression(device, update), 9, replayed=6)


def test_gradients_that_are_left_are_the_callers(device):
    kept = []

    def feed_on(i, step, feed, state):
        kept.append([None if p.grad is None else p.grad for p in state()])
        for p in state():
            p.grad = None

    same_bits(regression(device, lambda w: None), around=feed_on)
    half = len(kept) // 2
    for eager, captured in zip(kept[:half], kept[half:]):
        for a, b in zip(eager, captured):
            assert (a is None and b is None) or a.tolist() == b.tolist()


def test_an_array_of_a_gradient_is_not_written_again():  # arrays share the memory of the CPU only
    kept = []

    def feed_on(i, step, feed, state):
        if state()[0].grad is not None:
            found = state()[0].grad.numpy()
            kept.append((found, found.copy()))
        for p in state():
            p.grad = None

    same_bits(regression("cpu", lambda w: None), around=feed_on)
    for array, copy in kept:
        assert np.array_equal(array, copy)


def test_gradients_gathered_now_and_then_cleared(device):
    def around(i, step, feed, state):
        if i % 3 == 0:
            for p in state():
                p.grad = None

    same_bits(regression(device, lambda w: None), 15, replayed=10, around=around)


def test_step_functions(device):
    def make():
        w = weights(device, (3, 8), (8, 1))
        m, v = [norch.zeros_like(p) for p in w], [norch.zeros_like(p) for p in w]

        def step(x, y):
            for p in w:
                p.grad = None
            loss = norch.mse_loss((x @ w[0]).relu() @ w[1], y)
            loss.backward()
            norch.sgd_step_(w, [p.grad for p in w], m, lr=0.1, momentum=0.9)
            norch.adam_step_(w, [p.grad for p in w], m, v, step=3, lr=0.01)
            return loss

        return step, lambda i: (batch(device, i, 4, 3), batch(device, i + 100, 4, 1)), lambda: (w, m, v)

    same_bits(make)


def test_dropout_and_draws(device):
    def make():
        def step(x):
            noise = norch.randn(4, 3, device=device)
            mask = norch.dropout(x, 0.4, training=True)
            which = norch.randint(0, 5, (6,), device=device)
            return noise + mask, which, norch.rand_like(x), norch.randperm(5, device=device)

        return step, lambda i: (batch(device, i, 4, 3),)

    same_bits(make)


def test_draws_between_calls_and_seeds(device):
    def make():
        return lambda x: x + norch.rand_like(x), lambda i: (batch(device, i, 5),)

    def around(i, *made):
        norch.rand(i)
        if i == 5:
            norch.manual_seed(99)

    same_bits(make, 9, around=around)


def test_several_generators(device):
    def make():
        one, other = norch.Generator().manual_seed(1), norch.Generator().manual_seed(2)

        def step(x):
            a = norch.rand(3, generator=one, device=device)
            b = norch.randn(3, generator=other, device=device)
            return x + a, b, norch.rand(2, generator=one, device=device), norch.rand(1, device=device)

        def feed(i):
            if i == 4:
                one.manual_seed(7)
            norch.rand(2, generator=other)
            return (batch(device, i, 3),)

        return step, feed, lambda: (one.get_state(), other.get_state())

    same_bits(make)


def test_generators_that_the_collector_finds_in_another_order(device):
    def make():
        one, other = norch.Generator().manual_seed(1), norch.Generator().manual_seed(2)

        def step(x):
            return x + norch.rand(3, generator=one, device=device), norch.rand(2, generator=other, device=device)

        return step, lambda i: (batch(device, i, 3),), lambda: (one.get_state(), other.get_state())

    def around(i, step, *rest):
        if i == 2:
            gc.collect()

    same_bits(make, around=around)


def test_a_generator_made_in_the_step(device):
    def make():
        def step(x):
            return x + norch.rand(3, generator=norch.Generator().manual_seed(5), device=device)

        return step, lambda i: (batch(device, i, 3),)

    same_bits(make)


def test_a_chosen_generator(device):
    def make():
        one = norch.Generator().manual_seed(1)

        def step(x):
            with norch.use_generator(one):
                return x + norch.rand(3, device=device)

        return step, lambda i: (batch(device, i, 3),), lambda: one.get_state()

    same_bits(make)


@pytest.mark.parametrize("seed", [11, 4])
def test_a_step_that_seeds_is_left_as_it_is(device, seed):
    def make():
        def step(x):
            norch.manual_seed(seed)
            return x + norch.rand(3, device=device)

        return step, lambda i: (batch(device, i, 3) + norch.rand(3, device=device),), lambda: norch.get_rng_state()

    run = same_bits(make, replayed=0)
    assert "seeds a generator" in str(run.report())


def test_state_changed_in_place(device):
    def make():
        mean, count = norch.zeros(3, device=device), norch.zeros((), dtype=norch.int64, device=device)

        def step(x):
            mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            count.add_(1)
            mean[1:] += 1
            return mean * 2, count + 1

        return step, lambda i: (batch(device, i, 4, 3),), lambda: (mean, count)

    same_bits(make)


def test_state_that_moves_in_the_step(device):
    """`p.data = ...` in the step: other memory at each call."""

    def make():
        p = norch.ones(3, device=device)

        def step(x):
            p.data = p.data * 0.5 + x
            return p.sum()

        return step, lambda i: (batch(device, i, 3),), lambda: p

    same_bits(make)


def test_state_that_one_captured_step_moves_and_another_reads(device):
    def make():
        p = norch.ones(3, device=device)

        def train(x):
            p.data = p.data * 0.5 + x
            return p.sum()

        return train, p

    train, p = make()
    plain, q = make()
    train, read = norch.capture(train), norch.capture(lambda x: x * p)
    for i in range(9):
        x = batch(device, i, 3)
        train(x), plain(x)
        assert read(x).tolist() == (x * q).tolist()


def test_a_new_leaf_as_result(device):
    def make():
        def step(x):
            return (x * 2).requires_grad_(), x.detach()

        return step, lambda i: (batch(device, i, 3),)

    same_bits(make)


def test_autocast_inside(device):
    def make():
        (w,) = weights(device, (3, 4))

        def step(x):
            with norch.autocast(device, dtype=norch.bfloat16):
                loss = (x @ w).float().pow(2).mean()
            loss.backward()
            grad, w.grad = w.grad, None
            return loss, grad

        return step, lambda i: (batch(device, i, 5, 3),)

    same_bits(make)


def test_views_and_scattered_writes(device):
    def make():
        table = norch.zeros(6, 3, device=device)

        def step(x, index):
            table[1:4].copy_(x)
            table.T[0].mul_(2)
            table.index_add_(0, index, x)
            return table.T, table[2], x.T, x[1:, ::2], x.expand(2, 3, 3), x.flatten().unfold(0, 4, 2)

        index = norch.tensor([1, 5, 1], device=device)
        return step, lambda i: (batch(device, i, 3, 3), index), lambda: table

    same_bits(make)


def test_dtypes(device):
    def make():
        def step(x, n, b, h):
            return x.double() * 2, n // 3 + 1, ~b, (h * h).to(norch.float16), n.bool(), (x > 0).sum(), n * 0.5

        def feed(i):
            x = batch(device, i, 4)
            return x, (x * 10).to(norch.int32), x > 0, x.to(norch.bfloat16)

        return step, feed

    same_bits(make)


def test_nothing_at_all(device):
    def make():
        return lambda x: None, lambda i: (batch(device, i, 4),)

    same_bits(make)


def test_no_elements(device):
    def make():
        return lambda x: (x * 2, x.sum()), lambda i: (batch(device, i, 0, 4),)

    same_bits(make)


def test_elements_are_assigned_by_data_before_the_backward_pass(device):
    """Which counts as no change of what a gradient needs, while a step is recorded too."""
    weight = norch.ones(3, device=device)

    def step(x):
        y = x.detach().requires_grad_()
        z = y.relu()
        z.data[...] = 1.0
        weight.data[0] += 1
        (z * z).sum().backward()
        return y.grad, weight.clone()

    run = norch.capture(step)
    for i in range(6):
        x = norch.tensor(numbers(i, 3), device=device)
        grad, sums = run(x)
        assert (grad.tolist(), sums.tolist()) == ([2.0] * 3, [2.0 + i, 1.0, 1.0])
    assert run.report().replayed
