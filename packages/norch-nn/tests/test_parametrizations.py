"""Weights that are normalised by parametrizations."""

from __future__ import annotations

import pytest

import norch
from norch import nn
from norch.nn.utils.parametrizations import spectral_norm, weight_norm
from norch.nn.utils.parametrize import is_parametrized, remove_parametrizations


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim):
    layer = nn.Conv1d(3, 4, 2)
    before = layer.weight.detach().clone()
    assert weight_norm(layer, dim=dim) is layer
    keys = ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    assert list(layer.state_dict()) == keys
    assert norch.allclose(layer.weight, before)
    layer(norch.ones(1, 3, 4)).sum().backward()
    assert layer.parametrizations.weight.original0.grad is not None
    with norch.no_grad():
        layer.parametrizations.weight.original0.mul_(2)
    assert norch.allclose(layer.weight, 2 * before)
    remove_parametrizations(layer, "weight")
    assert not is_parametrized(layer)
    assert norch.allclose(layer.weight, 2 * before)


def test_names_of_the_hook_can_be_loaded():
    old, new = nn.utils.weight_norm(nn.Linear(3, 4)), weight_norm(nn.Linear(3, 4))
    model = nn.Sequential(new)
    model.load_state_dict(nn.Sequential(old).state_dict())
    x = norch.ones(2, 3)
    assert norch.allclose(old(x), model(x))


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(4, 6), lambda: nn.Conv2d(2, 3, 2), lambda: nn.ConvTranspose1d(3, 5, 2)]
)
def test_spectral_norm(make):
    layer = make()
    transposed = isinstance(layer, nn.ConvTranspose1d)
    spectral_norm(layer, n_power_iterations=40)
    assert list(layer.state_dict()) == [
        "bias", "parametrizations.weight.original", "parametrizations.weight.0._u", "parametrizations.weight.0._v",
    ]  # fmt: skip
    layer.weight.sum().backward()
    matrix = layer.weight.movedim(1, 0) if transposed else layer.weight
    assert norch.linalg.matrix_norm(matrix.flatten(1).detach(), 2).item() == pytest.approx(1, abs=1e-4)
    assert layer.parametrizations.weight.original.grad is not None
    layer.eval()
    assert norch.equal(layer.weight, layer.weight)


def test_spectral_norm_of_a_vector_and_what_it_refuses():
    layer = spectral_norm(nn.Linear(4, 6), "bias")
    assert norch.linalg.vector_norm(layer.bias).item() == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="positive"):
        spectral_norm(nn.Linear(1, 1), n_power_iterations=0)
    with pytest.raises(ValueError, match="named"):
        spectral_norm(nn.Linear(1, 1), "weights")
    with pytest.raises(ValueError, match="named"):
        weight_norm(nn.Linear(1, 1), "weights")


@pytest.mark.parametrize("norm", ["weight_norm", "spectral_norm"])
def test_both_like_pytorchs(norm):
    torch = pytest.importorskip("torch")
    ours = getattr(nn.utils.parametrizations, norm)(nn.Conv1d(3, 4, 2))
    theirs = getattr(torch.nn.utils.parametrizations, norm)(torch.nn.Conv1d(3, 4, 2))
    state = {key: value.numpy() for key, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    x = norch.randn(2, 3, 5)
    for _ in range(2):
        out, expected = ours(x), theirs(torch.tensor(x.cpu().numpy()))
        assert norch.allclose(out, norch.tensor(expected.detach().numpy()), atol=1e-5)
    out.square().sum().backward()
    expected.square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert norch.allclose(p.grad, norch.tensor(q.grad.numpy()), atol=1e-4)
