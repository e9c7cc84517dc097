"""The window functions of `norch.signal.windows` as PyTorch has them at its root: periodic by default.

All are of shape (window_length,) and of the default dtype unless `dtype` is given. `layout` and `pin_memory` are
ignored. They raise DTypeError for a dtype that is not floating and ValueError for a negative length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import check_functions
from ..signal.weights import BLACKMAN, HANN, cosines, of_kaiser, triangle, window

if TYPE_CHECKING:
    from ..tensor import Tensor


def _window(op: str, length: int, periodic: bool, *rest: Any) -> Tensor:
    return window(op, length, not periodic, *rest)


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 cos(2 pi n / N), a vector; `periodic` windows leave out their last point, for Fourier transforms.

    window_length: how many numbers, N or, symmetric, N + 1. layout: ignored.
    """
    return _window("hann_window", window_length, periodic, dtype, device, cosines(HANN), requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta cos(2 pi n / N). window_length, periodic, layout: as of `hann_window`."""
    return _window("hamming_window", window_length, periodic, dtype, device, cosines([alpha, beta]), requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N). window_length, periodic, layout: as of `hann_window`."""
    return _window("blackman_window", window_length, periodic, dtype, device, cosines(BLACKMAN), requires_grad)


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle: 1 in the middle, 0 at the ends. window_length, periodic, layout: as of `hann_window`."""
    return _window("bartlett_window", window_length, periodic, dtype, device, triangle, requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`signal.windows.kaiser`, I0(beta sqrt(1 - x**2)) / I0(beta).

    window_length, periodic, layout: as of `hann_window`.
    """
    return _window("kaiser_window", window_length, periodic, dtype, device, of_kaiser(beta), requires_grad)


check_functions(globals())
