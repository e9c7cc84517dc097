"""Window functions: weights that fall off towards both ends of a stretch of a signal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..dispatch.arguments import check_functions
from ..ops import exp, sin, square
from .weights import BLACKMAN, HANN, NUTTALL, cosines, of_kaiser, triangle, window_of

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .weights import Weight


@window_of
def general_cosine(*, a: Iterable[float]) -> Weight:
    """a[0] - a[1] cos(x) + a[2] cos(2 x) - ..., x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises; ValueError where a is empty too.
    """
    factors = list(a)
    if not factors:
        raise ValueError("general_cosine(): a must not be empty")
    return cosines(factors)


@window_of
def general_hamming(*, alpha: float = 0.54) -> Weight:
    """alpha - (1 - alpha) cos(x), x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return cosines([alpha, 1 - alpha])


@window_of
def hann() -> Weight:
    """0.5 - 0.5 cos(x), x from 0 to 2 pi: a vector.

    M: how many weights. sym: whether they are symmetric; else they are those of M + 1 points without the last, for
    Fourier transforms. layout: ignored. Raises DTypeError for a dtype that is not floating, ValueError for a negative
    M.
    """
    return cosines(HANN)


@window_of
def hamming() -> Weight:
    """0.54 - 0.46 cos(x), x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return cosines([0.54, 0.46])


@window_of
def blackman() -> Weight:
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x), x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return cosines(BLACKMAN)


@window_of
def nuttall() -> Weight:
    """A sum of four cosines with small side lobes, a vector: "Some windows with very good sidelobe behavior" (Nuttall,
    1981).

    M, sym, layout: as of `hann`, as which it raises.
    """
    return cosines(NUTTALL)


@window_of
def bartlett() -> Weight:
    """A triangle, a vector: 1 in the middle, 0 at the ends.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return triangle


@window_of
def cosine() -> Weight:
    """sin(x), x in the middles of equal parts of 0 to pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """

    def weight(n: Tensor, last: int) -> Tensor:
        return sin((n + 0.5) * (math.pi / (last + 1)))

    return weight


@window_of
def exponential(*, center: float | None = None, tau: float = 1.0, sym: bool = True) -> Weight:
    """exp(-|n - center| / tau) at the points n: a vector. center: the middle by default.

    M, sym, layout: as of `hann`, as which it raises; ValueError too for a center of symmetric windows, and unless tau
    is positive.
    """
    if tau <= 0:
        raise ValueError(f"exponential(): tau must be positive, got {tau}")
    if sym and center is not None:
        raise ValueError("exponential(): the center of a symmetric window is its middle; give none")

    def weight(n: Tensor, last: int) -> Tensor:
        return exp((n - (last / 2 if center is None else center)).abs() * (-1 / tau))

    return weight


@window_of
def gaussian(*, std: float = 1.0) -> Weight:
    """exp(-((n - c) / std)**2 / 2) at the points n, c in the middle: a vector.

    M, sym, layout: as of `hann`, as which it raises; ValueError too unless std is positive.
    """
    if std <= 0:
        raise ValueError(f"gaussian(): std must be positive, got {std}")

    def weight(n: Tensor, last: int) -> Tensor:
        return exp(square((n - last / 2) / std) * -0.5)

    return weight


@window_of
def kaiser(*, beta: float = 12.0) -> Weight:
    """I0(beta sqrt(1 - x**2)) / I0(beta), x from -1 to 1 (Kaiser and Schafer, 1980): a vector.

    M, sym, layout: as of `hann`, as which it raises; ValueError too for beta < 0.
    """
    if beta < 0:
        raise ValueError(f"kaiser(): beta must not be negative, got {beta}")
    return of_kaiser(beta)


check_functions(globals())
