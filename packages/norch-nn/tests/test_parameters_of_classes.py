"""Parameters of classes of one's own, and complex ones, as programs that have norch as `torch` see them."""

from __future__ import annotations

import copy
import math
import subprocess
import sys

import norch
from norch import nn


class Angle(norch.Tensor):
    """An angle from 0 to 2 pi: what is added leads around."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs)

    def add_(self, other, alpha=1):
        moved = self.as_subclass(norch.Tensor) + alpha * other.as_subclass(norch.Tensor)
        return self.copy_(moved % (2 * math.pi))


class AngleParameter(Angle, nn.Parameter):
    def __new__(cls, data):
        return norch.Tensor._make_subclass(cls, data, True)


def test_sgd_adds_as_the_class_of_a_parameter_does():
    angle, plain = AngleParameter(norch.full((2,), 6.0)), nn.Parameter(norch.full((2,), 6.0))
    for options in (
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True},
        {"weight_decay": 0.1},
        {"maximize": True},
    ):
        optimizer = norch.optim.SGD([angle, plain], lr=0.25, **options)
        expected = plain.detach().clone() % (2 * math.pi)
        with norch.no_grad():
            angle.copy_(expected), plain.copy_(expected)
        for _ in range(3):
            optimizer.zero_grad()
            (angle.as_subclass(norch.Tensor).sum() * -2 + plain.sum() * -2).backward()
            optimizer.step()
        turned = angle.detach().as_subclass(norch.Tensor)
        if "weight_decay" not in options:
            assert norch.allclose(turned, plain.detach() % (2 * math.pi), atol=1e-5)
        assert bool(((turned >= 0) & (turned < 2 * math.pi)).all())
    assert type(angle) is AngleParameter


def test_plain_tensors_of_a_class_that_is_asked():
    angle = norch.full((2,), 6.0).as_subclass(Angle)
    plain = norch.Tensor.as_subclass(angle, norch.Tensor)
    assert type(plain) is norch.Tensor
    assert plain.norm().item() == norch.full((2,), 6.0).norm().item()


def test_derivatives_keep_the_class():
    seen = []

    def of(x):
        seen.append(type(x))
        return (x * x).as_subclass(norch.Tensor)

    jacobian = norch.autograd.functional.jacobian(of, norch.ones(2).as_subclass(Angle))
    assert seen == [Angle]
    assert norch.allclose(jacobian.as_subclass(norch.Tensor), 2 * norch.eye(2))


def test_complex_parameters_are_parameters():
    code = """
from norch.compat.standin import install
install()
import torch
from torch import nn
p = nn.Parameter(torch.zeros(2, dtype=torch.cfloat))
assert isinstance(p, nn.Parameter) and isinstance(p, torch.Tensor)
assert not isinstance(torch.zeros(2, dtype=torch.cfloat), nn.Parameter)
class Handler(nn.Module):
    def __setattr__(self, key, value):
        if isinstance(value, nn.Parameter):
            self.register_parameter(key, nn.Parameter(torch.view_as_real(value)))
        else:
            super().__setattr__(key, value)
m = Handler()
m.weight = p
assert [tuple(q.shape) for q in m.parameters()] == [(2, 2)]
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.stdout, made.stderr) == ("", "")


def test_a_parameter_stays_of_its_class():
    angle = norch.full((2, 2), 6.0).as_subclass(Angle)
    p = nn.Parameter(angle)
    assert type(p) is Angle
    assert isinstance(p, nn.Parameter)
    assert p.requires_grad
    assert p.is_leaf
    assert not angle.requires_grad
    assert not isinstance(angle, nn.Parameter)
    assert not isinstance(p * 2, nn.Parameter)
    assert type(nn.Parameter(p)) is Angle
    layer = nn.Linear(2, 2, bias=False)
    layer.weight = p
    assert list(layer.parameters()) == [p]
    assert type(layer(norch.ones(1, 2))) is Angle
    for other in (copy.deepcopy(layer), layer.double()):
        assert type(other.weight) is Angle
        assert isinstance(other.weight, nn.Parameter)
        assert list(dict(other.named_parameters())) == ["weight"]
    layer.load_state_dict({"weight": norch.zeros(2, 2)})
    assert type(layer.weight) is Angle
    assert layer.weight.as_subclass(norch.Tensor).sum().item() == 0


def test_parameters_are_of_a_module_of_torch_where_tensors_are():
    code = """
import norch
own = norch.nn.Parameter.__module__
from norch.compat.standin import install, uninstall
install()
import copy, pickle
import torch
class Own(torch.nn.Parameter):
    pass
kinds = torch.Tensor, torch.nn.Parameter, Own
assert [kind.__module__ for kind in kinds] == ["torch", "torch.nn.parameter", __name__]
p = pickle.loads(pickle.dumps(copy.deepcopy(torch.nn.Parameter(torch.ones(2)))))
assert type(p) is torch.nn.Parameter and p.requires_grad
uninstall()
assert norch.nn.Parameter.__module__ == own == "norch.nn.parameter"
"""
    subprocess.run([sys.executable, "-c", code], check=True)
