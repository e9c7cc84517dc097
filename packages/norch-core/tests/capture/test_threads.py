"""Captured steps and threads: several that call one, some that compute while another records, steps within steps."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import deque

import pytest
from capture_harness import image, numbers

import norch
from norch.capturing import recording
from norch.dispatch import plan as planning


def batch(device, i, *shape):
    return norch.tensor(numbers(i, *shape), device=device)


@pytest.fixture(autouse=True)
def _often():
    """Threads change places between any two bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_arguments_of_kernels_are_whole_wherever_they_are_seen(device, monkeypatch):
    """What a recording looks through while another thread puts the arguments of a kernel together."""
    seen = []

    def look(value):
        seen.append(gc.get_objects())
        return plain(value)

    plain = recording.plain
    monkeypatch.setattr(recording, "plain", look)
    step = norch.capture(lambda x: (x * 2).sum())
    assert [step(batch(device, 1, 3)).item() for _ in range(3)] == [(batch(device, 1, 3) * 2).sum().item()] * 3
    assert seen


def together(*works):
    raised = []

    def run(work):
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads), "a thread hangs"
    if raised:
        raise raised[0]


def test_several_threads_call_one_step(device):
    w = batch(device, 99, 4, 4)

    @norch.capture
    def step(x):
        return (x @ w).tanh().sum(0), x * 2

    def work(seed):
        def run():
            for i in range(25):
                x = batch(device, 100 * seed + i, 3, 4)
                assert image(step(x)) == image(step.function(x))

        return run

    together(*[work(seed) for seed in range(4)])
    assert step.report().replayed
    assert not step.report().refused


def test_a_plan_that_another_thread_makes_while_a_recording_begins(device, monkeypatch):
    make_plan, made, recording = planning.make_plan, threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: batch(device, 1, 7, 5).tanh(), daemon=True)

    def slowly(op, *args):
        plan = make_plan(op, *args)
        if threading.current_thread() is other and op.name == "tanh":
            made.set()
            assert recording.wait(10)
        return plan

    monkeypatch.setattr(planning, "make_plan", slowly)
    calls = []

    @norch.capture
    def step(x):
        calls.append(None)
        if len(calls) == 2:  # the first that is recorded
            recording.set()
            other.join(10)
        return x.tanh() * 2

    planning.forget_plans()
    other.start()
    assert made.wait(10)
    for i in range(5):
        x = batch(device, i, 7, 5)
        assert image(step(x)) == image(x.tanh() * 2)
    assert step.report().replayed, step.report()


def test_a_thread_that_computes_while_a_program_is_checked(device):
    p = norch.ones(3, device=device, requires_grad=True)

    @norch.capture
    def step(x):
        if step.report().replayed and p.grad is None:
            together(lambda: p.sum().backward())
        return x * 2 + 1

    for i in range(60):
        x = batch(device, i, 3)
        assert image(step(x)) == image(x * 2 + 1)
    assert p.grad is not None
    assert step.report().replayed > 40
    assert not step.report().refused


def test_one_records_while_others_compute(device):
    stop = threading.Event()
    params = [norch.ones(3, device=device, requires_grad=True) for _ in range(3)]
    losses = deque(maxlen=100)  # each is a tensor that recording comes across

    def trains(p):
        def run():
            while not stop.is_set():
                p.grad = None
                (p * batch(device, 1, 3)).sum().backward()
                grad = p.grad
                assert grad is not None, "another thread's recording took the gradient away"
                losses.append(grad.sum())
                p.data = p.data + 0
                time.sleep(0)

        return run

    def records():
        try:
            for k in range(4):
                w, draws = norch.ones(3, device=device, requires_grad=True), []

                def step(x, w=w, draws=draws):
                    w.grad = None
                    loss = (w * x).sum() + norch.rand(3, device=device, generator=draws[0]).sum()
                    loss.backward()
                    with norch.no_grad():
                        w.sub_(w.grad, alpha=0.1)
                    return loss

                seen = []
                for wrap in (lambda f: f, norch.capture):
                    draws[:] = [norch.Generator().manual_seed(k)]
                    with norch.no_grad():
                        w.fill_(1)
                    run = wrap(step)
                    seen.append([image((run(batch(device, i, 3)), w)) for i in range(8)])
                assert seen[0] == seen[1]
        finally:
            stop.set()

    together(records, *[trains(p) for p in params])
    assert all(p.requires_grad for p in params)


