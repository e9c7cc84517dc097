"""Activations as modules. Each keeps the shape of its input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import norch

from . import functional as F
from .module import Module


class Sigmoid(Module):
    """1 / (1 + exp(-x)), elementwise."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent, elementwise."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.tanh(input)


class ReLU(Module):
    """max(x, 0), elementwise; into the memory of its input if `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.relu(input, inplace=True) if self.inplace else norch.relu(input)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""
