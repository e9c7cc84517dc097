"""Window functions: weights that fall off towards both ends of a stretch of a signal. All are of shape (length,) and of
the default dtype unless `dtype` is given; they raise DTypeError for one that is not floating."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dispatch.arguments import check_functions
from ..dtype import as_dtype, get_default_dtype
from ..errors import DTypeError
from ..ops import arange, cos, ones

if TYPE_CHECKING:
    from ..tensor import Tensor


def _window(
    op: str, length: int, periodic: bool, dtype: Any, device: Any, weight: Callable[[Tensor], Tensor]
) -> Tensor:
    """`weight` of the angles from 0 to 2 pi over the window, in float64; 1 for a window of at most 1 element."""
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    if not chosen.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {chosen}")
    if length < 2:
        return ones(length, dtype=chosen, device=device)
    step = 2 * math.pi / (length if periodic else length - 1)
    return weight(arange(length, dtype="float64", device=device) * step).to(chosen)


def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N), a vector; `periodic` windows leave out their last point, for Fourier transforms.

    window_length: how many numbers, N or, symmetric, N + 1. Raises DTypeError unless the dtype is floating.
    """
    return _window("hann_window", window_length, periodic, dtype, device, lambda x: 0.5 - 0.5 * cos(x))


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """alpha - beta cos(2 pi n / N). window_length, periodic: as of `hann_window`, as which it raises."""
    return _window("hamming_window", window_length, periodic, dtype, device, lambda x: alpha - beta * cos(x))


def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N).

    window_length, periodic: as of `hann_window`, as which it raises.
    """

    def weight(x: Tensor) -> Tensor:
        return 0.42 - 0.5 * cos(x) + 0.08 * cos(x * 2)

    return _window("blackman_window", window_length, periodic, dtype, device, weight)


def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A triangle: 1 in the middle, 0 at the ends.

    `window_length` numbers n = 0, 1, ... of a `periodic` window or a symmetric one: a vector. Raises as hann_window
    does.
    """
    return _window("bartlett_window", window_length, periodic, dtype, device, lambda x: 1 - (x / math.pi - 1).abs())


def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, device: Any = None
) -> Tensor:
    """I0(beta sqrt(1 - x**2)) / I0(beta), x from -1 to 1 (Kaiser and Schafer, 1980).

    window_length, periodic: as of `hann_window`, as which it raises.
    """

    def weight(x: Tensor) -> Tensor:
        at = np.sqrt(np.maximum(1 - (x.cpu().numpy() / math.pi - 1) ** 2, 0))
        return x.new_tensor(np.i0(beta * at) / np.i0(beta))

    return _window("kaiser_window", window_length, periodic, dtype, device, weight)


check_functions(globals())
