"""A trained body under a new head: state_dicts, frozen parameters, groups of parameters, checkpoints."""

import os
import tempfile
from collections import OrderedDict

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(OrderedDict([("fc1", nn.Linear(5, 8)), ("act", nn.ReLU()), ("fc2", nn.Linear(8, 8))]))
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


def train(model, optimizer, x, y, steps):
    criterion = nn.CrossEntropyLoss()
    for _ in range(steps):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


x = noise(20, 5)
first = Model(4)
fill(first)
print(f"{train(first, torch.optim.SGD(first.parameters(), lr=0.1), x, torch.arange(20) % 4, 5):.6f}")

second = Model(2)
fill(second, 1)
kept = {k: v for k, v in first.state_dict().items() if not k.startswith("head.")}
result = second.load_state_dict(kept, strict=False)
print(result.missing_keys, result.unexpected_keys)
for name, p in second.named_parameters():
    if name.startswith("body.fc1"):
        p.requires_grad = False
optimizer = torch.optim.Adam(
    [
        {"params": [p for n, p in second.named_parameters() if p.requires_grad and "head" not in n], "lr": 1e-3},
        {"params": second.head.parameters()},
    ],
    lr=1e-2,
)
print(f"{train(second, optimizer, x, torch.arange(20) % 2, 5):.6f}")
print(torch.equal(second.body.fc1.weight, first.body.fc1.weight), torch.allclose(second.norm.weight, first.norm.weight))

path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
torch.save({"epoch": 5, "model": second.state_dict(), "optimizer": optimizer.state_dict()}, path)
third = Model(2)
checkpoint = torch.load(path)
third.load_state_dict(checkpoint["model"])
third.body.fc1.requires_grad_(False)
resumed = torch.optim.Adam(
    [
        {"params": [p for n, p in third.named_parameters() if p.requires_grad and "head" not in n], "lr": 1e-3},
        {"params": third.head.parameters()},
    ],
    lr=1e-2,
)
resumed.load_state_dict(checkpoint["optimizer"])
print(checkpoint["epoch"], [g["lr"] for g in resumed.param_groups])
print(f"{train(second, optimizer, x, torch.arange(20) % 2, 3):.6f}")
print(f"{train(third, resumed, x, torch.arange(20) % 2, 3):.6f}")
try:
    third.load_state_dict(first.state_dict())
except RuntimeError as error:
    print("size mismatch" in str(error), "head.weight" in str(error))
