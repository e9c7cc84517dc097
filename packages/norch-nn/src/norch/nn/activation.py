"""Activations as modules. Each keeps the shape of its input, but for GLU."""

from __future__ import annotations

from dataclasses import InitVar
from typing import Any

import norch

from . import functional as F
from .layer import layer
from .module import Module
from .parameter import Parameter

_RELU, _SILU = F.relu, F.silu  # unless a program has put others in their place


@layer(norch.sigmoid)
class Sigmoid(Module):
    """1 / (1 + exp(-x)), elementwise."""


@layer(norch.tanh)
class Tanh(Module):
    """The hyperbolic tangent, elementwise."""


@layer()
class _InPlace(Module):
    """An activation without further arguments that can write into the memory of its input."""

    inplace: bool = False


class ReLU(_InPlace):
    """max(x, 0), elementwise; into the memory of its input if `inplace`."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        function = F.relu
        return norch.relu(input) if function is _RELU and not self.inplace else function(input, inplace=self.inplace)


@layer(F.relu6)
class ReLU6(_InPlace):
    """min(max(x, 0), 6), elementwise."""

    # As in PyTorch, where it is a Hardtanh: these are among its attributes.
    min_val, max_val = 0.0, 6.0


@layer(F.selu)
class SELU(_InPlace):
    """ELU with the factors that keep mean 0 and variance 1 (Klambauer et al., 2017)."""


class SiLU(_InPlace):
    """x * sigmoid(x). After Elfwing et al. (2017)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        function = F.silu
        return norch.silu(input) if function is _SILU and not self.inplace else function(input, inplace=self.inplace)


@layer(F.mish)
class Mish(_InPlace):
    """x * tanh(softplus(x)) (Misra, 2019)."""


@layer(F.hardsigmoid)
class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6: a sigmoid in three straight pieces."""

    _shown = ()  # as PyTorch's


@layer(F.hardswish)
class Hardswish(Hardsigmoid):
    """x * relu6(x + 3) / 6 (Howard et al., 2019)."""


@layer(F.leaky_relu)
class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x."""

    negative_slope: float = 0.01
    inplace: bool = False


@layer(F.elu)
class ELU(Module):
    """x where x > 0, else alpha * (exp(x) - 1). After Clevert et al. (2015)."""

    alpha: float = 1.0
    inplace: bool = False


@layer(F.celu)
class CELU(ELU):
    """x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron, 2017)."""


@layer()
class PReLU(Module):
    """x where x > 0, else weight * x: one learned slope, or one for each of the `num_parameters` channels, which are
    dim 1; `init` at first (He et al., 2015).
    """

    num_parameters: int = 1
    init: float = 0.25
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None
    _shown = ("num_parameters",)

    def __post_init__(self, device: Any, dtype: Any) -> None:
        self.weight = Parameter(norch.empty(self.num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Makes every slope `init`."""
        with norch.no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.prelu(input, self.weight)


@layer(F.rrelu)
class RReLU(Module):
    """x where x > 0, else x times a slope drawn from [lower, upper), which in evaluation is their mean."""

    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False


@layer(F.gelu)
class GELU(Module):
    """x times the normal distribution function of x; by way of tanh where `approximate="tanh"`."""

    approximate: str = "none"


@layer(F.softplus)
class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, which is x where beta * x > threshold."""

    beta: float = 1.0
    threshold: float = 20.0


@layer(F.softsign)
class Softsign(Module):
    """x / (1 + |x|)."""


@layer(F.logsigmoid)
class LogSigmoid(Module):
    """log(sigmoid(x))."""


@layer(F.tanhshrink)
class Tanhshrink(Module):
    """x - tanh(x)."""


@layer(F.hardtanh)
class Hardtanh(Module):
    """x held between min_val and max_val. Raises ValueError unless min_val is the smaller."""

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False

    def __post_init__(self) -> None:
        if not self.max_val > self.min_val:
            raise ValueError(f"Hardtanh: max_val {self.max_val} must be greater than min_val {self.min_val}")


@layer(F.threshold)
class Threshold(Module):
    """x where x > threshold, else value."""

    threshold: float
    value: float
    inplace: bool = False


@layer(F.hardshrink)
class Hardshrink(Module):
    """0 where |x| <= lambd, else x."""

    lambd: float = 0.5

    def extra_repr(self) -> str:
        return f"{self.lambd}"


@layer(F.softshrink)
class Softshrink(Hardshrink):
    """x moved towards 0 by lambd, and 0 where it is nearer."""


# --- Along a dim ----------------------------------------------------------------------------------------------------


@layer(F.glu)
class GLU(Module):
    """The first half along `dim` times the sigmoid of the second: (..., 2n, ...) -> (..., n, ...)."""

    dim: int = -1


@layer(F.softmax)
class Softmax(Module):
    """exp(x) over its sum along `dim`. Without a dim it is chosen by the number of dims, with a warning."""

    dim: int | None = None


@layer(F.log_softmax)
class LogSoftmax(Module):
    """log(softmax(x)) along `dim`. Without a dim it is chosen by the number of dims, with a warning."""

    dim: int | None = None


@layer(F.softmin)
class Softmin(Module):
    """softmax(-x) along `dim`. Without a dim it is chosen by the number of dims, with a warning."""

    dim: int | None = None


class Softmax2d(Module):
    """softmax over the channels of (n, c, h, w) or (c, h, w). Raises ValueError for another number of dims."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected 3 or 4 dims, got shape {tuple(input.shape)}")
        return norch.softmax(input, -3)
