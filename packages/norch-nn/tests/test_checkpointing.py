"""Activation checkpointing: contexts of both computations, and policies."""

from __future__ import annotations

from collections import namedtuple
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

import norch
from norch import nn
from norch.utils import checkpoint as checkpointing
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


Pair = namedtuple("Pair", "first second")


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_arguments_and_results_have_structure(use_reentrant):
    layer, x = nn.Linear(3, 3), norch.rand(2, 3, requires_grad=True)

    def part(given, *, scale, many):
        y = layer(given["x"]) * scale + many[0]
        return {"pair": Pair(y, [given["x"] * 2, "text"]), "none": None}

    def gradients(run):
        h, scale = x * 3, (x + 1).relu()
        out = run(part, {"x": h}, scale=scale, many=[h.sin()])
        loss = out["pair"].first.sum() + out["pair"].second[0].pow(2).sum() + h.sum() + scale.sum()
        x.grad = layer.weight.grad = None
        loss.backward()
        assert isinstance(out["pair"], Pair)
        assert (out["pair"].second[1], out["none"]) == ("text", None)
        return x.grad, layer.weight.grad

    found = gradients(lambda *args, **kwargs: checkpoint(*args, use_reentrant=use_reentrant, **kwargs))
    for got, expected in zip(found, gradients(lambda f, *args, **kwargs: f(*args, **kwargs)), strict=True):
        np.testing.assert_allclose(got.cpu().numpy(), expected.cpu().numpy(), rtol=1e-6)


def test_results_of_unknown_structure_are_refused():
    @dataclass
    class Result:
        value: norch.Tensor

    with pytest.raises(norch.DTypeError, match="register_pytree_node knows, not a Result"):
        checkpoint(lambda x: Result(x * 2), norch.ones(2, requires_grad=True))


def test_the_parts_of_checkpoints_that_libraries_make() -> None:
    x, y = norch.ones(2, requires_grad=True), norch.ones(2)
    found = checkpointing.detach_variable((x * 2, y, 3))
    assert [getattr(value, "requires_grad", None) for value in found] == [True, False, None]
    assert found[0].is_leaf
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        checkpointing.detach_variable([x])
    checkpointing.check_backward_validity((x, 1))
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpointing.check_backward_validity((y,))
    assert norch.autograd._is_checkpoint_valid()
    assert norch.nn.functional.has_torch_function((x, y)) is False
    assert norch.hub._check_module_exists("norch")
