"""PyTorch: eager, and the model compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import like_torch
import torch

MODES = ("eager", "compiled")
PACKAGES = ("torch",)


def op(name: str) -> Callable[[], object]:
    return like_torch.op(torch, name)


def step(model: str, mode: str) -> Any:
    compiled = None if mode == "eager" else lambda net, steps: steps(torch.compile(net))
    return like_torch.step(torch, model, compiled)
