"""`queue_callback`: what is called at the end of a backward pass."""

from __future__ import annotations

import threading

import pytest

import norch
from norch import AutogradError
from norch.autograd import queue_callback

Tensor = norch.Tensor


def leaf() -> Tensor:
    return norch.tensor([1.0, 2.0], requires_grad=True)


def test_callbacks_run_once_after_everything_in_order() -> None:
    x, seen = leaf(), []
    y = x * 2

    def first(g: Tensor) -> None:
        queue_callback(lambda: (seen.append("one"), queue_callback(lambda: seen.append("three"))))
        norch.autograd.Variable._execution_engine.queue_callback(lambda: seen.append(x.grad.tolist()))

    y.register_hook(first)
    x.register_post_accumulate_grad_hook(lambda p: seen.append("x"))
    loss = y.sum()
    loss.backward(retain_graph=True)
    assert seen == ["x", "one", [2, 2], "three"]
    seen.clear()
    norch.autograd.grad(loss, x, retain_graph=True)
    assert seen == ["one", [2, 2], "three"]
    (x * 3).sum().backward()
    assert seen[3:] == ["x"]


def test_callbacks_wait_for_the_outermost_pass() -> None:
    x, seen = leaf(), []

    def nested(g: Tensor) -> None:
        z = leaf()
        z.register_hook(lambda g: queue_callback(lambda: seen.append("callback")))
        with norch.enable_grad():
            (z * 2).sum().backward()
        seen.append("nested")

    y = x * 2
    y.register_hook(nested)
    x.register_hook(lambda g: seen.append("x"))
    y.sum().backward()
    assert seen == ["nested", "x", "callback"]


def test_callbacks_of_a_pass_that_raises() -> None:
    x, seen = leaf(), []

    def fail(g: Tensor) -> None:
        queue_callback(lambda: seen.append("never"))
        raise ZeroDivisionError

    with x.register_hook(fail), pytest.raises(ZeroDivisionError):
        (x * 2).sum().backward()
    with x.register_hook(lambda g: (queue_callback(lambda: 1 / 0), queue_callback(lambda: seen.append(1)), None)[2]):
        with pytest.raises(ZeroDivisionError):
            (x * 2).sum().backward()
    assert norch.is_grad_enabled()
    (x * 2).sum().backward()
    assert seen == []
    with pytest.raises(AutogradError, match="runs no backward pass"):
        queue_callback(print)


def test_callbacks_belong_to_a_thread() -> None:
    x, seen = leaf(), []

    def elsewhere(g: Tensor) -> None:
        def run() -> None:
            with pytest.raises(AutogradError, match="this thread"):
                queue_callback(print)
            seen.append("refused")

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    x.register_hook(elsewhere)
    x.sum().backward()
    assert seen == ["refused"]
