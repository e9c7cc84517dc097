"""PyTorch's `torch.signal.windows`. All are vectors of M numbers, of the default dtype unless `dtype` is given, and
raise DTypeError for one that is not floating and ValueError for a negative M.

Arguments that mean the same in every function:

    M: how many numbers. sym: whether both ends are alike; if not, the last number of a window of M + 1 is left out, for
    Fourier transforms. dtype, device, requires_grad: of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import check_functions
from ..dtype import as_dtype, get_default_dtype
from ..errors import DTypeError
from ..ops import arange, cos, exp, ones, sin
from ..special import i0

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = [
    "bartlett",
    "blackman",
    "cosine",
    "exponential",
    "gaussian",
    "general_cosine",
    "general_hamming",
    "hamming",
    "hann",
    "kaiser",
    "nuttall",
]


def _made(op: str, M: int, sym: bool, options: dict[str, Any], weight: Callable[[Tensor, int], Tensor]) -> Tensor:
    """`weight` of the places from 0 to `last`, and that."""
    known = {"dtype", "layout", "device", "requires_grad"}
    if not options.keys() <= known:
        raise TypeError(f"{op}(): unexpected arguments {', '.join(options.keys() - known)}")
    dtype, device = options.get("dtype"), options.get("device")
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    if not chosen.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {chosen}")
    if M < 0:
        raise ValueError(f"{op}(): M must not be negative, got {M}")
    if M < 2:
        out = ones(M, dtype=chosen, device=device)
    else:
        out = weight(arange(M, dtype="float64", device=device), M - 1 if sym else M).to(chosen)
    return out.requires_grad_() if options.get("requires_grad") else out


def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-|n - center| / tau), by default of the middle; with a center `sym` must be False (ValueError).

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    if tau <= 0:
        raise ValueError(f"exponential(): tau must be positive, got {tau}")
    if sym and center is not None:
        raise ValueError("exponential(): center must be None for a symmetric window")
    return _made(
        "exponential", M, sym, options, lambda n, last: exp(-(n - (last / 2 if center is None else center)).abs() / tau)
    )


def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """sin(pi (n + 0.5) / N), half a wave.

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return _made("cosine", M, sym, options, lambda n, last: sin((n + 0.5) * (math.pi / (last + 1))))


def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """exp(-((n - middle) / std)**2 / 2). Raises ValueError unless std is positive.

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    if std <= 0:
        raise ValueError(f"gaussian(): std must be positive, got {std}")
    return _made("gaussian", M, sym, options, lambda n, last: exp(-(((n - last / 2) / std) ** 2) / 2))


def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """I0(beta sqrt(1 - x**2)) / I0(beta), x from -1 to 1. Raises ValueError for a negative beta.

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    if beta < 0:
        raise ValueError(f"kaiser(): beta must not be negative, got {beta}")

    def weight(n: Tensor, last: int) -> Tensor:
        x = n * (2 / last) - 1
        found: Tensor = i0(beta * (1 - x * x).clamp(min=0).sqrt()) / i0(x.new_tensor(float(beta)))
        return found

    return _made("kaiser", M, sym, options, weight)


def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.54 - 0.46 cos(2 pi n / N).

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return general_hamming(M, sym=sym, **options)


def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N).

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return general_hamming(M, alpha=0.5, sym=sym, **options)


def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N).

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, **options)


def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A triangle: 1 - |2 n / N - 1|.

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return _made("bartlett", M, sym, options, lambda n, last: 1 - (n * (2 / last) - 1).abs())


def general_cosine(M: int, *, a: Sequence[float], sym: bool = True, **options: Any) -> Tensor:
    """The sum of (-1)**i a[i] cos(2 pi i n / N). a: the weights, at least one (ValueError).

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    if not len(a):
        raise ValueError("general_cosine(): a must not be empty")

    def weight(n: Tensor, last: int) -> Tensor:
        waves = [float(w) * (-1) ** i * cos(n * (2 * math.pi * i / last)) for i, w in enumerate(a)]
        total: Tensor = sum(waves[1:], waves[0])
        return total

    return _made("general_cosine", M, sym, options, weight)


def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos(2 pi n / N).

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, **options)


def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Nuttall's sum of four cosines, the narrowest of those without a step at the ends.

    Of shape (M,). Raises ValueError for a negative M, DTypeError for a dtype that is not floating.
    """
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, **options)


check_functions(globals())
