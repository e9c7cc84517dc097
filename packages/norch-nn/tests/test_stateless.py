"""Modules as functions of their parameters: functional_call, stacked models, and norch.func over both."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch import nn
from norch.func import functional_call, grad, stack_module_state, vmap


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(36, 5)

    def forward(self, x, scale=1.0):
        x = nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2)
        return nn.functional.log_softmax(self.fc(x.flatten(1)) * scale, -1)


@pytest.fixture
def net() -> Net:
    norch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def images() -> norch.Tensor:
    return norch.randn(6, 1, 8, 8, generator=norch.Generator().manual_seed(1))


def same(found: norch.Tensor, expected: norch.Tensor, tol: float = 2e-5) -> None:
    assert tuple(found.shape) == tuple(expected.shape)
    np.testing.assert_allclose(found.detach().cpu().numpy(), expected.detach().cpu().numpy(), rtol=tol, atol=tol)


def detached(net: nn.Module) -> dict[str, norch.Tensor]:
    return {name: p.detach() for name, p in net.named_parameters()}


def test_other_parameters_and_the_own_ones_put_back(net, images) -> None:
    other = Net().eval()
    own = dict(net.named_parameters())
    same(functional_call(net, dict(other.named_parameters()), (images,)), other(images))
    same(functional_call(net, dict(other.named_parameters()), images, {"scale": 2.0}), other(images, 2.0))
    same(functional_call(net, {}, images), net(images))
    assert all(p is own[name] for name, p in net.named_parameters())
    with pytest.raises(norch.ShapeError):
        functional_call(net, {"fc.weight": norch.ones(2, 2)}, images)
    assert all(p is own[name] for name, p in net.named_parameters())


def test_several_dicts_and_strict(net, images) -> None:
    parameters, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    same(functional_call(net, (parameters, buffers), images, strict=True), net(images))
    with pytest.raises(RuntimeError, match=r"Missing key.*norm\.running_mean.*Unexpected key.*\['more'\]"):
        functional_call(net, {**parameters, "more": norch.ones(1)}, images, strict=True)
    with pytest.raises(ValueError, match=r"fc\.bias comes in more than one dict"):
        functional_call(net, (parameters, {"fc.bias": norch.ones(5)}), images)


def test_tied_weights() -> None:
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    x, double = norch.ones(2, 3), norch.eye(3) * 2
    same(functional_call(net, {"0.weight": double}, x), x * 4)
    same(functional_call(net, {"0.weight": double}, x, tie_weights=False), x @ net[1].weight.T * 2)
    with pytest.raises(ValueError, match=r"are one tensor, but different ones"):
        functional_call(net, {"0.weight": double, "1.weight": norch.eye(3)}, x)


def test_running_statistics_go_into_the_dict(net, images) -> None:
    net.train()
    before = net.norm.running_mean.clone()
    buffers = {name: b.clone() for name, b in net.named_buffers()}
    functional_call(net, (detached(net), buffers), images)
    same(net.norm.running_mean, before)
    assert not norch.equal(buffers["norm.running_mean"], before)


def test_gradients_of_each_sample(net, images) -> None:
    labels = norch.tensor([0, 1, 2, 3, 4, 0])

    def loss(parameters, x, y):
        return nn.functional.nll_loss(functional_call(net, parameters, x.unsqueeze(0)), y.unsqueeze(0))

    found = vmap(grad(loss), in_dims=(None, 0, 0))(detached(net), images, labels)
    for i in range(6):
        net.zero_grad()
        nn.functional.nll_loss(net(images[i : i + 1]), labels[i : i + 1]).backward()
        for name, p in net.named_parameters():
            same(found[name][i], p.grad)


def test_ensembles(images) -> None:
    nets = [Net().eval() for _ in range(3)]
    parameters, buffers = stack_module_state(nets)
    assert parameters["fc.weight"].is_leaf
    assert parameters["fc.weight"].requires_grad

    def run(parameters, buffers, x):
        return functional_call(nets[0], (parameters, buffers), x)

    expected = norch.stack([net(images) for net in nets])
    found = vmap(run, in_dims=(0, 0, None))(parameters, buffers, images)
    same(found, expected)
    found[:, :, 0].sum().backward()
    for i, net in enumerate(nets):
        net(images)[:, 0].sum().backward()
        same(parameters["conv.weight"].grad[i], net.conv.weight.grad, 1e-4)
    same(vmap(run)(parameters, buffers, images.reshape(3, 2, 1, 8, 8))[1], nets[1](images[2:4]))


def test_states_that_cannot_be_stacked() -> None:
    with pytest.raises(ValueError, match="at least one model"):
        stack_module_state([])
    with pytest.raises(ValueError, match="training mode"):
        stack_module_state([nn.Linear(1, 1), nn.Linear(1, 1).eval()])
    with pytest.raises(ValueError, match="same class"):
        stack_module_state([nn.Linear(1, 1), nn.Identity()])
    frozen = nn.Linear(1, 1).requires_grad_(False)
    with pytest.raises(ValueError, match="weight requires grad in some"):
        stack_module_state([nn.Linear(1, 1), frozen])


def test_attention_is_mapped_in_one_pass(recwarn) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = norch.randn(3, 5, 8)

    def loss(parameters, x):
        return (functional_call(layer, parameters, x.unsqueeze(0)) ** 2).sum()

    found = vmap(grad(loss), in_dims=(None, 0))(detached(layer), x)
    assert not recwarn.list
    for i in range(3):
        layer.zero_grad()
        (layer(x[i : i + 1]) ** 2).sum().backward()
        for name, p in layer.named_parameters():
            same(found[name][i], p.grad, 1e-4)


def test_other_names_are_attributes_meanwhile():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = norch.tensor(2.0)  # no parameter and no buffer
            self.inner = nn.Identity()

        def forward(self, x):
            self.scale = self.scale + 1
            return x * self.scale + self.inner.shift + sum(self.parameters())

    module, x = Scaled(), norch.ones(2)
    kept = module.scale
    given = {"scale": norch.tensor(4.0), "inner.shift": nn.Parameter(norch.tensor(1.0))}
    assert functional_call(module, given, x).tolist() == [7.0, 7.0]
    assert module.scale is kept
    assert given["scale"].item() == 5
    assert not hasattr(module.inner, "shift")
    assert not list(module.parameters())
    with pytest.raises(AttributeError, match="lacking"):
        functional_call(module, {"lacking.weight": x}, x)
    with pytest.raises(TypeError, match=r"inner is a Identity, not a tensor"):
        functional_call(module, {"inner": x}, x)
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): \[\]. Unexpected key\(s\): \['scale'\]"):
        functional_call(module, {"scale": x}, x, strict=True)


def test_other_tensors_within_a_context(net, images):
    """zuko draws the weights of its networks anew within `_reparametrize_module`."""
    from norch.nn.utils.stateless import _reparametrize_module

    weight, bias = norch.zeros(5, 36), norch.arange(5.0).requires_grad_()
    given = {"fc.weight": weight, "fc.bias": bias, "norm.running_mean": norch.zeros(4)}
    before, mean = net.fc.weight, net.norm.running_mean
    with _reparametrize_module(net, given):
        assert net.fc.weight is weight
        net(images).sum().backward()
        net.norm.running_mean = norch.ones(4)
    assert net.fc.weight is before
    assert net.norm.running_mean is mean
    assert net.fc.bias.grad is None
    assert bias.grad.shape == (5,)
    assert given["norm.running_mean"].tolist() == [1, 1, 1, 1]
    with pytest.raises(RuntimeError, match="Missing key"), _reparametrize_module(net, given, strict=True):
        pass
    with pytest.raises(ValueError, match="stop"), _reparametrize_module(net, given):
        raise ValueError("stop")
    assert net.fc.weight is before
