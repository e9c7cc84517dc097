"""The exponential of matrices."""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

from ..dtype import float32
from ..ops import eye, where
from .host import check_matrices, of_all_samples

if TYPE_CHECKING:
    from ..tensor import Tensor

# Degrees of Taylor's polynomial, and the 1-norm up to which each is exact to half a unit in the last place: P. Bader,
# S. Blanes and F. Casas, "Computing the matrix exponential with an optimized Taylor polynomial approximation" (2019).
_DEGREES = 4, 8, 12, 18
_SINGLE = 5.116619363445086e-02, 5.800524627688768e-01, 1.461661507209034, 3.010066362817634
_DOUBLE = 3.397168839976962e-04, 4.991228871115323e-02, 2.996158913811580e-01, 1.090863719290036


def _polynomial(a: Tensor, degree: int) -> Tensor:
    """Taylor's polynomial, by M. Paterson and L. Stockmeyer's few products."""
    step = 2 if degree < 8 else 4
    powers = [eye(a.shape[-1], dtype=a.dtype, device=a.device), a]
    while len(powers) <= step:
        powers.append(powers[-1] @ a)

    def part(first: int) -> Tensor:
        count = min(step, degree + 1 - first)
        terms = [powers[i] * (1 / math.factorial(first + i)) for i in range(count)]
        return reduce(lambda x, y: x + y, reversed(terms))

    starts = range(0, degree + 1, step)
    return reduce(lambda out, first: out @ powers[step] + part(first), reversed(starts[:-1]), part(starts[-1]))


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices A (..., n, n), by Taylor's polynomial of A divided by a power of 2, squared as
    often. It waits for the largest norm. 16-bit floats are computed in float32. Raises ShapeError unless they are
    square, DTypeError unless floating.
    """
    if A.dtype.is_floating_point and A.dtype.itemsize < 4:
        return matrix_exp(A.float()).to(A.dtype)
    check_matrices("matrix_exp", A)
    if not A.numel():
        return A.clone()
    norms = A.detach().abs().sum(-2).amax(-1)
    largest = 0.0 if A.is_meta else of_all_samples(where(norms.isfinite(), norms, 0.0)).max().item()
    for degree, bound in zip(_DEGREES, _SINGLE if A.dtype is float32 else _DOUBLE, strict=True):
        if largest <= bound:
            return _polynomial(A, degree)
    halvings = (norms / bound).log2().ceil().clamp(min=0.0)[..., None, None]
    out = _polynomial(A * (-halvings).exp2(), degree)
    several = of_all_samples(A).ndim > 2
    for i in range(math.ceil(math.log2(largest / bound))):
        out = where(halvings > i, out @ out, out) if several else out @ out
    return out
