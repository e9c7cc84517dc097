"""The gradient of a loss by class takes the memory of the scores where nothing else can see them, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from native_backend import NativeBackend

import norch
from norch.backend.registry import register, unregister
from norch.ops.families import op_of
from norch.ops.nn import classification


@pytest.fixture(autouse=True, scope="module")
def native():
    register(NativeBackend())
    yield
    unregister("native")


@pytest.fixture
def overwritten(monkeypatch):
    """How often a gradient was written over scores."""
    op, calls = op_of(classification.cross_entropy_rows_grad), []
    into = op.into

    def noted(*args):
        calls.append(args)
        into(*args)

    monkeypatch.setattr(op, "into", noted)
    return calls


def gradients(hold=lambda scores, flat: None, **options):
    """Of a layer before the loss. hold: gives what is still there in the backward pass."""
    rng = np.random.default_rng(0)
    x, w = (norch.tensor(rng.uniform(-1, 1, s).astype(np.float32), device="native") for s in ((2, 2, 8), (30, 8)))
    x.requires_grad_()
    w.requires_grad_()
    target = norch.tensor([[1, 2], [3, -1]], device="native")

    def loss_of():
        scores = norch.linear(x, w)
        flat = scores.view(-1, 30)
        held = hold(scores, flat)
        return held, norch.cross_entropy(flat, target.view(-1), ignore_index=-1)

    held, loss = loss_of()
    seen = None if held is None or not isinstance(held, norch.Tensor) else held.tolist()
    loss.backward(**options)
    assert seen is None or held.tolist() == seen
    return x.grad.tolist(), w.grad.tolist()


@pytest.mark.parametrize(
    "hold",
    [lambda s, f: s, lambda s, f: f, lambda s, f: s[0], lambda s, f: s.detach(), lambda s, f: s.buffer],
    ids=["scores", "view", "part", "detached", "memory"],
)
def test_scores_that_are_held_stay(hold, overwritten):
    expected = gradients()
    assert len(overwritten) == 1
    assert gradients(hold) == expected
    assert len(overwritten) == 1


def test_scores_of_a_graph_that_is_kept_stay(overwritten):
    expected = gradients()
    overwritten.clear()
    assert gradients(retain_graph=True) == expected
    for found, wanted in zip(gradients(create_graph=True), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-6)
    assert not overwritten


def test_scores_that_are_a_leaf_stay(overwritten):
    x = norch.zeros(3, 5, device="native").requires_grad_()
    target = norch.tensor([0, 1, 2], device="native")
    norch.cross_entropy(x, target).backward()
    assert x.tolist() == [[0.0] * 5] * 3
    assert not overwritten
    loss = norch.cross_entropy(norch.zeros(3, 5, device="native").requires_grad_(), target)
    loss.backward()  # the leaf is gone, and so is its gradient