def test_two_captured_steps_at_once(device):
    def work(seed):
        def run():
            w = batch(device, seed, 3)

            @norch.capture
            def step(x):
                w.add_(1)
                return x * w

            expected = batch(device, seed, 3)
            for i in range(20):
                x = batch(device, i, 3)
                expected.add_(1)
                assert image(step(x)) == image(x * expected)

        return run

    together(*[work(seed) for seed in range(4)])


def test_steps_that_call_each_other_from_two_threads(device):
    """No order of locks is wrong, since a step runs outside of them."""
    steps = {}

    def make(name, other):
        def step(x, depth):
            y = x * 2
            return steps[other](y, depth - 1) if depth else y

        steps[name] = norch.capture(step)

    make("a", "b")
    make("b", "a")

    def work(name):
        def run():
            for _ in range(20):
                assert steps[name](norch.ones(2, device=device), 3).tolist() == [16.0] * 2

        return run

    together(work("a"), work("b"), work("a"))


def test_a_step_that_waits_for_a_thread_which_calls_it(device):
    def step(x, outer):
        if outer:
            found = []
            t = threading.Thread(target=lambda: found.append(run(x, False)), daemon=True)
            t.start()
            t.join(30)
            assert found, "the thread hangs"
            return found[0] + 1
        return x * 2

    run = norch.capture(step)
    for _ in range(6):
        assert run(norch.ones(2, device=device), True).tolist() == [3.0] * 2


def test_a_step_that_calls_itself(device):
    def step(x, depth):
        return x if depth == 0 else run(x * 2, depth - 1)

    run = norch.capture(step)
    for _ in range(8):
        assert run(norch.ones(2, device=device), 3).tolist() == [8.0] * 2
    assert run.report().replayed


def test_a_hook_that_calls_a_captured_step(device):
    inner = norch.capture(lambda g: g * 2)
    w = norch.ones(3, device=device, requires_grad=True)
    w.register_hook(lambda g: inner(g))

    @norch.capture
    def step(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    for i in range(9):
        x = batch(device, i, 3)
        assert step(x).tolist() == (x * 2).tolist()
    assert step.report().replayed


def test_steps_in_a_step(device):
    inner = norch.capture(lambda x: (x * 2).tanh())
    outer = norch.capture(lambda x: inner(x) + inner(x + 1))
    plain = outer.function
    for i in range(9):
        x = batch(device, i, 3)
        assert outer(x).tolist() == plain(x).tolist()
        assert inner(x).tolist() == (x * 2).tanh().tolist()
    assert outer.report().replayed
    assert inner.report().replayed


def test_asyncio(device):
    step = norch.capture(lambda x: x * 2 + 1)

    async def work(k):
        for i in range(8):
            x = batch(device, 10 * k + i, 3)
            await asyncio.sleep(0)
            with norch.no_grad() if k % 2 else norch.enable_grad():
                assert step(x).tolist() == (x * 2 + 1).tolist()

    async def main():
        await asyncio.gather(*[work(k) for k in range(4)])

    asyncio.run(main())
    assert step.report().replayed


def test_batches_of_a_thread(device):
    """A thread makes batches with norch's ops while the step is recorded and replayed."""
    import queue

    made = queue.Queue(2)
    generator = norch.Generator().manual_seed(3)

    def load():
        for i in range(30):
            x = batch(device, i, 3, 4)
            made.put((i, (x - x.mean(0)) / (x + 10)))

    w = batch(device, 7, 4, 4)

    @norch.capture
    def step(x):
        return (x @ w) * norch.rand(3, 4, device=device, generator=generator)

    def use():
        other = norch.Generator().manual_seed(3)
        for _ in range(30):
            _, x = made.get(timeout=30)
            y = (x @ w) * norch.rand(3, 4, device=device, generator=other)
            assert image(step(x)) == image(y)

    together(load, use)
