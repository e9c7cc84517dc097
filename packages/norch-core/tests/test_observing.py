"""The one place where ops are observed: who is told of what, and that nothing is left of it."""

from __future__ import annotations

import inspect
import threading

import pytest

import norch
from norch import observing


class Seen(observing.Observer):
    def __init__(self):
        self.calls = []

    def entered(self, what, args, kwargs):
        self.calls.append((what.kind, what.name))
        return what.name

    def left(self, token, result, error):
        self.calls.append(("left", token if error is None else type(error).__name__))

    def names(self, kind):
        return [name for found, name in self.calls if found == kind]


def codes():
    """Of what is observable and was called before: call paths are written at their first call."""
    functions = [weak() for weak, *_ in observing._functions]
    return {f: f.__code__ for f in functions if f is not None and f.__code__.co_name != "_unwritten"}


def test_calls_of_ops_nodes_and_transfers_are_told_in_order_and_code_is_put_back():
    x = norch.randn(3, requires_grad=True)
    (x * 2).sum().backward()  # its call paths are written
    before, seen = codes(), Seen()
    with observing.observed_by(seen):
        y = x * 2
        y.sum().backward()
        y.detach().add_(1)
        y[0].item()
    assert seen.names("op")[:2] == ["mul", "sum"]
    assert "add_" in seen.names("op")
    assert len(seen.names("node")) == 2
    assert seen.names("pass") == ["backward"]
    assert seen.names("transfer") == ["item"]
    assert len(seen.names("left")) * 2 == len(seen.calls)
    assert all(function.__code__ is code for function, code in before.items())
    told = len(seen.calls)
    x * 2
    assert len(seen.calls) == told


def test_a_path_that_is_written_while_observed_is_kept():
    from norch.dispatch.codegen import call_path
    from norch.ops.families import op_of

    call = call_path(op_of(norch.exp))
    seen, x = Seen(), norch.ones(2)
    with observing.observed_by(seen):
        call(x)
    assert call.__code__.co_filename == "<norch exp>"
    assert seen.names("op") == ["exp"]


def test_a_path_that_is_made_while_observed_is_observed():
    from norch.dispatch.codegen import call_path
    from norch.ops.families import op_of

    seen, x = Seen(), norch.ones(2)
    with observing.observed_by(seen):
        call = call_path(op_of(norch.exp))
        call(x)
    call(x)
    assert seen.names("op") == ["exp"]


def test_exceptions_pass_and_are_told():
    seen = Seen()
    with observing.observed_by(seen), pytest.raises(norch.ShapeError):
        norch.ones(2) + norch.ones(3)
    assert seen.calls[-1] == ("left", "ShapeError")


def test_what_left_raises_the_caller_gets():
    class Stop(observing.Observer):
        def left(self, token, result, error):
            raise ArithmeticError("so")

    before, seen = codes(), Seen()
    x = norch.ones(2)
    with pytest.raises(ArithmeticError, match="so"), observing.observed_by(seen), observing.observed_by(Stop()):
        x.exp()
    assert seen.calls == [("op", "exp"), ("left", "exp")]
    assert all(function.__code__ is code for function, code in before.items())


def test_several_observers_are_told_from_the_outside_in():
    told = []

    class Named(observing.Observer):
        def __init__(self, name):
            self.name = name

        def entered(self, what, args, kwargs):
            told.append(f"into {self.name}")

        def left(self, token, result, error):
            told.append(f"out of {self.name}")

    x = norch.ones(2)
    with observing.observed_by(Named("a")), observing.observed_by(Named("b")):
        x.exp()
    assert told == ["into a", "into b", "out of b", "out of a"]


def test_every_thread_is_observed():
    seen, x = Seen(), norch.ones(2)
    with observing.observed_by(seen):
        thread = threading.Thread(target=x.exp)
        thread.start()
        thread.join()
    assert seen.names("op") == ["exp"]


def test_signatures_show_through():
    norch.add(norch.ones(1), 1)
    before = inspect.signature(norch.Tensor.item), inspect.signature(norch.softmax)
    with observing.observed_by(Seen()):
        assert (inspect.signature(norch.Tensor.item), inspect.signature(norch.softmax)) == before


def test_autocast_sees_the_same_caller():
    a, b = norch.randn(4, 4), norch.randn(4, 4)
    seen = Seen()
    with norch.autocast("cpu", dtype=norch.bfloat16):
        plain = a @ b, (a @ b).softmax(0), norch.matmul(a, b)
        with observing.observed_by(seen):
            told = a @ b, (a @ b).softmax(0), norch.matmul(a, b)
    assert [t.dtype for t in told] == [t.dtype for t in plain]
    assert all(norch.equal(t, p) for t, p in zip(told, plain, strict=True))


def test_gradients_take_their_memory_over_all_the_same():
    """Who holds a gradient decides whether it is copied: an observer must not."""

    def copies(observe):
        x = norch.randn(64, requires_grad=True)
        (x * 3).sum().backward()  # warm
        x.grad = None
        seen = Seen()
        loss = (x * 3).sum()
        observing.observe(seen)
        try:
            loss.backward()
        finally:
            observing.release(seen)
        return seen.names("op")

    assert "copy" not in copies(True)


def test_a_closure_cannot_be_observed():
    free = 1

    def closure():
        return free

    with pytest.raises(TypeError, match="closure"):
        observing.observable("op")(closure)


def test_observers_come_and_go_while_other_threads_compute():
    stop, errors, done = threading.Event(), [], []

    def work():
        w = norch.ones(3, requires_grad=True)
        try:
            while not stop.is_set():
                w.grad = None
                loss = (w * 2 + norch.zeros(3)).relu().sum()
                loss.backward()
                assert w.grad.tolist() == [2.0] * 3
                done.append(loss.item())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            with observing.observed_by(Seen()):
                norch.ones(2) + 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    assert set(done) == {6.0}
