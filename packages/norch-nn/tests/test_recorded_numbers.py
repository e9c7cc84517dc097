"""The numbers that recorded work gets before each replay: those that the optimiser would have given, and its draws."""

from __future__ import annotations

import pytest

import norch
from norch import optim
from norch.backend import feeders
from norch.capturing import numbers

pytestmark = pytest.mark.usefixtures("on_host")

assert norch.capture  # what feeds is loaded with it


class Recording:
    """A backend that records: kernels of steps and draws are noted, and nothing runs."""

    def __init__(self, monkeypatch):
        self.calls = []

        def make_step(op, attrs, lists, scalars, one):
            self.calls.append((op.kernel, tuple(scalars), True))

        monkeypatch.setattr(numbers, "make_step", make_step)

    def draw(self):
        self.calls.append(("dropout", (0.5, *norch.default_generator.next()), True))

    def __call__(self):
        return self.calls


def parameters():
    found = [norch.ones(3).requires_grad_(), norch.ones(2, 2).requires_grad_()]
    for p in found:
        p.grad = norch.ones(*p.shape)
    return found


def steps_of(optimizer):
    """What a step gives to its kernel, and whether it counts."""
    taken = []
    numbers.watchers[numbers.get_ident()] = lambda op, attrs, lists, scalars, one: taken.append(tuple(scalars))
    try:
        optimizer.step()
    finally:
        del numbers.watchers[numbers.get_ident()]
    return taken


@pytest.mark.parametrize("kind", [optim.AdamW, optim.NAdam, optim.RAdam, optim.SGD])
def test_steps_get_the_numbers_of_eager(kind, monkeypatch):
    recorded, eager = (kind(parameters(), lr=0.1) for _ in range(2))
    recorded.step()
    eager.step()
    recording = Recording(monkeypatch)
    with feeders[0](recording) as fed:
        recorded.step()
    assert len(recording.calls) == 1
    for turn in range(4):
        for optimizer in (recorded, eager):
            optimizer.param_groups[0]["lr"] = 0.1 / (turn + 1)
        assert [found for _, found in fed.feed()] == steps_of(eager)
    assert [s.get("step") for s in recorded.state.values()] == [s.get("step") for s in eager.state.values()]


def test_draws_go_on_where_the_generator_is(monkeypatch):
    recording = Recording(monkeypatch)
    norch.manual_seed(9)
    with feeders[0](recording) as fed:
        recording.draw()
        recording.draw()
    assert norch.default_generator._state() == (9, 0)
    assert dict(fed.feed()) == {0: (0.5, 9, 0), 1: (0.5, 9, 1)}
    norch.rand(1)
    assert dict(fed.feed()) == {0: (0.5, 9, 3), 1: (0.5, 9, 4)}
    norch.manual_seed(2)
    assert dict(fed.feed()) == {0: (0.5, 2, 0), 1: (0.5, 2, 1)}


def test_another_step_than_was_recorded_is_an_error(monkeypatch):
    params = parameters()
    optimizer = optim.AdamW(params)
    optimizer.step()
    with feeders[0](Recording(monkeypatch)) as fed:
        optimizer.step()
    del optimizer.param_groups[0]["params"][0]
    with pytest.raises(norch.CaptureError, match=r"AdamW.step\(\) now makes another step"):
        fed.feed()


@pytest.mark.parametrize("kind", [optim.AdamW, optim.SGD])
def test_gradients_may_go_between_replays(kind, monkeypatch):
    """A replay fills the gradients of the recording, whatever the attribute holds: PyTorch's graphs do so too."""
    params = parameters()
    optimizer = kind(params, lr=0.1)
    optimizer.step()
    with feeders[0](Recording(monkeypatch)) as fed:
        optimizer.step()
    expected = steps_of(kind(parameters(), lr=0.1)) if kind is optim.SGD else None
    for other in (None, norch.zeros(3)):
        params[0].grad = other
        ((_, numbers),) = fed.feed()
        assert params[0].grad is other
        assert expected is None or [tuple(numbers)] == expected
    if kind is optim.AdamW:
        assert optimizer.state[params[0]]["step"] == 3


def test_what_would_never_change_is_refused(monkeypatch):
    with pytest.raises(norch.CaptureError, match=r"makes its state.*test_recorded_numbers.py:\d+"):
        with feeders[0](Recording(monkeypatch)):
            optim.AdamW(parameters()).step()
    optimizer = optim.SGD(parameters(), lr=0.1)
    with pytest.raises(norch.CaptureError, match=r"runs a closure .test_recorded_numbers.py:\d+"):
        with feeders[0](Recording(monkeypatch)):
            optimizer.step(lambda: 0.0)
    with pytest.raises(norch.CaptureError, match="drawn that replays would not"):
        with feeders[0](Recording(monkeypatch)):
            norch.rand(3)
    recording = Recording(monkeypatch)
    with pytest.raises(norch.CaptureError, match="dropout draws from another generator"):
        with feeders[0](recording):
            recording.calls.append(("dropout", (0.5, *norch.Generator().manual_seed(3).next()), True))
    with pytest.raises(norch.CaptureError, match="adam_step_.. is called by no optimiser"):
        with feeders[0](recording):
            recording.calls[:] = [("adam_step", (0.1,), True)]
