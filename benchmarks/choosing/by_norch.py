"""norch: eager, and the whole step captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import like_torch

import norch
from norch import nn as nn
from norch import optim as optim

MODES = ("eager", "captured")
PACKAGES = ("norch-core", "norch-cpu", "norch-nn", "numpy")


def op(name: str) -> Callable[[], object]:
    return like_torch.op(norch, name)


def step(model: str, mode: str) -> Any:
    captured = None if mode == "eager" else lambda net, steps: norch.capture(steps(net))
    return like_torch.step(norch, model, captured)
