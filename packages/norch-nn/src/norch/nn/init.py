"""Ways to fill a tensor before training. Each changes the tensor in place, unrecorded, and returns it.

Arguments that mean the same in every function:

    tensor: of any shape unless said otherwise, floating; it keeps its shape and dtype. mean, std: of what is drawn.
    mode, nonlinearity: "fan_in" or "fan_out", and the activation's name, as of `calculate_gain`. Raises ValueError for
        others, and ShapeError below 2 dims.
    generator: what to draw from, as elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import norch

_LINEAR = ("linear", "sigmoid", *[f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3)])


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance of values through an activation (`nonlinearity`). `param`: the slope of
    "leaky_relu".

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
    bound = gain * math.sqrt(6.0 / sum(_calculate_fan_in_and_fan_out(tensor, "xavier_uniform_")))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: norch.Tensor, gain: float = 1.0, generator: norch.Generator | None = None) -> norch.Tensor:
    """Normal with variance gain**2 * 2 / (fan_in + fan_out). Glorot and Bengio (2010)."""
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor, "xavier_normal_")))
    return normal_(tensor, 0.0, std, generator)


def kaiming_uniform_(
    tensor: norch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: norch.Generator | None = None,
) -> norch.Tensor:
    """Uniform with variance gain**2 / fan. He et al. (2015). `a` is the slope of "leaky_relu".

    Raises ShapeError below 2 dims, ValueError for another mode or nonlinearity.
    """
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_uniform_")
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: norch.Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: norch.Generator | None = None,
) -> norch.Tensor:
    """Normal with variance gain**2 / fan. He et al. (2015). `a` is the slope of "leaky_relu".

    Raises ShapeError below 2 dims, ValueError for another mode or nonlinearity.
    """
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity, "kaiming_normal_"), generator)


def trunc_normal_(
    tensor: norch.Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: norch.Generator | None = None,
) -> norch.Tensor:
    """Normal with this mean and standard deviation, but never outside [a, b].

    By the inverse of its distribution function (Devroye, 1986), in which erf is.
    """
    low, high = (math.erf((end - mean) / (std * math.sqrt(2))) for end in (a, b))

    def fill(t: norch.Tensor) -> None:
        # The normal distribution function's inverse, of uniforms between its values at a and b.
        drawn = norch.empty_like(t, dtype=t.dtype if t.dtype.itemsize > 4 else norch.float32)
        drawn.uniform_(low, high, generator=generator).clamp_(-1 + 1e-7, 1 - 1e-7)  # of 1 it is infinite
        t.copy_(drawn.erfinv_().mul_(std * math.sqrt(2)).add_(mean).clamp_(a, b))

    return _fill(tensor, fill)


def orthogonal_(tensor: norch.Tensor, gain: float = 1, generator: norch.Generator | None = None) -> norch.Tensor:
    """A random matrix with orthonormal rows or columns, whichever are fewer, times `gain`. Saxe et al. (2013).

    Dims after the first count as one. The first factor of a QR decomposition of normal values, its columns turned so
    that the second has a positive diagonal (Mezzadri, 2007). Raises ShapeError for fewer than 2 dims.
    """
    if tensor.ndim < 2:
        raise norch.ShapeError(f"orthogonal_(): needs at least 2 dims, got shape {tuple(tensor.shape)}")
    if not tensor.numel():
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]

    def fill(t: norch.Tensor) -> None:
        dtype = t.dtype if t.dtype.itemsize >= 4 else norch.float32
        found = norch.empty((rows, columns), dtype=dtype, device=t.device).normal_(generator=generator)
        q, r = norch.linalg.qr(found.T if rows < columns else found)
        q = q * r.diagonal().sign() * gain
        t.copy_((q.T if rows < columns else q).reshape(tuple(t.shape)))

    return _fill(tensor, fill)


def dirac_(tensor: norch.Tensor, groups: int = 1) -> norch.Tensor:
    """The weight of a convolution that keeps as many channels as it can, in each of `groups` groups of outputs.

    Raises ValueError unless there are 3 to 5 dims, of which `groups` divides the first.
    """
    if tensor.ndim not in (3, 4, 5) or tensor.shape[0] % groups:
        raise ValueError(
            f"dirac_(): needs 3, 4 or 5 dims, the first divisible by groups {groups}, got shape {tuple(tensor.shape)}"
        )
    per_group = tensor.shape[0] // groups
    count = min(per_group, tensor.shape[1])

    def fill(t: norch.Tensor) -> None:
        t.zero_()
        middle = tuple(n // 2 for n in t.shape[2:])
        for group in range(groups):
            at = slice(group * per_group, group * per_group + count)
            t[(at, slice(0, count), *middle)] = norch.eye(count, dtype=t.dtype, device=t.device)

    return _fill(tensor, fill)


def sparse_(
    tensor: norch.Tensor, sparsity: float, std: float = 0.01, generator: norch.Generator | None = None
) -> norch.Tensor:
    """A matrix of normal values, of which the fraction `sparsity` of each column is 0. Martens (2010).

    Raises ValueError for a tensor that is not 2-d.
    """
    if tensor.ndim != 2:
        raise ValueError(f"sparse_(): needs 2 dims, got shape {tuple(tensor.shape)}")
    zeros = math.ceil(sparsity * tensor.shape[0])

    def fill(t: norch.Tensor) -> None:
        t.normal_(0.0, std, generator=generator)
        # Each column's rows in a random order, of which the first become 0.
        keys = norch.empty(tuple(t.shape), dtype=norch.float32, device=t.device).uniform_(generator=generator)
        t.scatter_(0, norch.argsort(keys, 0)[:zeros], 0.0)

    return _fill(tensor, fill)


def _kaiming_std(tensor: norch.Tensor, a: float, mode: str, nonlinearity: str, op: str) -> float:
    fan = _calculate_correct_fan(tensor, mode, op)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan) if fan else 0.0


def _calculate_correct_fan(tensor: norch.Tensor, mode: str, op: str = "_calculate_correct_fan") -> int:
    """The one of both fans that `mode` names."""
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{op}(): mode must be 'fan_in' or 'fan_out', got {mode!r}")
    return _calculate_fan_in_and_fan_out(tensor, op)[mode == "fan_out"]


def _calculate_fan_in_and_fan_out(tensor: norch.Tensor, op: str = "_calculate_fan_in_and_fan_out") -> tuple[int, int]:
    """How many inputs an output depends on, and how many outputs an input reaches, for a weight (out, in, *kernel)."""
    if tensor.ndim < 2:
        raise norch.ShapeError(f"{op}(): fans need at least 2 dims, got shape {tuple(tensor.shape)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fill(tensor: norch.Tensor, fill: Callable[[norch.Tensor], Any]) -> norch.Tensor:
    if not tensor.is_meta:  # there no number is drawn either
        with norch.no_grad():
            fill(tensor)
    return tensor


def _without_underscore(name: str) -> Callable[..., norch.Tensor]:
    def old(*args: Any, **kwargs: Any) -> norch.Tensor:
        from warnings import warn

        warn(f"nn.init.{name} is deprecated in favor of nn.init.{name}_", FutureWarning, stacklevel=2)
        return globals()[f"{name}_"](*args, **kwargs)  # type: ignore[no-any-return]

    old.__name__ = old.__qualname__ = name
    old.__doc__ = f"`{name}_` under its old name, in place too. Warns."
    return old


uniform, normal = _without_underscore("uniform"), _without_underscore("normal")
eye, dirac, orthogonal = _without_underscore("eye"), _without_underscore("dirac"), _without_underscore("orthogonal")
xavier_uniform, xavier_normal = _without_underscore("xavier_uniform"), _without_underscore("xavier_normal")
kaiming_uniform, kaiming_normal = _without_underscore("kaiming_uniform"), _without_underscore("kaiming_normal")
constant, sparse = _without_underscore("constant"), _without_underscore("sparse")

norch.check_functions(globals())


# PyTorch's names, by which libraries such as mup find them.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
