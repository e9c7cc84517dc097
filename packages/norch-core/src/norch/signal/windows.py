"""Window functions: weights that fall off towards both ends of a stretch of a signal.

Each gives M weights, a vector of the default dtype unless `dtype` is given. sym: whether they are symmetric; else they
are those of M + 1 points without the last, for Fourier transforms. `layout` is ignored. All raise DTypeError for a
dtype that is not floating and ValueError for a negative M.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import check_functions
from ..ops import exp, sin, square
from .weights import BLACKMAN, HANN, NUTTALL, cosines, of_kaiser, triangle, window

if TYPE_CHECKING:
    from ..tensor import Tensor


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """a[0] - a[1] cos(x) + a[2] cos(2 x) - ..., x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises; ValueError where a is empty too.
    """
    factors = list(a)
    if not factors:
        raise ValueError("general_cosine(): a must not be empty")
    return window("general_cosine", M, sym, dtype, device, cosines(factors), requires_grad)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) cos(x), x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return window("general_hamming", M, sym, dtype, device, cosines([alpha, 1 - alpha]), requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.5 - 0.5 cos(x), x from 0 to 2 pi: a vector.

    M: how many weights. sym: whether they are symmetric; else they are those of M + 1 points without the last, for
    Fourier transforms. layout: ignored. Raises DTypeError for a dtype that is not floating, ValueError for a negative
    M.
    """
    return window("hann", M, sym, dtype, device, cosines(HANN), requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.54 - 0.46 cos(x), x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return window("hamming", M, sym, dtype, device, cosines([0.54, 0.46]), requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x), x from 0 to 2 pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return window("blackman", M, sym, dtype, device, cosines(BLACKMAN), requires_grad)


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A sum of four cosines with small side lobes, a vector: "Some windows with very good sidelobe behavior" (Nuttall,
    1981).

    M, sym, layout: as of `hann`, as which it raises.
    """
    return window("nuttall", M, sym, dtype, device, cosines(NUTTALL), requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A triangle, a vector: 1 in the middle, 0 at the ends.

    M, sym, layout: as of `hann`, as which it raises.
    """
    return window("bartlett", M, sym, dtype, device, triangle, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """sin(x), x in the middles of equal parts of 0 to pi: a vector.

    M, sym, layout: as of `hann`, as which it raises.
    """

    def weight(n: Tensor, last: int) -> Tensor:
        return sin((n + 0.5) * (math.pi / (last + 1)))

    return window("cosine", M, sym, dtype, device, weight, requires_grad)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
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

    return window("exponential", M, sym, dtype, device, weight, requires_grad)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-((n - c) / std)**2 / 2) at the points n, c in the middle: a vector.

    M, sym, layout: as of `hann`, as which it raises; ValueError too unless std is positive.
    """
    if std <= 0:
        raise ValueError(f"gaussian(): std must be positive, got {std}")

    def weight(n: Tensor, last: int) -> Tensor:
        return exp(square((n - last / 2) / std) * -0.5)

    return window("gaussian", M, sym, dtype, device, weight, requires_grad)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta sqrt(1 - x**2)) / I0(beta), x from -1 to 1 (Kaiser and Schafer, 1980): a vector.

    M, sym, layout: as of `hann`, as which it raises; ValueError too for beta < 0.
    """
    if beta < 0:
        raise ValueError(f"kaiser(): beta must not be negative, got {beta}")
    return window("kaiser", M, sym, dtype, device, of_kaiser(beta), requires_grad)


check_functions(globals())
