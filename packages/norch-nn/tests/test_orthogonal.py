"""`parametrizations.orthogonal`: orthonormal columns or rows, whatever is trained."""

from __future__ import annotations

import pytest

import norch
from norch import nn
from norch.nn.utils.parametrizations import orthogonal

SHAPES = [(4, 4), (6, 3), (3, 5)]


def is_orthogonal(matrix: norch.Tensor) -> bool:
    tall = matrix if matrix.shape[-2] >= matrix.shape[-1] else matrix.mT
    one = norch.eye(tall.shape[-1], device=matrix.device)
    return norch.allclose(tall.mT @ tall, one.expand(*tall.shape[:-2], -1, -1), atol=1e-5)


@pytest.mark.parametrize("with_base", [True, False])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", SHAPES)
def test_training_stays_among_orthogonal_matrices(shape, kind, with_base):
    norch.manual_seed(3)
    layer = nn.Linear(shape[1], shape[0])
    assert orthogonal(layer, orthogonal_map=kind, use_trivialization=with_base) is layer
    keys = ["bias", "parametrizations.weight.original"] + with_base * ["parametrizations.weight.0.base"]
    assert list(layer.state_dict()) == keys
    optimizer = norch.optim.SGD(layer.parameters(), lr=0.5)
    before = layer.weight.detach().clone()
    assert is_orthogonal(before)
    for _ in range(3):
        optimizer.zero_grad()
        (layer(norch.ones(2, shape[1])) ** 2).sum().backward()
        optimizer.step()
    assert is_orthogonal(layer.weight.detach())
    assert not norch.allclose(layer.weight, before)


@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_assigned_is_there(shape, kind):
    layer = orthogonal(nn.Linear(shape[1], shape[0]), orthogonal_map=kind)
    wanted = norch.eye(max(shape)).flip(1)[: shape[0], : shape[1]].contiguous()
    with norch.no_grad():
        layer.weight = wanted
    assert norch.allclose(layer.weight, wanted, atol=1e-6)
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        layer.weight = norch.ones(2, 2)


def test_a_weight_that_is_orthogonal_stays():
    layer = nn.Linear(4, 4)
    nn.init.orthogonal_(layer.weight)
    before = layer.weight.detach().clone()
    assert norch.allclose(orthogonal(layer).weight, before, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_householder_without_a_base_starts_at_the_value(shape):
    layer = nn.Linear(shape[1], shape[0])
    nn.init.orthogonal_(layer.weight)
    before = layer.weight.detach().clone()
    orthogonal(layer, orthogonal_map="householder", use_trivialization=False)
    assert norch.allclose(layer.weight, before, atol=1e-6)


def test_batches_and_what_is_refused():
    layer = nn.Bilinear(3, 5, 2)
    assert is_orthogonal(orthogonal(layer).weight.detach())
    with pytest.raises(ValueError, match="no parameter or buffer of matrices named 'bias'"):
        orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="orthogonal_map must be one of"):
        orthogonal(nn.Linear(2, 2), orthogonal_map="givens")
    fixed = orthogonal(nn.Linear(3, 3), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="cayley cannot be assigned to"):
        fixed.weight = norch.eye(3)
