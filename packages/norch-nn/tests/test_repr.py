"""What modules, parameters and optimisers print is what PyTorch 2.13 prints."""

import pytest

import norch
from norch import nn, optim

pytestmark = pytest.mark.usefixtures("on_host")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(1, 10)
        self.body = nn.Sequential(
            nn.Flatten(), nn.Sequential(nn.ReLU(inplace=True), nn.Identity()), nn.Linear(3, 2, bias=False)
        )
        self.loss = nn.CrossEntropyLoss()
        self.mse = nn.MSELoss()


NET = """\
Net(
  (fc1): Linear(in_features=1, out_features=10, bias=True)
  (body): Sequential(
    (0): Flatten(start_dim=1, end_dim=-1)
    (1): Sequential(
      (0): ReLU(inplace=True)
      (1): Identity()
    )
    (2): Linear(in_features=3, out_features=2, bias=False)
  )
  (loss): CrossEntropyLoss()
  (mse): MSELoss()
)"""


class Extra(nn.Module):
    def __init__(self, extra, child=False):
        super().__init__()
        self.extra = extra
        if child:
            self.sub = nn.Tanh()

    def extra_repr(self):
        return self.extra


ACTIVATIONS = """\
Sequential(
  (relu): ReLU()
  (sigmoid): Sigmoid()
  (leaky): LeakyReLU(negative_slope=0.01)
  (elu): ELU(alpha=1.0)
  (gelu): GELU(approximate='none')
  (silu): SiLU()
  (softplus): Softplus(beta=1.0, threshold=20.0)
  (softmax): Softmax(dim=1)
  (log_softmax): LogSoftmax(dim=-1)
)"""


def test_modules():
    assert repr(Net()) == NET
    assert repr(nn.Sequential()) == "Sequential()"
    assert repr(Extra("a=1")) == "Extra(a=1)"
    assert repr(Extra("a=1\nb=2")) == "Extra(\n  a=1\n  b=2\n)"
    assert repr(Extra("a=1", child=True)) == "Extra(\n  a=1\n  (sub): Tanh()\n)"
    assert repr(Extra("a=1\nb=2", child=True)) == "Extra(\n  a=1\n  b=2\n  (sub): Tanh()\n)"


def test_activations():
    net = nn.Sequential(
        dict(
            relu=nn.ReLU(), sigmoid=nn.Sigmoid(), leaky=nn.LeakyReLU(), elu=nn.ELU(), gelu=nn.GELU(), silu=nn.SiLU(),
            softplus=nn.Softplus(), softmax=nn.Softmax(dim=1), log_softmax=nn.LogSoftmax(dim=-1),
        )
    )  # fmt: skip
    assert repr(net) == ACTIVATIONS


def test_parameters():
    assert repr(nn.Parameter(norch.tensor([1.0, 2.0], device="cpu"))) == (
        "Parameter containing:\ntensor([1., 2.], requires_grad=True)"
    )
    integers = norch.zeros(2, dtype=norch.int64, device="cpu")
    assert str(nn.Parameter(integers, requires_grad=False)) == ("Parameter containing:\ntensor([0, 0])")


def test_optimizers():
    groups = [{"params": [nn.Parameter(norch.ones(1))]}, {"params": [nn.Parameter(norch.ones(1))], "lr": 0.5}]
    assert repr(optim.SGD(groups, lr=0.1)) == (
        "SGD (\nParameter Group 0\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 0.1\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n"
        "\nParameter Group 1\n    dampening: 0\n    differentiable: False\n    foreach: None\n    fused: None\n"
        "    lr: 0.5\n    maximize: False\n    momentum: 0\n    nesterov: False\n    weight_decay: 0\n)"
    )
