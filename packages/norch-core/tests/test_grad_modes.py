"""The modes of recording: no_grad, enable_grad, inference_mode, set_grad_enabled."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import norch

Tensor = norch.Tensor


def leaf(*values: float) -> Tensor:
    return norch.tensor(values, dtype=norch.float64, requires_grad=True)


def test_modes_as_contexts() -> None:
    x = leaf(1)
    with norch.no_grad():
        assert not norch.is_grad_enabled()
        assert not (x * 2).requires_grad
        with norch.enable_grad():
            assert (x * 2).requires_grad
        with norch.set_grad_enabled(True):
            assert (x * 2).requires_grad
        assert not norch.is_grad_enabled()
    with norch.inference_mode():
        assert norch.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
    with norch.inference_mode(False):
        assert (x * 2).requires_grad
    assert not norch.is_inference_mode_enabled()
    assert norch.is_grad_enabled()
    norch.set_grad_enabled(False)
    assert not norch.is_grad_enabled()
    norch.set_grad_enabled(True)


def test_modes_end_with_an_exception() -> None:
    with pytest.raises(KeyError), norch.no_grad():
        raise KeyError
    assert norch.is_grad_enabled()


@pytest.mark.parametrize(
    "mode", [norch.no_grad, norch.no_grad(), norch.inference_mode, norch.inference_mode(), norch.set_grad_enabled]
)
def test_modes_as_decorators(mode: Any) -> None:
    if mode is norch.set_grad_enabled:
        mode = norch.set_grad_enabled(False)
        norch.set_grad_enabled(True)

    @mode
    def double(x: Tensor, depth: int = 2) -> Tensor:
        """Twice."""
        return double(x, depth - 1) if depth else x * 2

    assert double.__doc__ == "Twice."
    assert not double(leaf(1)).requires_grad
    assert norch.is_grad_enabled()

    @norch.no_grad()
    @norch.enable_grad()
    def recorded(x: Tensor) -> Tensor:
        return x * 2

    assert recorded(leaf(1)).requires_grad


def test_inference_mode_of_false_records_within_other_modes() -> None:
    for outer in (norch.no_grad(), norch.inference_mode()):
        with outer:
            was = norch.is_inference_mode_enabled()
            with norch.inference_mode(False):
                assert (norch.is_grad_enabled(), norch.is_inference_mode_enabled()) == (True, False)
                x = leaf(1)
                (x * 2).sum().backward()
                assert x.grad is not None
            assert (norch.is_grad_enabled(), norch.is_inference_mode_enabled()) == (False, was)


def test_set_grad_enabled_as_a_decorator_changes_nothing_outside() -> None:
    @norch.set_grad_enabled(False)
    def frozen(x: Tensor) -> Tensor:
        return x * 2

    assert norch.is_grad_enabled()
    assert not frozen(leaf(1)).requires_grad
    with norch.no_grad():

        @norch.set_grad_enabled(True)
        def recorded(x: Tensor) -> Tensor:
            return x * 2

        assert not norch.is_grad_enabled()
        assert recorded(leaf(1)).requires_grad


def test_a_mode_decorates_a_generator() -> None:
    closed = []

    @norch.no_grad()
    def steps(count: int) -> Any:
        try:
            for _ in range(count):
                try:
                    seen.append((norch.is_grad_enabled(), (yield norch.is_grad_enabled())))
                except KeyError:
                    seen.append((norch.is_grad_enabled(), "thrown"))
            return "end"
        finally:
            closed.append(norch.is_grad_enabled())

    seen: list[Any] = []
    running = steps(2)
    assert next(running) is False
    assert norch.is_grad_enabled()
    assert running.send("sent") is False
    with pytest.raises(StopIteration) as end:
        running.throw(KeyError)
    assert (end.value.value, seen) == ("end", [(False, "sent"), (False, "thrown")])
    begun = steps(1)
    next(begun)
    begun.close()
    assert closed == [False, False]
    assert norch.is_grad_enabled()


def test_threads_and_tasks_have_their_own_mode() -> None:
    inside, go, seen = threading.Event(), threading.Event(), []

    def work() -> None:
        seen.append(norch.is_grad_enabled())
        with norch.no_grad():
            inside.set()
            go.wait()

    with norch.no_grad():
        thread = threading.Thread(target=work)
        thread.start()
        inside.wait()
    assert norch.is_grad_enabled()
    go.set()
    thread.join()
    assert seen == [True]

    async def sleeper() -> bool:
        with norch.no_grad():
            await asyncio.sleep(0.01)
            return norch.is_grad_enabled()

    async def other() -> bool:
        await asyncio.sleep(0.005)
        return norch.is_grad_enabled()

    async def both() -> list[bool]:
        return await asyncio.gather(sleeper(), other())

    assert asyncio.run(both()) == [False, True]
