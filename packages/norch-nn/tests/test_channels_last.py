"""Models of images whose channels lie next to each other."""

from __future__ import annotations

import numpy as np
import pytest

import norch
from norch import nn
from norch.nn import functional as F

LAST = norch.channels_last


def test_modules_take_a_memory_format():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv3d(3, 4, 3), nn.Conv2d(4, 4, 3, groups=4), nn.Linear(2, 2))
    weight = net[0].weight
    weight.grad = norch.ones_like(weight)
    assert net.to(memory_format=LAST) is net
    assert net[0].weight is weight
    assert weight.stride() == weight.grad.stride() == (27, 1, 9, 3)
    assert net[1].weight.is_contiguous()
    assert net[2].weight.stride() == (9, 1, 3, 1)
    assert net.to(memory_format=norch.channels_last_3d)[1].weight.stride() == (81, 1, 27, 9, 3)
    assert net.to(norch.float64, memory_format=LAST)[0].weight.stride() == (27, 1, 9, 3)
    net.to(memory_format=norch.contiguous_format)
    assert all(p.is_contiguous() for p in net.parameters())
    assert nn.Conv2d(3, 4, 3).to(memory_format=norch.preserve_format).weight.is_contiguous()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"scale_factor": 2},
        {"size": (5, 20)},
        {"size": (16, 27), "mode": "nearest-exact"},
        {"size": (4, 18)},
        {"size": (4, 3), "mode": "area"},
        {"scale_factor": 1.5, "mode": "bilinear"},
        {"size": 7, "mode": "bicubic"},
    ],
    ids=str,
)
def test_resizing_keeps_it(kwargs):
    _keeps_it(lambda x: F.interpolate(x, **kwargs), norch.randn(2, 6, 8, 9))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("size", [(4, 8, 10), (3, 4, 15), (9, 2, 1), (8, 8, 5)], ids=str)
def test_resizing_of_volumes_keeps_it(size, mode):
    _keeps_it(lambda x: F.interpolate(x, size, mode=mode), norch.randn(2, 3, 4, 4, 5), norch.channels_last_3d)


@pytest.mark.parametrize("size", [1, 2, (3, 4), (5, 7), (8, 9)], ids=str)
def test_adaptive_maxima_are_the_same(size):
    x = norch.randn(2, 6, 8, 9).round()
    x[0, 1, 2, 3] = norch.nan
    results = []
    for given in (x, x.to(memory_format=LAST)):
        given = given.detach().requires_grad_()
        out, at = F.adaptive_max_pool2d(given, size, return_indices=True)
        out.nan_to_num().sum().backward()
        results.append([out.detach().contiguous(), at.contiguous(), given.grad.contiguous()])
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.cpu().numpy(), b.cpu().numpy())


def _keeps_it(function, x, last=LAST):
    """The result of channels-last `x`, and its gradient, are those of `x` as it is, in that format."""
    rows, there = x.clone().requires_grad_(), x.to(memory_format=last).requires_grad_()
    expected, out = function(rows), function(there)
    assert out.is_contiguous(memory_format=last)
    norch.testing.assert_close(out.contiguous(), expected)
    g = norch.randn(*out.shape)
    expected.backward(g)
    out.backward(g.to(memory_format=last))
    norch.testing.assert_close(there.grad.contiguous(), rows.grad)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True))
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.BatchNorm2d(8), nn.SiLU())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())
        self.down = nn.Conv2d(8, 8, 1, 2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(x)
        y = norch.cat([y * self.gate(y) + self.down(x), F.max_pool2d(x, 3, 2, 1)], 1)
        return self.head(F.avg_pool2d(y, 2).mean((2, 3)))


def test_a_network_trains_to_the_same_numbers():
    nets = [Net(), Net().to(memory_format=LAST)]
    nets[1].load_state_dict(nets[0].state_dict())
    assert nets[1].stem[0].weight.stride() == (27, 1, 9, 3)
    x, target = norch.randn(4, 3, 16, 16), norch.arange(4)
    seen = []
    for module in nets[1].modules():
        module.register_forward_hook(lambda module, args, out: seen.append(out))
    losses = []
    for net, images in zip(nets, (x, x.to(memory_format=LAST)), strict=True):
        optimizer = norch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        losses.append([])
        for _ in range(3):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(images), target)
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-4)
    assert all(out.is_contiguous(memory_format=LAST) for out in seen if out.ndim == 4)
    grads = [p.grad for p in nets[1].parameters() if p.ndim == 4]
    assert all(g.is_contiguous(memory_format=LAST) for g in grads)


def test_strides_within_a_network_beside_pytorch():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)

    def strides(t):
        seen = []
        conv, bn = t.nn.Conv2d, t.nn.BatchNorm2d
        net = t.nn.Sequential(
            conv(3, 8, 3, 2, 1), bn(8), t.nn.ReLU6(), conv(8, 8, 3, 1, 1, groups=8), t.nn.Hardswish(),
            t.nn.MaxPool2d(2),
            conv(8, 16, 1), t.nn.GroupNorm(4, 16), t.nn.Upsample(scale_factor=2), t.nn.PixelShuffle(2),
            t.nn.ConvTranspose2d(4, 4, 2, 2), t.nn.ZeroPad2d(1), t.nn.AvgPool2d(3, 2), t.nn.AdaptiveAvgPool2d((3, 2)),
            t.nn.Dropout(0.0), t.nn.Flatten(),
        ).to(memory_format=t.channels_last)  # fmt: skip
        for module in net:
            module.register_forward_hook(lambda module, args, out: seen.append((type(module).__name__, out.stride())))
        net(t.tensor(x).to(memory_format=t.channels_last))
        return seen

    assert strides(norch) == strides(torch)
