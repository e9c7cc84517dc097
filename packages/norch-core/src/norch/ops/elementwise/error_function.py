"""erfc and erfinv, the relatives of the error function. Composites."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...dtype import float64
from ..families import composite
from ..registry import public
from ..upcast import upcast
from .arithmetic import abs as absolute
from .arithmetic import eq, erf, exp, log1p, lt, sqrt, where
from .composites import isinf
from .special import as_floating, copysign, infer_unary, polynomial

if TYPE_CHECKING:
    from ...tensor import Tensor

# log(erfc(x) exp(x**2) / t) as a polynomial in 2 t - 1, where t = 2 / (2 + x): interpolated at Chebyshev's points.
# By descending power; the shorter one is right to 6e-9, the longer to 4e-15.
_ERFC_FLOAT32 = (
    1.3371503491274448e-05, -8.7283810216884778e-05, -3.2113772312125475e-05, 0.00057376637200504707,
    -0.00018278214171601269, -0.0022887652385930059, 0.0017706661186296711, 0.008808825369385995,
    -0.009874534918291376, -0.046893640559962625, 0.047343417521067507, 0.67264315477454295, -0.67179408515172145,
)  # fmt: skip
_ERFC_FLOAT64 = (
    -1.2776086555480389e-08, 2.9805133645356904e-08, 7.7455724090583775e-08, -2.8956265674471434e-07,
    -4.1468537554301974e-08, 1.2833949153590487e-06, -1.4094459914223091e-06, -2.9634842309636684e-06,
    8.662535397465155e-06, 1.3989370477956789e-07, -3.0237840540065049e-05, 3.1746935423270395e-05,
    7.1418104334220448e-05, -0.00017430412986925862, -9.3738947676672246e-05, 0.00067367913525688604,
    -0.0001462462874212842, -0.0023458125529958935, 0.001758933507402803, 0.0088249385613123257,
    -0.0098726893640992217, -0.046895610231328919, 0.047343306841863518, 0.6726432239776583, -0.67179408405669216,
)  # fmt: skip
_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _erfc_rule(g: Tensor, input: Tensor) -> Tensor:
    return g * (exp(-(input * input)) * -_TWO_OVER_ROOT_PI)


@composite(infer_unary("erfc"), _erfc_rule, name="erfc")
def _erfc(input: Tensor) -> Tensor:
    x = upcast(input)
    size = absolute(x)
    t: Tensor = 2 / (size + 2)
    tail = t * exp(polynomial(t * 2 - 1, _ERFC_FLOAT64 if x.spec.dtype is float64 else _ERFC_FLOAT32) - size * size)
    # 1 - erf is exact to rounding where erfc is not small.
    out = where(lt(x, 0.5), 1 - erf(x), where(isinf(size), 0.0, tail))
    return out.to(input.spec.dtype)


@public(inplace=True)
def erfc(input: Tensor) -> Tensor:
    """1 - erf(input), as exact for large input as for small. Integers and bools give the default dtype."""
    return _erfc(as_floating(input))


# erfinv(x) / x in w - 2.5 for w = -log(1 - x**2) < 5, and in sqrt(w) - 3 above (Giles, "Approximating the erfinv
# function", 2011), by descending power: Chebyshev's interpolations right to 7e-9 for float32, and for float64 those of
# Giles, right to 2e-7 for w < 16, with another in sqrt(w) - 5 above.
_ERFINV_FLOAT32 = (
    (
        -8.94141405e-09, 2.32648001e-08, 4.68266973e-07, -3.46309307e-06, -4.97306967e-06, 0.000218345887,
        -0.00125272523, -0.00417738847, 0.246640278, 1.50140936,
    ),
    (
        0.000130970294, -0.000321171991, -7.87915239e-05, 0.00149881633, -0.00358626702, 0.00568204909, -0.00763948628,
        0.0094458209, 1.00167509, 2.83297679,
    ),
)  # fmt: skip
_ERFINV_FLOAT64 = (
    (
        2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
        0.246640727, 1.50140941,
    ),
    (
        -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
        1.00167406, 2.83297682,
    ),
)  # fmt: skip
_ERFINV_FAR = (
    4.66369701e-06, -2.17170677e-05, 7.62205061e-05, -0.000213917679, -0.000138848524, 1.01030032, 4.84990641
)  # fmt: skip


def _erfinv_rule(g: Tensor, input: Tensor) -> Tensor:
    y = _erfinv(input)
    return g * (exp(y * y) / _TWO_OVER_ROOT_PI)


@composite(infer_unary("erfinv"), _erfinv_rule, name="erfinv")
def _erfinv(input: Tensor) -> Tensor:
    x = upcast(input)
    size = absolute(x)
    w = -(log1p(-size) + log1p(size))
    root = sqrt(where(w < 5, 5.0, w)) - 3
    centre, tail = _ERFINV_FLOAT64 if x.spec.dtype is float64 else _ERFINV_FLOAT32
    outer = polynomial(root, tail)
    if x.spec.dtype is float64:
        outer = where(w < 16, outer, polynomial(root - 2, _ERFINV_FAR))
    y = where(w < 5, polynomial(w - 2.5, centre), outer) * size
    if x.spec.dtype is float64:
        # Two of Newton's steps: on erf for small input, else on erfc, which 1 - x is exact for.
        for _ in range(2):
            off = where(size < 0.5, size - erf(y), _erfc(y) - (1 - size))
            y = y + off * exp(y * y) / _TWO_OVER_ROOT_PI
    return copysign(where(eq(size, 1), math.inf, y), x).to(input.spec.dtype)


@public(inplace=True)
def erfinv(input: Tensor) -> Tensor:
    """The inverse of erf: infinite at -1 and 1, NaN beyond. Integers and bools give the default dtype.

    By approximations as those of Giles (2011), with two steps of Newton's method in float64.
    """
    return _erfinv(as_floating(input))
