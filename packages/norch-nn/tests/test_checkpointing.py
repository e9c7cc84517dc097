"""Activation checkpointing: the same numbers and draws, contexts of both computations, and policies."""

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


def block() -> nn.Sequential:
    norch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))


@pytest.mark.parametrize("needs", [True, False])
def test_a_checkpointed_block_gives_the_same_gradients_and_draws(needs: bool) -> None:
    found = []
    for again in (False, True):
        model, x = block(), norch.ones(5, 3).mul(0.5).requires_grad_(needs)
        calls: list[int] = []
        model[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        norch.manual_seed(7)
        y = checkpoint(model, x, use_reentrant=False) if again else model(x)
        after = norch.rand(1).item()
        (y * y).sum().backward()
        assert len(calls) == 1 + again
        found.append([y.tolist(), after, norch.rand(1).item(), [p.grad.tolist() for p in model.parameters()]])
        if needs:
            found[-1].append(x.grad.tolist())
    assert found[0] == found[1]


def test_checkpointed_tuples_and_keywords() -> None:
    x, y = norch.tensor([2.0], requires_grad=True), norch.tensor([3.0], requires_grad=True)
    a, b, text = checkpoint(lambda x, y, scale: (x * y * scale, y + 1, "text"), x, y, scale=4.0)
    (a * 2 + b).sum().backward()
    assert (x.grad.item(), y.grad.item(), text) == (24.0, 17.0, "text")
    with norch.no_grad():
        assert not checkpoint(lambda x: x * 2, x).requires_grad
    with pytest.raises(TypeError, match="debug"):
        checkpoint(lambda x: x, x, debug=True)
    with pytest.raises(norch.AutogradError, match="create_graph"):
        norch.autograd.grad(checkpoint(lambda x: x**3, x).sum(), x, create_graph=True)


def test_states_of_devices() -> None:
    assert checkpointing.get_device_states(norch.ones(1, device="cpu"), 2) == ([], [])
    state = norch.get_rng_state()
    drawn = norch.rand(1).item()
    checkpointing.set_device_states([0], [state])
    assert norch.rand(1).item() == drawn


def test_checkpoint_sequential() -> None:
    model, x = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)]), norch.ones(2, 4, requires_grad=True)
    expected = norch.autograd.grad(model(x).sum(), x)[0]
    checkpointing.checkpoint_sequential(model, 2, x).sum().backward()
    assert x.grad.tolist() == expected.tolist()
    with pytest.raises(ValueError, match="6 segments of 5"):
        checkpointing.checkpoint_sequential(model, 6, x)
