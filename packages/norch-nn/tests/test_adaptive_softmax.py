"""AdaptiveLogSoftmaxWithLoss: a softmax over many classes, by what it says of them all and beside PyTorch."""

import numpy as np
import pytest

import norch
from norch import nn


def make(**options):
    norch.manual_seed(0)
    return nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10, 15], div_value=2.0, dtype=norch.float64, **options)


def test_probabilities_of_all_classes_are_one_and_the_targets_are_among_them():
    layer = make(head_bias=True)
    x, target = norch.randn(9, 16, dtype=norch.float64), norch.tensor([0, 3, 4, 9, 10, 14, 15, 19, 2])
    every = layer.log_prob(x)
    np.testing.assert_allclose(every.exp().sum(1).detach().cpu().numpy(), 1.0, rtol=1e-12)
    output, loss = layer(x, target)
    expected = every.gather(1, target.unsqueeze(1)).squeeze(1)
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected.detach().cpu().numpy(), rtol=1e-12)
    assert loss.item() == pytest.approx(-expected.mean().item())
    assert layer.predict(x).tolist() == every.argmax(1).tolist()


def test_clusters_are_those_of_the_cutoffs():
    layer = make()
    shapes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
    assert shapes == {
        "head.weight": (7, 16),
        "tail.0.0.weight": (8, 16),
        "tail.0.1.weight": (6, 8),
        "tail.1.0.weight": (4, 16),
        "tail.1.1.weight": (5, 4),
        "tail.2.0.weight": (2, 16),
        "tail.2.1.weight": (5, 2),
    }
    before = layer.head.weight.tolist()
    layer.reset_parameters()
    assert layer.head.weight.tolist() != before


def test_one_sample_and_gradients():
    layer = make()
    x = norch.randn(3, 16, dtype=norch.float64, requires_grad=True)
    target = norch.tensor([1, 12, 6])
    one = layer(x[1], target[1])
    assert one.output.shape == ()
    assert one.output.item() == pytest.approx(layer(x, target).output[1].item())
    assert norch.autograd.gradcheck(lambda x: layer(x, target).loss, (x,))
    layer(x, target).loss.backward()
    assert layer.tail[0][1].weight.grad.abs().sum().item() > 0
    assert layer.tail[2][0].weight.grad is None


def test_a_prediction_from_the_head_alone():
    layer = make(head_bias=True)
    with norch.no_grad():
        layer.head.bias[1] = 100.0
    assert layer.predict(norch.randn(3, 16, dtype=norch.float64)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("cutoffs", [[], [0, 3], [3, 3], [5, 4], [4, 20], [1.5]])
def test_cutoffs_that_do_not_grow(cutoffs):
    with pytest.raises(ValueError, match="cutoffs must be ints that grow"):
        nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs)


def test_what_does_not_fit():
    layer = make()
    x = norch.ones(3, 16, dtype=norch.float64)
    with pytest.raises(norch.ShapeError, match=r"got \(3, 16\) and \(2,\)"):
        layer(x, norch.tensor([1, 2]))
    with pytest.raises(norch.IndexError, match="from 0 to 19"):
        layer(x, norch.tensor([1, 2, 20]))


def test_beside_pytorch():
    torch = pytest.importorskip("torch")
    layer = make(head_bias=True)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10, 15], 2.0, True, dtype=torch.float64)
    theirs.load_state_dict({k: torch.tensor(v.tolist(), dtype=torch.float64) for k, v in layer.state_dict().items()})
    x, target = np.random.default_rng(0).standard_normal((7, 16)), [0, 3, 4, 9, 10, 19, 15]
    ours, other = layer(norch.tensor(x), norch.tensor(target)), theirs(torch.tensor(x), torch.tensor(target))
    assert ours.output.tolist() == pytest.approx(other.output.tolist())
    assert ours.loss.item() == pytest.approx(other.loss.item())
    assert layer.predict(norch.tensor(x)).tolist() == theirs.predict(torch.tensor(x)).tolist()
