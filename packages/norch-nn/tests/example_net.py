"""A small network with a parameter and buffers of its own, for tests of modules."""

import norch
from norch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(2, 3)
        self.act = nn.Tanh()
        self.fc2 = nn.Linear(3, 1)
        self.scale = nn.Parameter(norch.ones(1))
        self.register_buffer("steps", norch.zeros(1, dtype=norch.int64))
        self.register_buffer("scratch", norch.zeros(2), persistent=False)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) * self.scale


def names(pairs):
    return [name for name, _ in pairs]
