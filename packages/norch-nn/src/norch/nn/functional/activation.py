"""Activations that norch itself has not, and those of norch with the further arguments that PyTorch's have."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import norch


def written_into(input: norch.Tensor, function: Callable[..., norch.Tensor], *args: Any) -> norch.Tensor:
    """`function(input, *args)` put into the memory of `input`, which is returned."""
    # What the gradient needs of the input must not be the memory that changes.
    source = input.clone() if input.requires_grad and norch.is_grad_enabled() else input
    return input.copy_(function(source, *args))


def relu(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """max(input, 0), elementwise; into the memory of `input` if `inplace`."""
    return input.relu_() if inplace else norch.relu(input)


def relu6(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """`norch.relu6`; into the memory of `input` if `inplace`."""
    return hardtanh(input, 0, 6, True) if inplace else norch.relu6(input)


def leaky_relu(input: norch.Tensor, negative_slope: float = 0.01, inplace: bool = False) -> norch.Tensor:
    """`norch.leaky_relu`; into the memory of `input` if `inplace`."""
    if inplace:
        return norch.leaky_relu_(input, negative_slope)  # type: ignore[no-any-return]
    return norch.leaky_relu(input, negative_slope)


def elu(input: norch.Tensor, alpha: float = 1.0, inplace: bool = False) -> norch.Tensor:
    """`norch.elu`; into the memory of `input` if `inplace`."""
    return written_into(input, norch.elu, alpha) if inplace else norch.elu(input, alpha)


def selu(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """`norch.selu`; into the memory of `input` if `inplace`."""
    return written_into(input, norch.selu) if inplace else norch.selu(input)


def celu(input: norch.Tensor, alpha: float = 1.0, inplace: bool = False) -> norch.Tensor:
    """`norch.celu`; into the memory of `input` if `inplace`."""
    return written_into(input, norch.celu, alpha) if inplace else norch.celu(input, alpha)


def hardtanh(input: norch.Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> norch.Tensor:
    """`norch.hardtanh`; into the memory of `input` if `inplace`. Raises ValueError where max_val is below min_val."""
    if min_val > max_val:
        raise ValueError(f"hardtanh(): min_val {min_val} is greater than max_val {max_val}")
    if inplace:
        return norch.hardtanh_(input, min_val, max_val)  # type: ignore[no-any-return]
    return norch.hardtanh(input, min_val, max_val)


def hardsigmoid(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """`norch.hardsigmoid`; into the memory of `input` if `inplace`."""
    return norch.hardsigmoid_(input) if inplace else norch.hardsigmoid(input)


def hardswish(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """`norch.hardswish`; into the memory of `input` if `inplace`."""
    return norch.hardswish_(input) if inplace else norch.hardswish(input)


def silu(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """`norch.silu`; into the memory of `input` if `inplace`."""
    return norch.silu_(input) if inplace else norch.silu(input)


def mish(input: norch.Tensor, inplace: bool = False) -> norch.Tensor:
    """`norch.mish`; into the memory of `input` if `inplace`."""
    return norch.mish_(input) if inplace else norch.mish(input)


def threshold(input: norch.Tensor, threshold: float, value: float, inplace: bool = False) -> norch.Tensor:
    """`norch.threshold`; into the memory of `input` if `inplace`."""
    if inplace:
        return written_into(input, norch.threshold, threshold, value)
    return norch.threshold(input, threshold, value)


def softshrink(input: norch.Tensor, lambd: float = 0.5) -> norch.Tensor:
    """`input` moved towards 0 by `lambd`, and 0 where it is nearer. Elementwise. Floating only; ValueError for `lambd`
    < 0.
    """
    if lambd < 0:
        raise ValueError(f"softshrink(): lambd must be at least 0, got {lambd}")
    return norch.softshrink(input, lambd)


def tanhshrink(input: norch.Tensor) -> norch.Tensor:
    """input - tanh(input), elementwise."""
    return input - norch.tanh(input)


def rrelu(
    input: norch.Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> norch.Tensor:
    """`input` where it is positive, elsewhere times a slope drawn for each element from [lower, upper).

    Without `training` the slope is (lower + upper) / 2. Xu et al. (2015). ValueError where upper is below lower.
    """
    if lower > upper:
        raise ValueError(f"rrelu(): lower bound {lower} is greater than upper bound {upper}")
    slope: Any = (lower + upper) / 2
    if training:
        slope = norch.rand_like(input) * (upper - lower) + lower
    return written_into(input, _sloped, slope) if inplace else _sloped(input, slope)


def _sloped(input: norch.Tensor, slope: Any) -> norch.Tensor:
    if isinstance(slope, norch.Tensor):
        return norch.where(input > 0, input, input * slope)
    return norch.leaky_relu(input, slope)


def _in_place(function: Callable[..., norch.Tensor]) -> Callable[..., norch.Tensor]:
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.name != "inplace"]

    def call(input: norch.Tensor, *args: Any, **kwargs: Any) -> norch.Tensor:
        return function(input, *args, **kwargs, inplace=True)

    call.__name__ = call.__qualname__ = f"{function.__name__}_"
    call.__doc__ = f"`{function.__name__}` in place."
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


relu_, selu_, elu_, celu_ = _in_place(relu), _in_place(selu), _in_place(elu), _in_place(celu)
leaky_relu_, rrelu_ = _in_place(leaky_relu), _in_place(rrelu)
hardtanh_, threshold_ = _in_place(hardtanh), _in_place(threshold)


# --- Along a dim ----------------------------------------------------------------------------------------------------


def _dim(name: str, ndim: int, dim: int | None, stacklevel: int) -> int:
    """The dim asked for, or for None the one that PyTorch then takes, with a warning as it gives."""
    if dim is not None:
        return dim
    warnings.warn(f"{name}: the dim is to be given; without one it is chosen by the number of dims", stacklevel=3)
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: norch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> norch.Tensor:
    """`norch.softmax`. Without a `dim`, which warns: dim 0 of 0, 1 or 3 dims, else dim 1."""
    return norch.softmax(input, _dim("softmax", input.ndim, dim, _stacklevel) if dim is None else dim, dtype)


def softmin(input: norch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> norch.Tensor:
    """`norch.softmin`. Without a `dim`, which warns: dim 0 of 0, 1 or 3 dims, else dim 1."""
    return norch.softmin(input, _dim("softmin", input.ndim, dim, _stacklevel), dtype)


def log_softmax(input: norch.Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> norch.Tensor:
    """`norch.log_softmax`. Without a `dim`, which warns: dim 0 of 0, 1 or 3 dims, else dim 1."""
    return norch.log_softmax(input, _dim("log_softmax", input.ndim, dim, _stacklevel) if dim is None else dim, dtype)


def gumbel_softmax(
    logits: norch.Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> norch.Tensor:
    """A sample of the Gumbel-softmax distribution (Jang et al., 2017): softmax((logits + noise) / tau). Shape kept.

    hard: the sample made one-hot, with the gradient of the soft one. `eps` is not used, as in PyTorch.
    """
    tiny = norch.finfo(logits.dtype).tiny
    noise = -(-(norch.rand_like(logits).clamp(min=tiny).log())).log()
    soft = norch.softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    places = soft.detach().argmax(dim, keepdim=True)
    return norch.zeros_like(soft).scatter(dim, places, 1.0) - soft.detach() + soft
