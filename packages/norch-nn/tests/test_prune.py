"""Parameters with zeros that stay: norch.nn.utils.prune."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn.utils import prune

WEIGHT = [[0.1, -0.2, 0.3], [-0.4, 0.5, -0.6]]


def layer() -> nn.Linear:
    linear = nn.Linear(3, 2)
    with norch.no_grad():
        linear.weight.copy_(norch.tensor(WEIGHT))
    return linear


def mask_of(linear: nn.Module) -> list[list[float]]:
    return linear.weight_mask.tolist()


def test_the_smallest_are_zero_and_stay_so_while_the_rest_trains():
    linear = layer()
    parameter = linear.weight
    optimizer = norch.optim.SGD(linear.parameters(), 0.1)
    assert prune.l1_unstructured(linear, "weight", amount=2) is linear
    assert mask_of(linear) == [[0, 0, 1], [1, 1, 1]]
    assert linear.weight_orig is parameter
    assert list(linear.state_dict()) == ["bias", "weight_orig", "weight_mask"]
    assert [name for name, _ in linear.named_parameters()] == ["bias", "weight_orig"]
    linear(norch.ones(1, 3)).sum().backward()
    assert parameter.grad.tolist() == mask_of(linear)
    optimizer.step()
    y = linear(norch.ones(1, 3))
    assert linear.weight[0].tolist() == pytest.approx([0, 0, 0.2])
    assert y.tolist() == (linear.weight.sum(1) + linear.bias).view(1, 2).tolist()
    assert prune.is_pruned(nn.Sequential(linear))
    assert prune.remove(linear, "weight") is linear
    assert linear.weight is parameter
    assert parameter.tolist()[0] == pytest.approx([0, 0, 0.2])
    assert list(linear.state_dict()) == ["bias", "weight"]
    assert not prune.is_pruned(linear)
    with pytest.raises(ValueError, match="'weight' of Linear has to be pruned"):
        prune.remove(linear, "weight")


def test_pruning_again_prunes_what_is_left():
    linear = layer()
    prune.l1_unstructured(linear, "weight", amount=2)
    prune.l1_unstructured(linear, "weight", amount=0.5)  # of four
    assert mask_of(linear) == [[0, 0, 0], [0, 1, 1]]
    prune.ln_structured(linear, "weight", amount=1, n=2, dim=1)  # of the two columns that are left
    assert mask_of(linear) == [[0, 0, 0], [0, 0, 1]]
    (hook,) = linear._forward_pre_hooks.values()
    assert [type(method) for method in hook] == [prune.L1Unstructured, prune.L1Unstructured, prune.LnStructured]
    assert (len(hook), hook[0].amount, hook[-1].dim) == (3, 2, 1)
    prune.custom_from_mask(linear, "weight", norch.zeros(2, 3))
    assert linear.weight.tolist() == [[0.0] * 3] * 2
    prune.remove(linear, "weight")
    assert not linear._forward_pre_hooks


def test_importance_scores_decide_instead():
    linear = layer()
    scores = -norch.tensor(WEIGHT).abs() + 1
    prune.l1_unstructured(linear, "weight", 2, importance_scores=scores)
    assert mask_of(linear) == [[1, 1, 1], [1, 0, 0]]
    method = prune.LnStructured(1, n=1, dim=0)
    assert method.prune(linear.weight_orig, importance_scores=scores).tolist() == [
        linear.weight_orig[0].tolist(),
        [0] * 3,
    ]


@pytest.mark.parametrize(("n", "kept"), [(1, [1, 0, 0]), (2, [0, 1, 0]), (float("inf"), [0, 1, 0])])
def test_slices_of_the_smallest_norm(n, kept):
    linear = layer()
    with norch.no_grad():
        linear.weight.copy_(norch.tensor([[3.0, 5.0, 0.1], [3.0, 0.5, 0.1]]))
    prune.ln_structured(linear, "weight", amount=2, n=n, dim=-1)
    assert mask_of(linear) == [kept, kept]


def test_random_pruning_draws_as_many_as_asked():
    norch.manual_seed(3)
    linear = nn.Linear(10, 8)
    prune.random_unstructured(linear, "weight", 0.25)
    assert linear.weight_mask.sum() == 60
    prune.random_unstructured(linear, "weight", 10)
    assert linear.weight_mask.sum() == 50
    other = prune.random_structured(nn.Conv2d(3, 8, 3), "weight", amount=0.5, dim=0)
    assert sorted(other.weight_mask.flatten(1).sum(1).tolist()) == [0] * 4 + [27] * 4
    assert prune.random_structured(other, "weight", amount=0, dim=0).weight_mask.sum() == 4 * 27


def test_several_parameters_as_one_vector():
    linear, other = layer(), layer()
    with norch.no_grad():
        other.weight.mul_(10)
    prune.l1_unstructured(other, "weight", 1)
    pairs = [(linear, "weight"), (other, "weight")]
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=7)  # of the eleven that are left
    assert mask_of(linear) == [[0, 0, 0], [0, 0, 0]]
    assert mask_of(other) == [[0, 0, 1], [1, 1, 1]]
    linear, other = layer(), layer()
    pairs = [(linear, "weight"), (other, "weight")]
    scores = {pairs[1]: norch.zeros(2, 3)}
    prune.global_unstructured(pairs, prune.L1Unstructured, scores, amount=0.5)
    assert (mask_of(linear), mask_of(other)) == ([[1] * 3] * 2, [[0] * 3] * 2)
    with pytest.raises(TypeError, match="LnStructured is of PRUNING_TYPE 'structured'"):
        prune.global_unstructured(pairs, prune.LnStructured, amount=1, n=2)
    with pytest.raises(TypeError, match="parameters"):
        prune.global_unstructured(1, prune.L1Unstructured, amount=1)
    with pytest.raises(TypeError, match="must be a dict"):
        prune.global_unstructured(pairs, prune.L1Unstructured, [1], amount=1)


def test_copies_and_pickles():
    linear = prune.l1_unstructured(layer(), "weight", 2)
    with norch.no_grad():  # as in PyTorch, where the product of two leaves is no leaf
        linear(norch.ones(1, 3))
    other, loaded = copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))
    for each in (other, loaded):
        assert each.weight_orig is not linear.weight_orig
        prune.l1_unstructured(each, "weight", 2)
        assert mask_of(each) == [[0, 0, 0], [0, 1, 1]]
        assert each(norch.ones(1, 3)).tolist()[0][0] == each.bias[0]
        prune.remove(each, "weight")
    assert mask_of(linear) == [[0, 0, 1], [1, 1, 1]]
    assert prune.is_pruned(linear)
    fresh = prune.identity(layer(), "weight")
    assert mask_of(fresh) == [[1] * 3] * 2
    fresh.load_state_dict(linear.state_dict())
    assert fresh(norch.ones(1, 3)).tolist() == linear(norch.ones(1, 3)).tolist()


class Odd(prune.BasePruningMethod):
    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t, default_mask):
        mask = default_mask.clone()
        mask.view(-1)[::2] = 0
        return mask


def test_methods_of_ones_own():
    linear = layer()
    Odd.apply(linear, "bias")
    assert linear.bias_mask.tolist() == [0, 1]
    container = prune.PruningContainer()
    container._tensor_name = "bias"
    container.add_pruning_method(linear._forward_pre_hooks[next(iter(linear._forward_pre_hooks))])
    with pytest.raises(ValueError, match="named 'bias', and the method of 'weight'"):
        container.add_pruning_method(next(iter(prune.identity(layer(), "weight")._forward_pre_hooks.values())))
    with pytest.raises(TypeError, match="int is not a BasePruningMethod"):
        container.add_pruning_method(1)


def test_what_cannot_be_pruned_leaves_the_module_as_it_was():
    linear = layer()
    for amount, error in ((-1, ValueError), (1.5, ValueError), ("1", TypeError), (7, ValueError)):
        with pytest.raises(error, match="amount"):
            prune.l1_unstructured(linear, "weight", amount)
    with pytest.raises(norch.ShapeError, match="importance_scores"):
        prune.l1_unstructured(linear, "weight", 1, importance_scores=norch.ones(1))
    with pytest.raises(norch.ShapeError, match="several dims"):
        prune.random_structured(linear, "bias", 1, dim=0)
    with pytest.raises(IndexError, match="dim 2"):
        prune.ln_structured(linear, "weight", 1, 2, dim=2)
    with pytest.raises(norch.ShapeError, match="mask of shape"):
        prune.custom_from_mask(linear, "weight", norch.ones(3))
    with pytest.raises(RuntimeError, match="has to be pruned"):
        prune.Identity().remove(linear)
    assert list(linear.state_dict()) == ["weight", "bias"]
    assert not prune.is_pruned(linear)
    prune.l1_unstructured(linear, "weight", 1)
    before = mask_of(linear)
    with pytest.raises(ValueError, match="amount"):
        prune.l1_unstructured(linear, "weight", 6)
    assert (mask_of(linear), len(linear._forward_pre_hooks)) == (before, 1)


def test_hooks_by_the_names_of_pytorch():
    linear, seen = layer(), []
    handle = linear.register_forward_hook(lambda *args: seen.append("hook"))
    assert list(linear._forward_hooks) == [handle.id]
    linear._forward_pre_hooks[-1] = lambda *args: seen.append("pre")
    linear(norch.ones(1, 3))
    del linear._forward_pre_hooks[-1]
    linear._forward_hooks.clear()
    linear(norch.ones(1, 3))
    assert seen == ["pre", "hook"]
    assert (len(linear._backward_hooks), len(nn.ReLU()._backward_pre_hooks)) == (0, 0)


CHAIN = [
    ("l1_unstructured", {"amount": 0.3}),
    ("ln_structured", {"amount": 2, "n": 2, "dim": 1}),
    ("l1_unstructured", {"amount": 5}),
    ("ln_structured", {"amount": 0.25, "n": 1, "dim": -2}),
    ("identity", {}),
]


@pytest.mark.usefixtures("on_host")
def test_chains_are_pytorchs():
    torch = pytest.importorskip("torch")
    import torch.nn.utils.prune as theirs

    values = np.random.default_rng(1).standard_normal((2, 6, 8)).astype(np.float32)
    expected, found = torch.nn.Linear(8, 6), nn.Linear(8, 6)
    expected.load_state_dict({"weight": torch.tensor(values[0]), "bias": torch.zeros(6)})
    found.load_state_dict({"weight": norch.tensor(values[0]), "bias": norch.zeros(6)})
    x = values[1]
    for name, arguments in CHAIN:
        getattr(theirs, name)(expected, "weight", **arguments)
        getattr(prune, name)(found, "weight", **arguments)
        assert list(found.state_dict()) == list(expected.state_dict())
        assert mask_of(found) == mask_of(expected)
        y, z = expected(torch.tensor(x)), found(norch.tensor(x))
        y.square().sum().backward()
        z.square().sum().backward()
        np.testing.assert_allclose(z.detach().numpy(), y.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found.weight_orig.grad.numpy(), expected.weight_orig.grad.numpy(), rtol=1e-4)
    theirs.remove(expected, "weight")
    prune.remove(found, "weight")
    assert found.weight.tolist() == expected.weight.tolist()
    assert [name for name, _ in found.named_parameters()] == [name for name, _ in expected.named_parameters()]
