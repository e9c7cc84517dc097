"""The window functions of `norch.signal.windows` as PyTorch has them at its root: periodic by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dispatch.arguments import check_functions
from ..signal.weights import BLACKMAN, HANN, cosines, of_kaiser, older_window_of, triangle

if TYPE_CHECKING:
    from ..signal.weights import Weight


@older_window_of
def hann_window() -> Weight:
    """0.5 - 0.5 cos(2 pi n / N), a vector; `periodic` windows leave out their last point, for Fourier transforms.

    window_length: how many numbers, N or, symmetric, N + 1. layout, pin_memory: ignored. Raises DTypeError for a dtype
    that is not floating, ValueError for a negative length.
    """
    return cosines(HANN)


@older_window_of
def hamming_window(alpha: float = 0.54, beta: float = 0.46) -> Weight:
    """alpha - beta cos(2 pi n / N). window_length, periodic, layout: as of `hann_window`, as which it raises."""
    return cosines([alpha, beta])


@older_window_of
def blackman_window() -> Weight:
    """0.42 - 0.5 cos(2 pi n / N) + 0.08 cos(4 pi n / N), a vector.

    window_length, periodic, layout: as of `hann_window`, as which it raises.
    """
    return cosines(BLACKMAN)


@older_window_of
def bartlett_window() -> Weight:
    """A triangle, a vector: 1 in the middle, 0 at the ends.

    window_length, periodic, layout: as of `hann_window`, as which it raises.
    """
    return triangle


@older_window_of
def kaiser_window(beta: float = 12.0) -> Weight:
    """`signal.windows.kaiser`, I0(beta sqrt(1 - x**2)) / I0(beta), a vector.

    window_length, periodic, layout: as of `hann_window`, as which it raises.
    """
    return of_kaiser(beta)


check_functions(globals())
