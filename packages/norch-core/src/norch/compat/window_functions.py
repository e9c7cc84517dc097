"""Window functions: weights that fall off towards both ends of a stretch of a signal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..dtype import as_dtype, get_default_dtype
from ..errors import DTypeError
from ..ops import arange, cos, ones, zeros

if TYPE_CHECKING:
    from ..tensor import Tensor


def _angles(length: int, periodic: bool, dtype: Any, device: Any, op: str) -> Tensor | None:
    """From 0 to 2 pi over the window in float64; None for one of at most 1 element."""
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, op)
    if not chosen.is_floating_point:
        raise DTypeError(f"{op}(): expected a floating dtype, got {chosen}")
    if length < 2:
        return None
    return arange(length, dtype="float64", device=device) * (2 * math.pi / (length if periodic else length - 1))


def _raised(op: str, length: int, periodic: bool, weights: tuple[float, ...], dtype: Any, device: Any) -> Tensor:
    """A sum of cosines with alternating signs."""
    angles = _angles(length, periodic, dtype, device, op)
    chosen = get_default_dtype() if dtype is None else dtype
    if angles is None:
        return ones(length, dtype=chosen, device=device)
    out = zeros(length, dtype="float64", device=device) + weights[0]
    for k, weight in enumerate(weights[1:], 1):
        out = out + cos(angles * k) * (weight if k % 2 == 0 else -weight)
    return out.to(as_dtype(chosen, op))


def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N); `periodic` windows leave out their last point, for Fourier transforms."""
    return _raised("hann_window", window_length, periodic, (0.5, 0.5), dtype, device)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """alpha - beta cos(2 pi n / N)."""
    return _raised("hamming_window", window_length, periodic, (alpha, beta), dtype, device)


def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N)."""
    return _raised("blackman_window", window_length, periodic, (0.42, 0.5, 0.08), dtype, device)


def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, device: Any = None) -> Tensor:
    """A triangle: 1 in the middle, 0 at the ends."""
    angles = _angles(window_length, periodic, dtype, device, "bartlett_window")
    chosen = get_default_dtype() if dtype is None else as_dtype(dtype, "bartlett_window")
    if angles is None:
        return ones(window_length, dtype=chosen, device=device)
    return (1 - (angles / math.pi - 1).abs()).to(chosen)
