"""Activations as modules. Each keeps the shape of its input, but for GLU."""

from __future__ import annotations

from typing import Any

import norch

from . import functional as F
from .module import Module
from .parameter import Parameter


class Sigmoid(Module):
    """1 / (1 + exp(-x)), elementwise."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.sigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent, elementwise."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.tanh(input)


class _InPlace(Module):
    """An activation without further arguments that can write into the memory of its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """max(x, 0), elementwise; into the memory of its input if `inplace`."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.relu(input, inplace=True) if self.inplace else norch.relu(input)


class ReLU6(_InPlace):
    """min(max(x, 0), 6), elementwise."""

    # As in PyTorch, where it is a Hardtanh: these are among its attributes.
    min_val, max_val = 0.0, 6.0

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.relu6(input, self.inplace)


class SELU(_InPlace):
    """ELU with the factors that keep mean 0 and variance 1 (Klambauer et al., 2017)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.selu(input, self.inplace)


class SiLU(_InPlace):
    """x * sigmoid(x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.silu(input, True) if self.inplace else norch.silu(input)


class Mish(_InPlace):
    """x * tanh(softplus(x)) (Misra, 2019)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.mish(input, self.inplace)


class Hardsigmoid(Module):
    """relu6(x + 3) / 6: a sigmoid in three straight pieces."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.hardsigmoid(input, self.inplace)


class Hardswish(Hardsigmoid):
    """x * relu6(x + 3) / 6 (Howard et al., 2019)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.hardswish(input, self.inplace)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope * x."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class ELU(Module):
    """x where x > 0, else alpha * (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(ELU):
    """x where x > 0, else alpha * (exp(x / alpha) - 1) (Barron, 2017)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.celu(input, self.alpha, self.inplace)


class PReLU(Module):
    """x where x > 0, else weight * x: one learned slope, or one for each of the channels, which are dim 1."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(norch.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Makes every slope `init`."""
        with norch.no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return norch.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x where x > 0, else x times a slope drawn from [lower, upper), which in evaluation is their mean."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + (", inplace=True" if self.inplace else "")


class GELU(Module):
    """x times the normal distribution function of x; by way of tanh where `approximate="tanh"`."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


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


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.softsign(input)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.logsigmoid(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.tanhshrink(input)


class Hardtanh(Module):
    """x held between min_val and max_val. Raises ValueError unless min_val is the smaller."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if not max_val > min_val:
            raise ValueError(f"Hardtanh: max_val {max_val} must be greater than min_val {min_val}")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + (", inplace=True" if self.inplace else "")


class Threshold(Module):
    """x where x > threshold, else value."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + (", inplace=True" if self.inplace else "")


class Hardshrink(Module):
    """0 where |x| <= lambd, else x."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Softshrink(Hardshrink):
    """x moved towards 0 by lambd, and 0 where it is nearer."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.softshrink(input, self.lambd)


# --- Along a dim ----------------------------------------------------------------------------------------------------


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second: (..., 2n, ...) -> (..., n, ...)."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) over its sum along `dim`. Without a dim it is chosen by the number of dims, with a warning."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`. Without a dim it is chosen by the number of dims, with a warning."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along `dim`. Without a dim it is chosen by the number of dims, with a warning."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """softmax over the channels of (n, c, h, w) or (c, h, w). Raises ValueError for another number of dims."""

    def forward(self, input: norch.Tensor) -> norch.Tensor:
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected 3 or 4 dims, got shape {tuple(input.shape)}")
        return norch.softmax(input, -3)
