"""What the tests of profiles share."""

from __future__ import annotations

import gc

import norch
from norch import observing
from norch.profiler import ProfilerActivity

CPU = [ProfilerActivity.CPU]


def is_off():
    return not observing._observers and not any(
        getattr(callback, "__name__", "") == "collecting" for callback in gc.callbacks
    )


def alone():
    """A fixture: no rows of the garbage collector, and nothing stays on."""
    gc.disable()  # whose rows may come anywhere
    yield
    gc.enable()
    assert is_off()


def step(x, w):
    y = (x @ w).relu()
    loss = y.sum()
    loss.backward()
    return loss


def make_tensors():
    """A fixture: the tensors of a step that has run once."""
    x, w = norch.randn(4, 8), norch.randn(8, 3, requires_grad=True)
    step(x, w)
    w.grad = None
    return x, w


def rows(events):
    return {row.key: row for row in events}
