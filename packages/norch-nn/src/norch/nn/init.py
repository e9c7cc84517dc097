"""Ways to fill a tensor before training. Each changes the tensor in place, unrecorded, and returns it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import norch

_LINEAR = ("linear", "sigmoid", *[f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)])


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of values through an activation. `param`: the slope of "leaky_relu".

    Raises ValueError for a name that is not known.
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"calculate_gain(): unsupported nonlinearity {nonlinearity!r}")


def uniform_(
    tensor: norch.Tensor, a: float = 0.0, b: float = 1.0, generator: norch.Generator | None = None
) -> norch.Tensor:
    """Uniform between a and b."""
    return _fill(tensor, lambda t: t.uniform_(a, b, generator=generator))


def normal_(
    tensor: norch.Tensor, mean: float = 0.0, std: float = 1.0, generator: norch.Generator | None = None
) -> norch.Tensor:
    """Normal with this mean and standard deviation."""
    return _fill(tensor, lambda t: t.normal_(mean, std, generator=generator))


def constant_(tensor: norch.Tensor, val: float) -> norch.Tensor:
    """`val` everywhere."""
    return _fill(tensor, lambda t: t.fill_(val))


def zeros_(tensor: norch.Tensor) -> norch.Tensor:
    """0 everywhere."""
    return constant_(tensor, 0.0)


def ones_(tensor: norch.Tensor) -> norch.Tensor:
    """1 everywhere."""
    return constant_(tensor, 1.0)


def eye_(tensor: norch.Tensor) -> norch.Tensor:
    """1 on the diagonal of a matrix, 0 elsewhere. Raises ShapeError for a tensor that is not 2-d."""
    if tensor.ndim != 2:
        raise norch.ShapeError(f"eye_(): needs 2 dims, got shape {tuple(tensor.shape)}")
    return _fill(tensor, lambda t: t.copy_(norch.eye(*t.shape, dtype=t.dtype, device=t.device)))


def xavier_uniform_(tensor: norch.Tensor, gain: float = 1.0, generator: norch.Generator | None = None) -> norch.Tensor:
    """Uniform with variance gain**2 * 2 / (fan_in + fan_out). Glorot and Bengio (2010)."""
    bound = gain * math.sqrt(6.0 / sum(_fans(tensor, "xavier_uniform_")))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: norch.Tensor, gain: float = 1.0, generator: norch.Generator | None = None) -> norch.Tensor:
    """Normal with variance gain**2 * 2 / (fan_in + fan_out). Glorot and Bengio (2010)."""
    std = gain * math.sqrt(2.0 / sum(_fans(tensor, "xavier_normal_")))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: norch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: norch.Generator | None = None,
) -> norch.Tensor:
    """Uniform with variance gain**2 / fan. He et al. (2015). `a` is the slope of "leaky_relu"."""
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_uniform_")
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: norch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: norch.Generator | None = None,
) -> norch.Tensor:
    """Normal with variance gain**2 / fan. He et al. (2015). `a` is the slope of "leaky_relu"."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_normal_"), generator)


def _kaiming_std(tensor: norch.Tensor, a: float, mode: str, nonlinearity: str, op: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{op}(): mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = _fans(tensor, op)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def _fans(tensor: norch.Tensor, op: str) -> tuple[int, int]:
    """How many inputs an output depends on, and how many outputs an input reaches, for a weight (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise norch.ShapeError(f"{op}(): fans need at least 2 dims, got shape {tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fill(tensor: norch.Tensor, fill: Callable[[norch.Tensor], Any]) -> norch.Tensor:
    with norch.no_grad():
        fill(tensor)
    return tensor
