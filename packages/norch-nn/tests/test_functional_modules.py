"""Modules of the package functorch, tensors of modules put in by name, and hooks on registration."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest

import norch
from norch import nn
from norch.func import (
    combine_state_for_ensemble,
    grad,
    make_functional,
    make_functional_with_buffers,
    replace_all_batch_norm_modules_,
    vmap,
)
from norch.nn.modules import module as hooks
from norch.nn.utils._named_member_accessor import NamedMemberAccessor, swap_tensor


def make_net():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_make_functional():
    norch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    func, params = make_functional(net)
    x = norch.randn(5, 3)
    assert [tuple(p.shape) for p in params] == [(4, 3), (4,), (2, 4), (2,)]
    assert params[0] is not net[0].weight
    assert list(func.parameters()) == []
    assert norch.allclose(func(params, x), net(x))
    assert (func([p * 0 for p in params], x) == 0).all()
    gradients = grad(lambda p: func(p, x).sum())(params)
    net(x).sum().backward()
    assert all(norch.allclose(g, p.grad) for g, p in zip(gradients, net.parameters(), strict=True))
    assert not any(p.requires_grad for p in make_functional(net, disable_autograd_tracking=True)[1])
    with pytest.raises(ValueError, match="4 of these tensors, got 3"):
        func(params[:3], x)
    with pytest.raises(RuntimeError, match="make_functional_with_buffers"):
        make_functional(make_net())


def test_ensembles():
    norch.manual_seed(0)
    nets = [make_net().eval() for _ in range(3)]
    x = norch.randn(5, 3)
    func, params, buffers = combine_state_for_ensemble(nets)
    found = vmap(func, (0, 0, None))(params, buffers, x)
    assert norch.allclose(found, norch.stack([net(x) for net in nets]), atol=1e-6)
    func, params, buffers = make_functional_with_buffers(nets[0])
    assert len(buffers) == 3
    assert norch.allclose(func(params, buffers, x), nets[0](x))


def test_batch_norms_without_running_statistics():
    net = make_net().eval()
    assert replace_all_batch_norm_modules_(net) is net
    assert (list(net.buffers()), net[1].track_running_stats) == ([], False)
    x = norch.randn(5, 3)
    found = net[:2](x)
    assert norch.allclose(found.mean(0), norch.zeros(4), atol=1e-5)


def test_tensors_are_put_in_by_name():
    net = nn.Linear(2, 2)
    weight, plain = net.weight, norch.zeros(2, 2)
    assert swap_tensor(net, "weight", plain) is weight
    assert net.weight is plain
    assert dict(net.named_parameters())["weight"] is plain
    access = NamedMemberAccessor(nn.Sequential(net))
    assert access.swap_tensor("0.weight", weight) is plain
    assert access.get_tensor("0.weight") is weight
    before, missing = access.swap_tensors_dict({"0.more": plain}, allow_missing=True)
    assert missing == ["0.more"]
    assert net.more is plain
    access.swap_tensors_dict(before, allow_missing=True)
    assert not hasattr(net, "more")
    assert access.check_keys(["0.weight", "1.bias"]) == (["0.bias"], ["1.bias"])
    with pytest.raises(AttributeError, match="no attribute `other`"):
        swap_tensor(net, "other", plain)
    with pytest.raises(KeyError, match="no dot"):
        swap_tensor(net, "a.b", plain)


def test_registries_are_in_the_dict_of_a_module():
    """Programs look there without asking for the attribute."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    own = vars(net[0])
    assert list(own["_parameters"]) == ["weight", "bias"]
    assert list(vars(net)["_modules"]) == ["0", "1"]
    assert list(vars(net[1]).get("_buffers")) == ["running_mean", "running_var", "num_batches_tracked"]
    plain = norch.zeros(2, 2)
    assert own["_parameters"].pop("weight") is not None
    own["weight"] = plain
    assert net[0].weight is plain
    assert list(net[0].state_dict()) == ["bias"]
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert vars(other)["_modules"]["1"] is other[1]
        other.more = nn.Tanh()
        assert (list(vars(other)["_modules"]), list(vars(net)["_modules"])) == (["0", "1", "more"], ["0", "1"])
    vars(net).update({name: type(value)(value) for name, value in vars(net).items() if name == "_modules"})
    net.late = nn.Tanh()
    assert [name for name, _ in copy.deepcopy(net).named_children()] == ["0", "1", "late"]
    gone = weakref.ref(net)
    gc.disable()
    try:
        del net
        assert gone() is None  # without a cycle that would keep its memory for a while
    finally:
        gc.enable()


def test_names_with_dots_in_a_registry():
    net = nn.Module()
    net._parameters.update({"a.b": nn.Parameter(norch.ones(2))})
    assert list(net.state_dict()) == ["a.b"]
    with pytest.raises(KeyError, match="contain a dot"):
        net.register_parameter("c.d", None)


def test_hooks_on_registration():
    seen = []
    with (
        hooks.register_module_parameter_registration_hook(lambda m, name, p: seen.append(name)),
        hooks.register_module_buffer_registration_hook(lambda m, name, b: seen.append(name)),
        hooks.register_module_module_registration_hook(lambda m, name, c: nn.Tanh() if name == "act" else None),
    ):
        net = nn.Sequential(nn.BatchNorm1d(2))
        net.act = nn.ReLU()
    net.late = nn.Parameter(norch.ones(1))
    assert sorted(seen) == ["bias", "num_batches_tracked", "running_mean", "running_var", "weight"]
    assert type(net.act) is nn.Tanh


def test_extra_state_of_modules_without_any():
    net = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="Linear has no extra state"):
        net.get_extra_state()
    with pytest.raises(RuntimeError, match="Linear has no extra state"):
        net.set_extra_state(None)
    assert nn.Linear.get_extra_state is nn.Module.get_extra_state
    assert "_extra_state" not in net.state_dict()


def test_buffers_without_a_shape_as_yet():
    buffer = nn.UninitializedBuffer(dtype=norch.float64)
    assert (repr(buffer), buffer.requires_grad, buffer.persistent) == ("<UninitializedBuffer>", False, True)
    assert isinstance(buffer, nn.parameter.UninitializedTensorMixin)
    net = nn.Module()
    net.register_buffer("b", buffer)
    buffer.materialize((2, 3))
    assert (type(net.b), net.b.shape, net.b.dtype) == (norch.Tensor, (2, 3), norch.float64)
    assert nn.parameter.is_lazy(nn.UninitializedParameter())
