"""Linear layers, and layers that only change the shape."""

from __future__ import annotations

import math
from typing import Any

import norch

from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


class Identity(Module):
    """Gives its input back. Takes, and ignores, any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return input


class Linear(Module):
    """x @ weight.T + bias: from shape (*, in_features) to (*, out_features).

    weight has shape (out_features, in_features), bias (out_features,), or is None for `bias=False`. Both start uniform
    between -1/sqrt(in_features) and 1/sqrt(in_features).
    """

    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(norch.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(norch.empty((out_features,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias anew from the default generator."""
        # The bounds of kaiming_uniform_ with a = sqrt(5), as PyTorch writes it.
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where the last dim of `input` is not in_features."""
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Flatten(Module):
    """Makes one dim of those from `start_dim` to `end_dim`: by default all but the first, the batch."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
