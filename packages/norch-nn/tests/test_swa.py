"""Averages of weights, against their formulas and, where it is installed, PyTorch."""

import copy

import numpy as np
import pytest

import norch
from norch import nn, optim
from norch.optim.swa_utils import (
    SWALR,
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    get_swa_multi_avg_fn,
    update_bn,
)


def model():
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    net[0].register_buffer("mean", norch.zeros(2))
    net[0].register_buffer("count", norch.tensor(0))
    return net


def weights(m):
    return [p.detach().cpu().numpy().copy() for p in m.parameters()]


def change(m, seed):
    rng = np.random.default_rng(seed)
    with norch.no_grad():
        for p in m.parameters():
            p.copy_(norch.tensor(rng.standard_normal(p.shape), dtype=p.dtype))
        m[0].mean.fill_(float(seed))
        m[0].count.fill_(10 * seed)


def averages(**options):
    """The averaged model after five updates, and the weights of each."""
    m = model()
    averaged = AveragedModel(m, **options)
    seen = []
    for seed in range(1, 6):
        change(m, seed)
        averaged.update_parameters(m)
        seen.append(weights(m))
    return m, averaged, seen


@pytest.mark.parametrize("options", [{}, {"avg_fn": get_swa_avg_fn()}, {"multi_avg_fn": get_swa_multi_avg_fn()}])
def test_mean(options):
    m, averaged, seen = averages(**options)
    for a, *rows in zip(weights(averaged.module), *seen, strict=True):
        np.testing.assert_allclose(a, np.mean(rows, 0), rtol=1e-5, atol=1e-6)
    assert averaged.n_averaged.item() == 5
    assert averaged.module[0].mean.tolist() == m[0].mean.tolist() == [5.0, 5.0]
    assert averaged.module[0].count.item() == 50


@pytest.mark.parametrize("make", [get_ema_avg_fn, get_ema_multi_avg_fn])
def test_exponential_moving_average(make):
    name = "avg_fn" if make is get_ema_avg_fn else "multi_avg_fn"
    _, averaged, seen = averages(**{name: make(0.75)})
    for a, *rows in zip(weights(averaged.module), *seen, strict=True):
        expected = rows[0]
        for row in rows[1:]:
            expected = 0.75 * expected + 0.25 * row
        np.testing.assert_allclose(a, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [get_ema_avg_fn, get_ema_multi_avg_fn])
def test_buffers_too(make):
    name = "avg_fn" if make is get_ema_avg_fn else "multi_avg_fn"
    _, averaged, _ = averages(use_buffers=True, **{name: make(0.5)})
    assert averaged.module[0].mean.tolist() == [4.0625] * 2
    assert averaged.module[0].count.item() == 40  # rounded down each time


@pytest.mark.parametrize("options", ["mean", "ema", "multi"])
def test_beside_pytorch(options):
    torch = pytest.importorskip("torch")
    theirs = torch.optim.swa_utils
    made = {
        "mean": lambda s: {},
        "ema": lambda s: {"avg_fn": s.get_ema_avg_fn(0.9)},
        "multi": lambda s: {"multi_avg_fn": s.get_ema_multi_avg_fn(0.9)},
    }[options]
    m = nn.Linear(3, 2)
    n = torch.nn.Linear(3, 2)
    ours, other = AveragedModel(m, **made(optim.swa_utils)), theirs.AveragedModel(n, **made(theirs))
    assert list(ours.state_dict()) == list(other.state_dict())
    rng = np.random.default_rng(0)
    for _ in range(6):
        a = rng.standard_normal((2, 3)).astype(np.float32)
        with torch.no_grad(), norch.no_grad():
            m.weight.copy_(norch.tensor(a))
            n.weight.copy_(torch.tensor(a))
        ours.update_parameters(m)
        other.update_parameters(n)
    np.testing.assert_allclose(ours.module.weight.tolist(), other.module.weight.tolist(), rtol=1e-5, atol=1e-7)


def test_a_function_of_the_users_and_the_forward():
    m, averaged, seen = averages(avg_fn=lambda averaged, weight, count: (averaged + weight) / count)
    expected = seen[0][0]
    for count, rows in enumerate(seen[1:], 1):
        expected = (expected + rows[0]) / count
    np.testing.assert_allclose(weights(averaged)[0], expected, rtol=1e-5)
    x = norch.ones(2, 3)
    assert averaged(x).tolist() == averaged.module(x).tolist()
    other = AveragedModel(m)
    other.load_state_dict(averaged.state_dict())
    assert other.n_averaged.item() == 5
    assert other(x).tolist() == averaged(x).tolist()
    assert copy.deepcopy(averaged).n_averaged.item() == 5


def test_what_is_refused():
    with pytest.raises(ValueError, match="only one"):
        AveragedModel(model(), avg_fn=get_swa_avg_fn(), multi_avg_fn=get_swa_multi_avg_fn())
    for make in (get_ema_avg_fn, get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match=r"decay value 1\.5"):
            make(1.5)
    optimizer = optim.SGD(model().parameters(), lr=0.1)
    with pytest.raises(ValueError, match="anneal_strategy"):
        SWALR(optimizer, 0.1, anneal_strategy="exp")
    with pytest.raises(ValueError, match="anneal_epochs"):
        SWALR(optimizer, 0.1, anneal_epochs=-1)
    with pytest.raises(ValueError, match="swa_lr must have the same length"):
        SWALR(optimizer, [0.1, 0.2])


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 7])
def test_swalr_beside_pytorch(strategy, epochs):
    torch = pytest.importorskip("torch")

    def rates(framework):
        p = framework.ones(1, requires_grad=True)
        optimizer = framework.optim.SGD([p], lr=0.5)
        scheduler = framework.optim.swa_utils.SWALR(optimizer, 0.05, epochs, strategy)
        found = scheduler.get_last_lr()
        for _ in range(10):
            optimizer.step()
            scheduler.step()
            found = found + scheduler.get_last_lr()
        return found

    np.testing.assert_allclose(rates(norch), rates(torch), rtol=1e-12)


class BatchNormLike(nn.Module):
    """What `update_bn` asks of a batch normalisation."""

    def __init__(self):
        super().__init__()
        self.momentum = 0.1
        self.register_buffer("running_mean", norch.full((2,), 9.0))
        self.register_buffer("num_batches_tracked", norch.tensor(0))

    def reset_running_stats(self):
        self.running_mean.zero_()
        self.num_batches_tracked.zero_()

    def forward(self, x):
        assert self.training
        assert self.momentum is None
        self.num_batches_tracked += 1
        self.running_mean += (x.mean(0) - self.running_mean) / self.num_batches_tracked.item()
        return x


def test_update_bn():
    layer = BatchNormLike()
    net = nn.Sequential(layer).eval()
    update_bn([norch.ones(4, 2), [norch.full((4, 2), 4.0), "label"]], net)
    assert layer.running_mean.tolist() == [2.5, 2.5]
    assert layer.momentum == 0.1
    assert not net.training
    update_bn([], nn.Sequential(nn.Linear(1, 1)))
