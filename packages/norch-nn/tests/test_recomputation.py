"""Checkpoints whose ops are part of the graph: use_reentrant=False."""

from __future__ import annotations

import gc
from dataclasses import dataclass

import numpy as np
import pytest

import norch
from norch import nn
from norch.autograd.graph import save_on_cpu
from norch.utils.checkpoint import checkpoint as checkpoint_of_any_kind
from norch.utils.checkpoint import set_checkpoint_early_stop


def checkpoint(function, *args, **kwargs):
    return checkpoint_of_any_kind(function, *args, use_reentrant=False, **kwargs)


def plainly(function, *args, **kwargs):
    return function(*args, **kwargs)


def block() -> nn.Module:
    norch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def same(found, expected) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=1e-5, atol=1e-6)


@pytest.fixture
def x() -> norch.Tensor:
    return norch.arange(6.0).reshape(2, 3).sin().requires_grad_()


def test_gradients_by_parameters(x) -> None:
    net = block()
    leaves = [x, *net.parameters()]
    expected = norch.autograd.grad(net(x * 2).square().sum(), leaves)
    same(norch.autograd.grad(checkpoint(net, x * 2).square().sum(), leaves), expected)


def test_second_derivatives(x) -> None:
    net, found = block(), []
    for run in (plainly, checkpoint):
        (slope,) = norch.autograd.grad(run(net, x * 2).square().sum(), x, create_graph=True)
        found.append(norch.autograd.grad(slope.square().sum(), [x, *net.parameters()], allow_unused=True))
    same([g for g in found[1] if g is not None], [g for g in found[0] if g is not None])


def test_a_function_that_differentiates(x) -> None:
    net = block()

    def forces(x):
        energy = net(x).square().sum()
        return norch.autograd.grad(energy, x, create_graph=True)[0]

    found = [
        norch.autograd.grad(run(forces, x).square().sum(), list(net.parameters())[:-1]) for run in (plainly, checkpoint)
    ]
    same(found[1], found[0])


def test_hooks_are_called_once_for_the_whole_gradient(x) -> None:
    weight, seen = norch.full((3,), 2.0, requires_grad=True), []
    weight.register_hook(lambda g: seen.append(g.tolist()))
    weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
    y = checkpoint(lambda v: weight * v, weight * x.detach())
    checkpoint(lambda v: (weight * v).sum(), y).backward()
    assert seen == [weight.grad.tolist(), "accumulated"]


def test_parts_within_parts(x) -> None:
    net, found = block(), []

    def outer(run):
        return lambda v: run(net, v.sin()).cos() + run(net, v)

    for run in (plainly, checkpoint):
        net.zero_grad()
        x.grad = None
        run(outer(run), x * 2).square().sum().backward()
        found.append([x.grad, *[p.grad for p in net.parameters()]])
    same(found[1], found[0])


def test_a_graph_that_is_kept(x) -> None:
    y = checkpoint(block(), x).square().sum()
    first = norch.autograd.grad(y, x, retain_graph=True)
    same(norch.autograd.grad(y, x), first)
    with pytest.raises(norch.AutogradError):
        norch.autograd.grad(y, x)


def tensors_of(shape: tuple[int, ...]) -> int:
    gc.collect()
    return sum(type(t) is norch.Tensor and tuple(t.shape) == shape for t in gc.get_objects())


def test_only_arguments_are_kept(x) -> None:
    before = tensors_of((2, 77))
    function = lambda v: v.repeat(1, 26)[:, :77].sin().exp().cos().sum()  # noqa: E731
    y = checkpoint(function, x)
    assert tensors_of((2, 77)) == before
    y.backward()
    assert tensors_of((2, 77)) == before
    again = x.detach().requires_grad_()
    function(again).backward()
    same([x.grad], [again.grad])


@pytest.mark.parametrize("enable", [True, False])
def test_the_second_computation_ends_where_nothing_more_is_needed(enable, x) -> None:
    net, ends = block(), []
    net[3].register_forward_hook(lambda *_: ends.append(1))
    with set_checkpoint_early_stop(enable):
        checkpoint(net, x).sum().backward()
    assert len(ends) == 2 - enable
    checkpoint(net, x, early_stop=False).sum().backward()
    assert len(ends) == 4 - enable


def test_draws_and_arguments_of_any_structure(x) -> None:
    @dataclass
    class Result:
        value: norch.Tensor

    def part(given, *, scale):
        return Result(norch.nn.functional.dropout(given["x"] * scale, 0.5) ** 2)

    found = []
    for run in (plainly, checkpoint):
        x.grad = None
        norch.manual_seed(3)
        out = run(part, {"x": x.exp()}, scale=x.cos()).value
        after = norch.rand(2)
        out.sum().backward()
        found.append([out, after, norch.rand(2), x.grad])
    same(found[1], found[0])


def test_hooks_further_out_have_the_arguments(x) -> None:
    net = block()
    expected = norch.autograd.grad(net(x * 2).sum(), x)
    with save_on_cpu():
        y = checkpoint(net, x * 2).sum()
    same(norch.autograd.grad(y, x), expected)


def test_a_function_that_does_something_else_the_second_time(x) -> None:
    calls = []

    def part(v):
        calls.append(1)
        return v.exp() if len(calls) > 1 else v.exp().exp()

    with pytest.raises(norch.AutogradError, match="saves 1 tensors, and not the 2 of the first time"):
        checkpoint(part, x).sum().backward()
    calls.clear()

    def other(v):
        calls.append(1)
        return (v[:1] if len(calls) > 1 else v).exp()

    with pytest.raises(norch.AutogradError, match=r"of shape \(1, 3\) and \S*float32, and not of \(2, 3\)"):
        checkpoint(other, x).sum().backward()


def test_changes_in_place_are_noticed(x) -> None:
    h = x * 1
    y = checkpoint(lambda v: v.exp().sum(), h)
    h.zero_()
    with pytest.raises(norch.AutogradError, match="changed in place since"):
        y.backward()

    def part(v):
        y = v.exp()
        z = y.sin()
        y.add_(1)
        return z

    with pytest.raises(norch.AutogradError, match="an op saved has been changed in place"):
        checkpoint(part, x, early_stop=False).sum().backward()
