"""Gradients by each sample of a batch."""

from __future__ import annotations

import copy

import pytest

import norch
import norch.nn.functional as F
from norch import nn
from norch.nn.utils._per_sample_grad import call_for_per_sample_grads


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize(
    ("net", "shape"),
    [
        (nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 3)), (5, 4)),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3)), (5, 1, 6, 6)),
    ],
)
def test_gradients_of_samples(net, shape, reduction):
    net = copy.deepcopy(net)
    x, y = norch.randn(*shape), norch.tensor([0, 2, 1, 1, 0])
    frozen = net[0].bias.requires_grad_(False)
    out = call_for_per_sample_grads(net, loss_reduction=reduction)(x)
    assert norch.allclose(out, net(x), atol=1e-5)
    F.cross_entropy(out, y, reduction=reduction).backward()
    assert not hasattr(frozen, "grad_sample")
    for name, p in net.named_parameters():
        if p is frozen:
            continue
        assert p.grad is None
        for i in range(5):
            loss = F.cross_entropy(net(x[i : i + 1]), y[i : i + 1])
            wanted = norch.autograd.grad(loss, p)[0]
            assert norch.allclose(p.grad_sample[i], wanted, atol=1e-5), name
    with pytest.raises(RuntimeError, match="grad_sample already"):
        call_for_per_sample_grads(net)(x)


def test_batches_along_dim_1_and_arguments_by_name():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(norch.ones(2))

        def forward(self, x, factor=1.0, *, shift=None):
            return x * self.weight * factor + shift

    net, x, shift = Scaled(), norch.randn(3, 4, 2), norch.randn(3, 4, 2)
    out = call_for_per_sample_grads(net, batch_first=False)(x, 2.0, shift=shift)
    assert norch.allclose(out, net(x, 2.0, shift=shift))
    out.sum().backward()
    assert norch.allclose(net.weight.grad_sample, 2 * x.sum(0))


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"nn\.Module"):
        call_for_per_sample_grads(F.relu)
    with pytest.raises(RuntimeError, match="sum or mean"):
        call_for_per_sample_grads(nn.Linear(2, 2), loss_reduction="max")
    with pytest.raises(RuntimeError, match="one batch size"):
        call_for_per_sample_grads(nn.Linear(2, 2))(3)
