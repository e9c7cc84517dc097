"""Exceptions and Ctrl-C in a captured step: eager's behaviour, and the next call is right."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time

import pytest
from capture_harness import image, numbers

import norch


def batch(device, i, *shape):
    return norch.tensor(numbers(i, *shape), device=device)


class Broken(Exception):
    pass


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_an_exception_of_the_step(device, at):
    """In the eager call, in either recording, and where nothing raises because nothing of it runs."""
    calls = []

    def step(x):
        y = x * 2
        calls.append(1)
        if len(calls) == at + 1:
            raise Broken
        return y + 1

    run = norch.capture(step)
    for i in range(9):
        x = batch(device, i, 3)
        try:
            assert run(x).tolist() == (x * 2 + 1).tolist()
            assert i != at or at == 3
        except Broken:
            assert i == at
    assert run.report().replayed >= 5
    x = norch.ones(3, device=device)
    assert (x + 1).tolist() == [2.0] * 3


def test_an_index_out_of_bounds_in_a_replay(device):
    table = batch(device, 0, 5, 2)
    total = norch.zeros((), device=device)

    def step(index):
        total.add_(1)
        found = table.gather(0, index)
        total.add_(1)
        return found * 2

    run = norch.capture(step)
    good = norch.tensor([[0, 4], [4, 1]], device=device)
    for _ in range(5):
        run(good.clone())
    at_once = device != "cuda"  # that one tells when it is next waited for, and has gone on
    where = r", replayed from test_failures.py:\d+" if at_once else ""
    with pytest.raises(IndexError, match=rf"gather\(\){where}: .*7") as found:
        run(norch.tensor([[0, 7], [4, 1]], device=device))
        norch.zeros(1, device=device).item()
    if at_once:
        assert isinstance(found.value, norch.NorchError)
    assert total.item() == (11 if at_once else 12)
    assert image(run(good)) == image(table.gather(0, good) * 2)
    assert total.item() == (13 if at_once else 14)


def test_integers_divided_by_zero():  # on the CPU: another device may give any number
    run = norch.capture(lambda x, y: x // y + 1)
    one, zero = norch.tensor([4, 6]), norch.tensor([2, 0])
    for _ in range(5):
        run(one, one.clone())
    try:
        eager = (one // zero + 1).tolist()
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            run(one, zero)
    else:
        assert run(one, zero).tolist() == eager
    assert run(one, norch.tensor([2, 2])).tolist() == [3, 4]


def test_memory_that_runs_out(device, monkeypatch):
    run = norch.capture(lambda x: (x * 2).sum())
    x = norch.ones(3, device=device)
    for _ in range(5):
        run(x)
    (entry,) = run.entries.values()
    program = entry.programs[0][0]
    kept = program.allocations
    assert kept

    def none_left(nbytes, index):
        raise MemoryError("no more")

    program.allocations = [(place, nbytes, none_left, index) for place, nbytes, _, index in kept]
    with pytest.raises(MemoryError):
        run(x)
    program.allocations = kept
    assert run(x).item() == 6.0


@pytest.mark.parametrize("after", [2, 5], ids=["recording", "replay"])
def test_ctrl_c(device, after):
    """Again and again, at any moment: the state is some state that the steps pass through, and no call hangs."""
    w = norch.ones(16, 16, device=device)

    def step(x):
        y = x
        for _ in range(30):
            y = (y @ w).tanh()
        w.add_(0.001)
        return y.sum()

    run, done = norch.capture(step), 0
    x = batch(device, 1, 16, 16)
    for _ in range(after):
        run(x)
    interrupted = 0
    for k in range(25):
        timer = threading.Timer(0.0003 * (k % 13) + 0.0001, _thread.interrupt_main)
        try:
            timer.start()
            for _ in range(400 if after == 5 else 1):
                if after == 2:
                    run = norch.capture(step)
                    run(x)
                run(x)
                done += 1
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            interrupted += 1
        timer.cancel()
        timer.join()
        try:
            time.sleep(0)
        except KeyboardInterrupt:
            interrupted += 1
    assert interrupted >= 10
    before = w.clone()
    fresh = norch.capture(lambda: run.function(x))
    seen = [run(x).item() for _ in range(4)]
    w.copy_(before)
    assert [step(x).item() for _ in range(4)] == seen
    w.copy_(before)
    assert [fresh().item() for _ in range(4)] == seen
    assert fresh.report().replayed == 1


def test_ctrl_c_between_two_replays_leaves_no_lock_behind(device):
    x, w = batch(device, 1, 2), batch(device, 2, 2)
    step = norch.capture(lambda x: x * w)
    for _ in range(300):  # past the calls that are recorded again
        step(x)
    armed, rounds = threading.Semaphore(0), 200

    def interrupt():
        for _ in range(rounds):
            armed.acquire()
            time.sleep(0.0005)
            _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    for _ in range(rounds):
        try:
            armed.release()
            while True:
                step(x)
        except KeyboardInterrupt:
            assert not step.lock.locked()
    thread.join()
    assert image(step(x)) == image(x * w)


def test_sigint_is_not_lost(device):
    run = norch.capture(lambda x: x * 2)
    x = norch.ones(3, device=device)
    for _ in range(4):
        run(x)
    with pytest.raises(KeyboardInterrupt):
        for i in range(10_000):
            run(x)
            if i == 50:
                os.kill(os.getpid(), signal.SIGINT)
    assert run(x).tolist() == [2.0] * 3
