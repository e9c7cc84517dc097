"""norch.fits beside what the allocator of norch-cpu measures, and what it says of an error's owners in a training."""

import gc
import re

import pytest

import norch
from norch import nn, optim
from norch.nn import functional as F

pytestmark = pytest.mark.skipif(
    not hasattr(norch.cpu, "reset_peak_memory_stats"), reason="only norch-cpu measures what is allocated"
)


class Block(nn.Module):
    """Two convolutions and a way around them, as in ResNet-18."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.around = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.around(x))


def residual():
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), Block(32, 64, 2), Block(64, 256, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip
    return model, lambda n: norch.randn(n, 3, 32, 32), lambda n: norch.randint(0, 10, (n,)), lambda out: out


class Pictures(nn.Module):
    """Down and up again, as a U-Net goes."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 2, 1)

    def forward(self, x):
        a = F.relu(self.one(x))
        return self.out(norch.cat([a, self.up(F.relu(self.two(F.max_pool2d(a, 2))))], 1))


def pictures():
    return Pictures(), lambda n: norch.randn(n, 3, 48, 48), lambda n: norch.randint(0, 2, (n, 48, 48)), lambda out: out


class Words(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.embed, self.body, self.out = nn.Embedding(500, 64), body, nn.Linear(64, 500)

    def forward(self, x):
        y = self.body(self.embed(x))
        return self.out(y[0] if isinstance(y, tuple) else y)


def words(body):
    def make():
        ids = lambda n: norch.randint(0, 500, (n, 40))  # noqa: E731
        return Words(body()), ids, ids, lambda out: out.flatten(0, 1)

    return make


def in_bfloat16():
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 196, 10))
    return (
        model.bfloat16(),
        lambda n: norch.randn(n, 3, 16, 16).bfloat16(),
        lambda n: norch.randint(0, 10, (n,)),
        (lambda out: out.float()),
    )


MODELS = {
    "residual": residual,
    "pictures": pictures,
    "lstm": words(lambda: nn.LSTM(64, 64, 2, batch_first=True)),
    "gru": words(lambda: nn.GRU(64, 64, batch_first=True)),
    "transformer": words(lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2)),
    "bfloat16": in_bfloat16,
}

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, 0.01),
    "momentum": lambda p: optim.SGD(p, 0.01, momentum=0.9),
    "adam": lambda p: optim.Adam(p, 1e-4),
}


@pytest.mark.parametrize(
    ("name", "batch", "optimizer"),
    [(name, batch, optimizer) for name in MODELS for batch, optimizer in ((1, "adam"), (16, "sgd"), (24, "momentum"))],
)
def test_it_tells_what_the_allocator_then_measures(name, batch, optimizer):
    gc.collect()
    before = norch.cpu.memory_stats()["allocated_bytes"]
    model, inputs, targets, of_output = MODELS[name]()
    made = OPTIMIZERS[optimizer](model.parameters())
    x, y = inputs(batch), targets(batch).flatten() if name not in ("pictures",) else targets(batch)

    def loss(out, y):
        return F.cross_entropy(of_output(out), y)

    told = norch.fits(model, x, made, loss=loss, targets=y, largest_batch=False)
    norch.cpu.reset_peak_memory_stats()
    for _ in range(2):
        made.zero_grad()
        out = model(x)
        value = loss(out, y)
        value.backward()
        made.step()
    measured = norch.cpu.memory_stats()["peak_allocated_bytes"] - before
    assert 0.93 < told.peak / measured < 1.05
    assert told.saved <= told.activations < told.peak


def test_an_optimizer_that_was_used_before_counts_too():
    model, x = nn.Linear(300, 300), norch.randn(4, 300)
    made = optim.Adam(model.parameters())
    fresh = norch.fits(model, x, made, memory=1 << 30)
    model(x).sum().backward()
    made.step()
    assert norch.fits(model, x, made, memory=1 << 30).to_dict() == fresh.to_dict()


def test_the_owners_in_a_training():
    gc.collect()
    model = nn.Sequential(nn.Linear(400, 600), nn.Sigmoid(), nn.Linear(600, 5))
    made = optim.Adam(model.parameters())
    x = norch.randn(300, 400)
    model(x).sum().backward()
    made.step()
    out = model(x)
    with pytest.raises(norch.OutOfMemoryError) as caught:
        norch.empty(1 << 44)
    text = str(caught.value)
    assert re.search(r"float32\[600, 400\]  0.weight$", text, re.M)
    assert re.search(r"gradients +float32\[600, 400\]  gradient of 0.weight$", text, re.M)
    assert re.search(r"optimiser state +float32\[600, 400\]  exp_avg_sq of 0.weight$", text, re.M)
    assert re.search(r"saved for backward +float32\[300, 600\]  sigmoid", text)
    numbers = (400 * 600 + 600 + 600 * 5 + 5) * 4
    for owner, nbytes in {"parameters": numbers, "gradients": numbers, "optimiser state": 2 * numbers}.items():
        assert re.search(rf"^  {owner} +{nbytes / 2 ** (20 if nbytes >= 2**20 else 10):.2f} .iB  ", text, re.M)
    snapshot = norch.memory.snapshot()
    assert {"0.weight", "gradient of 2.bias", "exp_avg of 2.weight"} <= {h.name for h in snapshot.holdings}
    del out


def test_captured_steps_go_on_as_they_were():
    def train(looked_at):
        norch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
        made = optim.Adam(model.parameters(), lr=0.01)

        @norch.capture
        def step(x):
            made.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            made.step()
            return loss

        for i in range(12):
            loss = step(norch.randn(16, 8))
            if looked_at and i == 6:
                with norch.memory.record() as recording:
                    loss = step(norch.randn(16, 8))
                assert recording.peak()[0] > 0
                assert norch.fits(model, norch.ones(16, 8), made, largest_batch=False)
                with pytest.raises(norch.OutOfMemoryError, match=r"exp_avg of 0\.weight"):
                    norch.empty(1 << 44)
            elif i == 6:
                loss = step(norch.randn(16, 8))
        return loss.item(), norch.rand(1).item(), step.report().replayed

    assert train(True) == train(False)
