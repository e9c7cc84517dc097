"""Whole models, written once, in norch and in PyTorch: from the same weights they go the same way."""

import re

import numpy as np
import pytest

import norch

torch = pytest.importorskip("torch", minversion="2.13")


def resnet(lib):
    """A small residual network, its parts called as a script would."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU(inplace=True)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, padding="same", bias=False)
            self.bn2 = nn.BatchNorm2d(outputs, momentum=0.05)
            self.downsample = None
            if stride != 1:
                self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride), nn.GroupNorm(2, outputs))

        def forward(self, x):
            same = x if self.downsample is None else self.downsample(x)
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += same
            return self.relu(out)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.LeakyReLU(0.1, True))
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
            self.blocks = nn.ModuleList([Block(4, 4), Block(4, 8, 2)])
            self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
            self.scales = nn.ParameterList([lib.ones(1) for _ in range(2)])
            self.head = nn.ModuleDict({"norm": nn.LayerNorm(4), "fc": nn.Linear(4, 5)})

        def forward(self, x):
            x = self.pool(self.stem(x))
            for block, scale in zip(self.blocks, self.scales):
                x = block(x) * scale
            x = F.interpolate(self.up(x), scale_factor=2, mode="bilinear", align_corners=False)
            x = F.adaptive_avg_pool2d(x, 1).flatten(1)
            return self.head["fc"](F.gelu(self.head["norm"](x)))

    return Net()


def bag_of_words(lib):
    """Embeddings, a convolution over time, and a mixture of gates."""
    nn, F = lib.nn, lib.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(20, 6, padding_idx=0)
            self.bag = nn.EmbeddingBag(20, 6, mode="mean", padding_idx=0)
            self.conv = nn.Conv1d(6, 8, 3, padding=1)
            self.norm = nn.RMSNorm(4)
            self.mix = nn.Bilinear(4, 6, 5)
            self.act = nn.PReLU(5)

        def forward(self, x):
            y = F.glu(self.conv(self.words(x).transpose(1, 2)), dim=1)
            y = self.norm(F.max_pool1d(y, 2).mean(-1))
            return self.act(self.mix(y, F.normalize(self.bag(x), dim=-1)))

    return Net()


def go(lib, make, state, inputs, target):
    net = make(lib)
    net.load_state_dict({k: lib.tensor(v) for k, v in state.items()})
    net.double()
    optimizer = lib.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = lib.nn.CrossEntropyLoss()(net(lib.tensor(inputs)), lib.tensor(target))
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses += [loss.item(), norm.item()]
    net.eval()
    with lib.no_grad():
        out = net(lib.tensor(inputs))
    return losses, out.cpu().numpy(), {k: v.cpu().numpy() for k, v in net.state_dict().items()}, repr(net)


@pytest.mark.parametrize("make", [resnet, bag_of_words])
def test_models_train_as_pytorchs(make):
    torch.manual_seed(0)
    state = {k: v.numpy() for k, v in make(torch).state_dict().items()}
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((6, 3, 16, 16)) if make is resnet else draw.integers(0, 20, (6, 8))
    target = draw.integers(0, 5, 6)
    own, other = (go(lib, make, state, inputs, target) for lib in (norch, torch))
    np.testing.assert_allclose(own[0], other[0], rtol=1e-9)
    np.testing.assert_allclose(own[1], other[1], rtol=1e-8, atol=1e-10)
    assert list(own[2]) == list(other[2])
    for name in own[2]:
        np.testing.assert_allclose(own[2][name], other[2][name], rtol=1e-7, atol=1e-10, err_msg=name)
    assert re.sub(r" \(\w+:\d+\)\]", "]", own[3]) == other[3].replace("torch.", "norch.")
    assert own[0][-2] < own[0][0]
