"""Linear layers, and layers that only change the shape."""

from __future__ import annotations

import math
from dataclasses import InitVar
from typing import Any

import norch

from . import functional as F
from . import init
from .layer import layer
from .module import Module
from .parameter import Parameter, optional_parameter


class Identity(Module):
    """Gives its input back. Takes, and ignores, any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return input


@layer()
class Linear(Module):
    """x @ weight.T + bias: from shape (*, in_features) to (*, out_features).

    weight has shape (out_features, in_features), bias (out_features,), or is None for `bias=False`. Both start uniform
    between -1/sqrt(in_features) and 1/sqrt(in_features).
    """

    in_features: int
    out_features: int
    bias: InitVar[bool] = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def __post_init__(self, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = Parameter(norch.empty((self.out_features, self.in_features), device=device, dtype=dtype))
        self.register_parameter("bias", optional_parameter(bias, (self.out_features,), device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias again from the default generator."""
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


@layer()
class Bilinear(Module):
    """x1 @ weight[k] @ x2 + bias[k] for each k: (*, in1_features) and (*, in2_features) to (*, out_features).

    weight has shape (out_features, in1_features, in2_features), bias (out_features,), or is None for `bias=False`. Both
    start uniform between -1/sqrt(in1_features) and 1/sqrt(in1_features). Raises ValueError unless in1_features > 0.
    """

    in1_features: int
    in2_features: int
    out_features: int
    bias: InitVar[bool] = True
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def __post_init__(self, bias: bool, device: Any, dtype: Any) -> None:
        if self.in1_features <= 0:
            raise ValueError(f"Bilinear: in1_features must be positive, got {self.in1_features}")
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.weight = Parameter(norch.empty(shape, device=device, dtype=dtype))
        self.register_parameter("bias", optional_parameter(bias, (self.out_features,), device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias again from the default generator."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: norch.Tensor, input2: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where the last dims are not in1_features and in2_features, or the others differ."""
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


@layer(norch.flatten)
class Flatten(Module):
    """Makes one dim of those from `start_dim` to `end_dim`: by default all but the first, the batch."""

    start_dim: int = 1
    end_dim: int = -1


@layer()
class Unflatten(Module):
    """Cuts dim `dim` into `unflattened_size`, a tuple of sizes, of which one may be -1; DTypeError for others."""

    dim: int
    unflattened_size: Any

    def __post_init__(self) -> None:
        dim, sizes = self.dim, self.unflattened_size
        if not isinstance(dim, int) or not isinstance(sizes, tuple | list):
            raise norch.DTypeError(
                f"Unflatten: dim must be an int and unflattened_size a tuple of ints, got {dim!r} and {sizes!r}; there "
                "are no named dims"
            )
        if not all(isinstance(n, int) for n in sizes):
            raise norch.DTypeError(f"Unflatten: unflattened_size must be a tuple of ints, got {sizes!r}")

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        """Raises ShapeError where the sizes do not make up that of the dim."""
        return input.unflatten(self.dim, self.unflattened_size)
