"""Activations as modules. Each keeps the shape of its input."""

from __future__ import annotations

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


class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Module):
    """x times the normal distribution function of x; by way of tanh where `approximate="tanh"`."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.silu(input)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, which is x where beta * x > threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """exp(x) over its sum along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
