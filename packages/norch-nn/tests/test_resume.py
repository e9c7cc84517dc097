"""A training run that is saved, ended and taken up again goes on as if it had never stopped, bit for bit."""

from __future__ import annotations

import random

import numpy as np
import pytest

import norch
from norch import nn, optim

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda p: optim.Adam(p, lr=0.01),
    "adamw groups": lambda p: optim.AdamW([{"params": p[:1], "lr": 0.02}, {"params": p[1:]}], betas=(0.8, 0.99)),
}
VALUES = np.random.default_rng(0).standard_normal((24, 6)).astype(np.float32)


class Net(nn.Module):
    """Its last layer has the weights of its first."""

    def __init__(self):
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(6, 8, bias=False)
        self.last.weight = self.first.weight
        self.steps = nn.Buffer(norch.zeros((), dtype=norch.int64))

    def forward(self, x):
        self.steps += 1
        x = norch.dropout(self.first(x).relu(), 0.3)
        return norch.dropout(self.last(self.middle(x)), 0.1)


class Run:
    """All that a training script keeps."""

    def __init__(self, make):
        self.model = Net()
        self.optimizer = make(list(self.model.parameters()))
        self.scheduler = {"base_lrs": [g["lr"] for g in self.optimizer.param_groups], "last_epoch": 0, "factor": 0.9}
        self.data = norch.tensor(VALUES)
        self.order, self.at, self.losses = None, 0, []

    def step(self):
        if self.at % 3 == 0:
            self.order = norch.randperm(24)
        batch = self.data[self.order[(self.at % 3) * 8 : (self.at % 3 + 1) * 8].to(self.data.device)]
        batch = batch * (1 + 0.1 * random.random()) + float(np.random.standard_normal()) * 0.01
        self.at += 1
        loss = (self.model(batch) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for group, lr in zip(self.optimizer.param_groups, self.scheduler["base_lrs"], strict=True):
            group["lr"] = lr * self.scheduler["factor"] ** self.at
        self.scheduler["last_epoch"] = self.at
        self.losses.append(loss.item())

    def save(self, path):
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler,
            "loader": {"order": self.order, "at": self.at},
            "losses": self.losses,
            "rng": {"norch": norch.get_rng_state(), "python": random.getstate(), "numpy": np.random.get_state()},
        }
        norch.save(state, path)

    def load(self, path, **options):
        state = norch.load(path, **options)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler, self.losses = state["scheduler"], state["losses"]
        self.order, self.at = state["loader"]["order"], state["loader"]["at"]
        norch.set_rng_state(state["rng"]["norch"])
        random.setstate(state["rng"]["python"])
        np.random.set_state(state["rng"]["numpy"])

    def bits(self):
        tensors = [*self.model.state_dict().values()]
        for state in self.optimizer.state_dict()["state"].values():
            tensors += [v for v in state.values() if isinstance(v, norch.Tensor)]
        return [t.cpu().numpy().tobytes() for t in tensors], self.losses


def seed(number):
    norch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resumed_training_is_uninterrupted_training(name, mmap, tmp_path):
    seed(1)
    whole = Run(OPTIMIZERS[name])
    for _ in range(4):
        whole.step()
    whole.save(tmp_path / "run.pt")
    for _ in range(6):
        whole.step()

    seed(2)
    resumed = Run(OPTIMIZERS[name])
    resumed.step()  # has a past that the checkpoint must replace
    resumed.load(tmp_path / "run.pt", mmap=mmap)
    for _ in range(6):
        resumed.step()
    assert resumed.bits() == whole.bits()
    assert resumed.model.last.weight is resumed.model.first.weight


def test_a_module_is_loaded_on_trust_alone_and_its_state_always(tmp_path):
    model = nn.Linear(2, 3)
    for whole in (model, {"m": model}, optim.SGD(model.parameters(), lr=1)):
        norch.save(whole, tmp_path / "x")
        with pytest.raises(norch.CheckpointError, match=r"holds norch\S+, .*weights_only="):
            norch.load(tmp_path / "x")
        assert type(norch.load(tmp_path / "x", weights_only=False)) is type(whole)
    norch.save(model.state_dict(), tmp_path / "x")
    other = nn.Linear(2, 3)
    assert not other.load_state_dict(norch.load(tmp_path / "x")).missing_keys
    assert other.weight.tolist() == model.weight.tolist()


def test_parameters_and_tied_weights(tmp_path):
    net = Net()
    norch.save(net.state_dict(), tmp_path / "x")
    found = norch.load(tmp_path / "x")
    assert list(found) == list(net.state_dict())
    with norch.no_grad():
        found["last.weight"].fill_(1)
    assert (found["first.weight"] == 1).all()
    norch.save([*net.parameters()], tmp_path / "x")
    for a, b in zip(norch.load(tmp_path / "x"), net.parameters(), strict=True):
        assert a.requires_grad
        assert a.is_leaf
        assert a.tolist() == b.tolist()
    norch.save(net.state_dict(keep_vars=True), tmp_path / "x")
    found = norch.load(tmp_path / "x")
    assert found["last.weight"] is found["first.weight"]


def test_files_of_others_into_a_module(tmp_path):
    model = nn.Linear(4, 2)
    norch.save_safetensors(model.bfloat16().state_dict(), tmp_path / "x.safetensors")
    other = nn.Linear(4, 2)
    other.load_state_dict(norch.load_safetensors(tmp_path / "x.safetensors"))
    assert other.weight.dtype is norch.float32
    assert other.weight.tolist() == model.weight.tolist()
