"""Tensors made of others each time: norch.nn.utils.parametrize."""

from __future__ import annotations

import copy
import pickle

import pytest

import norch
from norch import nn
from norch.nn.utils import parametrize


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).mT


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(norch.tensor(factor))

    def forward(self, x):
        return x * self.factor

    def right_inverse(self, x):
        return x / self.factor


class Product(nn.Module):
    def forward(self, a, b):
        return a @ b

    def right_inverse(self, x):
        return x, norch.eye(x.shape[1])


def layer():
    norch.manual_seed(0)
    return nn.Linear(3, 3)


def test_a_weight_is_what_the_module_makes_of_the_original():
    linear = layer()
    before = linear.weight.detach().clone()
    assert parametrize.register_parametrization(linear, "weight", Symmetric()) is linear
    assert linear.weight.tolist() == (before.triu() + before.triu(1).mT).tolist()
    assert list(linear.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert isinstance(linear, nn.Linear)
    assert type(linear).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(linear) is nn.Linear
    optimizer = norch.optim.SGD(linear.parameters(), 0.1)
    linear(norch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    assert linear.parametrizations.weight.original.grad.tril(-1).abs().sum() == 0
    assert norch.allclose(linear.weight, linear.weight.mT)
    with pytest.raises(NotImplementedError, match="Symmetric has no right_inverse"):
        linear.weight = before


def test_right_inverse_keeps_the_value_and_the_parameter():
    linear = layer()
    parameter, before = linear.weight, linear.weight.tolist()
    parametrize.register_parametrization(linear, "weight", Scaled(2.0))
    assert linear.parametrizations.weight.original is parameter
    assert linear.weight.tolist() == before
    linear.weight = norch.ones(3, 3)
    assert (linear.parametrizations.weight.original == 0.5).all()
    parametrize.register_parametrization(linear, "weight", Scaled(4.0))
    assert (linear.weight == 4).all()
    keys = [f"parametrizations.weight.{end}" for end in ("original", "0.factor", "1.factor")]
    assert list(linear.state_dict()) == ["bias", *keys]


def test_several_originals():
    linear = layer()
    before = linear.weight.tolist()
    parametrize.register_parametrization(linear, "weight", Product())
    assert {f"parametrizations.weight.original{i}" for i in (0, 1)} < set(dict(linear.named_parameters()))
    assert linear.weight.tolist() == before
    with pytest.raises(ValueError, match="needs one original"):
        parametrize.remove_parametrizations(linear, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(linear, "weight")
    assert isinstance(linear.weight, nn.Parameter)
    assert linear.weight.tolist() == before


@pytest.mark.parametrize("leave", [True, False])
def test_removal(leave):
    linear = layer()
    parameter, before = linear.weight, linear.weight.detach().clone()
    parametrize.register_parametrization(linear, "weight", Symmetric())
    parametrize.register_parametrization(linear, "bias", Scaled(3.0))
    made = linear.weight.tolist()
    assert parametrize.is_parametrized(linear)
    assert parametrize.is_parametrized(linear, "bias")
    parametrize.remove_parametrizations(linear, "weight", leave)
    assert linear.weight is parameter
    assert linear.weight.tolist() == (made if leave else before.tolist())
    assert not parametrize.is_parametrized(linear, "weight")
    parametrize.remove_parametrizations(linear, "bias")
    assert type(linear) is nn.Linear
    assert set(linear.state_dict()) == {"bias", "weight"}
    assert not parametrize.is_parametrized(linear)
    with pytest.raises(ValueError, match="no parametrization of 'weight'"):
        parametrize.remove_parametrizations(linear, "weight")


def test_copies_are_independent_and_pickles_refused():
    linear = parametrize.register_parametrization(layer(), "weight", Scaled(2.0))
    other = copy.deepcopy(linear)
    with norch.no_grad():
        other.parametrizations.weight.original.zero_()
    assert linear.weight.abs().sum() > 0 == other.weight.sum()
    parametrize.remove_parametrizations(other, "weight")
    assert parametrize.is_parametrized(linear)
    assert linear(norch.ones(1, 3)).shape == (1, 3)
    with pytest.raises(RuntimeError, match="save its state_dict"):
        pickle.dumps(linear)


def test_cached_tensors_are_made_once():
    linear = parametrize.register_parametrization(layer(), "weight", Symmetric())
    assert linear.weight is not linear.weight
    with parametrize.cached():
        assert linear.weight is linear.weight
    assert linear.weight is not linear.weight


def test_buffers_and_what_does_not_fit():
    norm = nn.BatchNorm1d(3)
    parametrize.register_parametrization(norm, "running_mean", Scaled(2.0))
    assert "parametrizations.running_mean.original" in dict(norm.named_buffers())
    parametrize.remove_parametrizations(norm, "running_mean")
    assert "running_mean" in dict(norm.named_buffers())
    with pytest.raises(ValueError, match="parametrized tensor named 'nothing'"):
        parametrize.register_parametrization(layer(), "nothing", Symmetric())

    class Row(nn.Module):
        def forward(self, x):
            return x[0]

    with pytest.raises(ValueError, match=r"Row makes \(3,\) norch.float32 of \(3, 3\)"):
        parametrize.register_parametrization(layer(), "weight", Row())
    linear = parametrize.register_parametrization(layer(), "weight", Row(), unsafe=True)
    assert linear.weight.shape == (3,)


def test_keys_and_values_are_pytorchs():
    torch = pytest.importorskip("torch")
    import torch.nn.utils.parametrize as theirs

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2

    expected = theirs.register_parametrization(torch.nn.Linear(3, 2), "weight", Doubled())

    class Twice(nn.Module):
        def forward(self, x):
            return x * 2

    found = parametrize.register_parametrization(nn.Linear(3, 2), "weight", Twice())
    assert list(found.state_dict()) == list(expected.state_dict())
    found.load_state_dict({key: value.numpy() for key, value in expected.state_dict().items()})
    assert found.weight.tolist() == expected.weight.tolist()
    assert [name for name, _ in found.named_modules()] == [name for name, _ in expected.named_modules()]


def test_a_parametrization_trains_as_its_module_does():
    layer = nn.Linear(2, 2).eval()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert [part.training for part in layer.parametrizations.weight] == [False, False]
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Symmetric().eval())
    assert layer.parametrizations.weight[0].training


@pytest.mark.parametrize("times", [1, 2])
def test_what_is_registered_is_called_once_for_each(times):
    calls = []

    class Noted(nn.Module):
        def forward(self, x):
            calls.append(x)
            return x

    layer = nn.Linear(2, 2)
    for _ in range(times):
        parametrize.register_parametrization(layer, "weight", Noted())
    assert len(calls) == (1 if times == 1 else 3)  # the second is given what the first makes
