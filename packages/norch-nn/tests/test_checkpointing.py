"""Activation checkpointing: contexts of both computations, and policies."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

import norch
from norch import nn
from norch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)


def test_each_computation_has_its_context():
    entered = []

    @contextmanager
    def context(name):
        entered.append(name)
        yield
        entered.append(f"after {name}")

    x = norch.ones(2, requires_grad=True)
    out = checkpoint(lambda v: (v * v).sum(), x, context_fn=lambda: (context("first"), context("again")))
    assert entered == ["first", "after first"]
    out.backward()
    assert entered[2:] == ["again", "after again"]
    assert x.grad.tolist() == [2, 2]


def test_policies_change_no_result():
    norch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = norch.randn(5, 3, requires_grad=True)
    net(x).sum().backward()
    wanted = [x.grad.clone(), *[p.grad.clone() for p in net.parameters()]]

    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op is norch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

    for given in (policy, [norch.ops.aten.mm.default]):
        x.grad = None
        net.zero_grad()
        with set_checkpoint_early_stop(False):
            out = checkpoint(
                net, x, use_reentrant=False, context_fn=lambda g=given: create_selective_checkpoint_contexts(g)
            )
        out.sum().backward()
        found = [x.grad, *[p.grad for p in net.parameters()]]
        assert all(norch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    with pytest.raises(TypeError, match="a function or a list"):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(TypeError, match="debug is not supported"):
        checkpoint(net, x, debug=True)
