"""Operators and elementwise ops as methods. Each is the function of the same name in `norch.ops`."""

from __future__ import annotations

from ..ops.elementwise import arithmetic as elementwise
from ..ops.elementwise import composites as composite
from ..ops.elementwise import gamma, special
from ..ops.matrix import matmul as linalg
from ..ops.nn import activation
from .inplace import inplace


class ElementwiseMethods:
    __slots__ = ()

    # --- Arithmetic ---
    __add__ = elementwise._add
    __radd__ = elementwise._add
    __sub__ = elementwise._sub
    __rsub__ = elementwise.rsub
    __mul__ = elementwise.mul
    __rmul__ = elementwise.mul
    __truediv__ = elementwise._div
    __rtruediv__ = elementwise.rdiv
    __floordiv__ = elementwise.floor_divide
    __rfloordiv__ = elementwise.rfloor_divide
    __mod__ = elementwise.remainder
    __rmod__ = elementwise.rremainder
    __pow__ = elementwise._pow
    __rpow__ = elementwise.rpow
    __matmul__ = linalg.matmul
    __rmatmul__ = linalg.rmatmul
    __neg__ = elementwise.neg
    __pos__ = elementwise.positive
    __abs__ = elementwise.abs

    add = elementwise.add
    sub = subtract = elementwise.sub
    mul = multiply = elementwise.mul
    div = divide = true_divide = elementwise.div
    floor_divide = elementwise.floor_divide
    remainder = elementwise.remainder
    fmod = composite.fmod
    pow = elementwise.pow
    float_power = composite.float_power
    atan2 = arctan2 = elementwise.atan2
    maximum = elementwise.maximum
    minimum = elementwise.minimum
    fmax = composite.fmax
    fmin = composite.fmin
    hypot = composite.hypot
    logaddexp = composite.logaddexp
    lerp = composite.lerp
    addcmul = composite.addcmul
    addcdiv = composite.addcdiv
    copysign = special.copysign
    gcd = special.gcd
    heaviside = special.heaviside
    lcm = special.lcm
    ldexp = special.ldexp
    logaddexp2 = special.logaddexp2
    xlogy = special.xlogy

    __iadd__ = inplace(elementwise._add, "__iadd")
    __isub__ = inplace(elementwise._sub, "__isub")
    __imul__ = inplace(elementwise.mul, "__imul")
    __itruediv__ = inplace(elementwise._div, "__itruediv")
    __ifloordiv__ = inplace(elementwise.floor_divide, "__ifloordiv")
    __imod__ = inplace(elementwise.remainder, "__imod")
    __ipow__ = inplace(elementwise._pow, "__ipow")
    add_ = inplace(elementwise.add)
    sub_ = subtract_ = inplace(elementwise.sub)
    mul_ = multiply_ = inplace(elementwise.mul)
    div_ = divide_ = true_divide_ = inplace(elementwise.div)
    floor_divide_ = inplace(elementwise.floor_divide)
    remainder_ = inplace(elementwise.remainder)
    pow_ = inplace(elementwise.pow)
    lerp_ = inplace(composite.lerp)
    addcmul_ = inplace(composite.addcmul)
    addcdiv_ = inplace(composite.addcdiv)
    fmod_ = inplace(composite.fmod)
    float_power_ = inplace(composite.float_power)
    atan2_ = arctan2_ = inplace(elementwise.atan2)
    hypot_ = inplace(composite.hypot)
    copysign_ = inplace(special.copysign)
    gcd_ = inplace(special.gcd)
    heaviside_ = inplace(special.heaviside)
    lcm_ = inplace(special.lcm)
    ldexp_ = inplace(special.ldexp)
    xlogy_ = inplace(special.xlogy)

    # --- Comparisons, logic, bits ---
    __eq__ = elementwise.eq  # type: ignore[assignment]
    __hash__ = object.__hash__  # by identity; a class that has __eq__ would else have none
    __ne__ = elementwise.ne  # type: ignore[assignment]
    __lt__ = elementwise.lt
    __le__ = elementwise.le
    __gt__ = elementwise.gt
    __ge__ = elementwise.ge
    __and__ = elementwise.bitwise_and
    __rand__ = elementwise.rand_
    __or__ = elementwise.bitwise_or
    __ror__ = elementwise.ror_
    __xor__ = elementwise.bitwise_xor
    __rxor__ = elementwise.rxor_
    __lshift__ = elementwise.bitwise_left_shift
    __rlshift__ = elementwise.rlshift_
    __rshift__ = elementwise.bitwise_right_shift
    __rrshift__ = elementwise.rrshift_
    __invert__ = elementwise.bitwise_not
    __iand__ = inplace(elementwise.bitwise_and, "__iand")
    __ior__ = inplace(elementwise.bitwise_or, "__ior")
    __ixor__ = inplace(elementwise.bitwise_xor, "__ixor")
    __ilshift__ = inplace(elementwise.bitwise_left_shift, "__ilshift")
    __irshift__ = inplace(elementwise.bitwise_right_shift, "__irshift")
    eq = elementwise.eq
    ne = not_equal = elementwise.ne
    lt = less = elementwise.lt
    le = less_equal = elementwise.le
    gt = greater = elementwise.gt
    ge = greater_equal = elementwise.ge
    equal = composite.equal
    isclose = composite.isclose
    allclose = composite.allclose
    logical_not = composite.logical_not
    logical_and = composite.logical_and
    logical_or = composite.logical_or
    logical_xor = composite.logical_xor
    bitwise_and = elementwise.bitwise_and
    bitwise_or = elementwise.bitwise_or
    bitwise_xor = elementwise.bitwise_xor
    bitwise_not = elementwise.bitwise_not
    bitwise_left_shift = elementwise.bitwise_left_shift
    bitwise_right_shift = elementwise.bitwise_right_shift
    logical_not_ = inplace(composite.logical_not)
    logical_and_ = inplace(composite.logical_and)
    logical_or_ = inplace(composite.logical_or)
    logical_xor_ = inplace(composite.logical_xor)
    eq_ = inplace(elementwise.eq)
    ne_ = not_equal_ = inplace(elementwise.ne)
    lt_ = less_ = inplace(elementwise.lt)
    le_ = less_equal_ = inplace(elementwise.le)
    gt_ = greater_ = inplace(elementwise.gt)
    ge_ = greater_equal_ = inplace(elementwise.ge)
    bitwise_and_ = inplace(elementwise.bitwise_and)
    bitwise_or_ = inplace(elementwise.bitwise_or)
    bitwise_xor_ = inplace(elementwise.bitwise_xor)
    bitwise_not_ = inplace(elementwise.bitwise_not)
    bitwise_left_shift_ = inplace(elementwise.bitwise_left_shift)
    bitwise_right_shift_ = inplace(elementwise.bitwise_right_shift)
    isnan = composite.isnan
    isinf = composite.isinf
    isfinite = composite.isfinite
    isposinf = special.isposinf
    isneginf = special.isneginf
    isreal = special.isreal
    signbit = special.signbit
    nan_to_num = composite.nan_to_num
    nan_to_num_ = inplace(composite.nan_to_num)

    # --- Functions of one variable ---
    neg = negative = elementwise.neg
    positive = elementwise.positive
    abs = absolute = elementwise.abs
    sign = elementwise.sign
    exp = elementwise.exp
    expm1 = elementwise.expm1
    log = elementwise.log
    log1p = elementwise.log1p
    log2 = elementwise.log2
    log10 = elementwise.log10
    sqrt = elementwise.sqrt
    rsqrt = composite.rsqrt
    reciprocal = composite.reciprocal
    square = composite.square
    sin = elementwise.sin
    cos = elementwise.cos
    tan = elementwise.tan
    asin = arcsin = elementwise.asin
    acos = arccos = elementwise.acos
    atan = arctan = elementwise.atan
    sinh = elementwise.sinh
    cosh = elementwise.cosh
    tanh = elementwise.tanh
    asinh = arcsinh = elementwise.asinh
    acosh = arccosh = elementwise.acosh
    atanh = arctanh = elementwise.atanh
    sigmoid = elementwise.sigmoid
    erf = elementwise.erf
    floor = elementwise.floor
    ceil = elementwise.ceil
    trunc = fix = elementwise.trunc
    frac = composite.frac
    round = elementwise.round
    deg2rad = composite.deg2rad
    rad2deg = composite.rad2deg
    erfc = special.erfc
    erfinv = special.erfinv
    exp2 = special.exp2
    logit = special.logit
    lgamma = gamma.lgamma
    digamma = gamma.digamma
    sgn = special.sgn
    sinc = special.sinc
    clamp = clip = composite.clamp
    clamp_min = composite.clamp_min
    clamp_max = composite.clamp_max

    neg_ = negative_ = inplace(elementwise.neg)
    abs_ = absolute_ = inplace(elementwise.abs)
    sign_ = inplace(elementwise.sign)
    exp_ = inplace(elementwise.exp)
    expm1_ = inplace(elementwise.expm1)
    log_ = inplace(elementwise.log)
    log1p_ = inplace(elementwise.log1p)
    log2_ = inplace(elementwise.log2)
    log10_ = inplace(elementwise.log10)
    sqrt_ = inplace(elementwise.sqrt)
    rsqrt_ = inplace(composite.rsqrt)
    reciprocal_ = inplace(composite.reciprocal)
    square_ = inplace(composite.square)
    sin_ = inplace(elementwise.sin)
    cos_ = inplace(elementwise.cos)
    tan_ = inplace(elementwise.tan)
    asin_ = arcsin_ = inplace(elementwise.asin)
    acos_ = arccos_ = inplace(elementwise.acos)
    atan_ = arctan_ = inplace(elementwise.atan)
    sinh_ = inplace(elementwise.sinh)
    cosh_ = inplace(elementwise.cosh)
    tanh_ = inplace(elementwise.tanh)
    asinh_ = arcsinh_ = inplace(elementwise.asinh)
    acosh_ = arccosh_ = inplace(elementwise.acosh)
    atanh_ = arctanh_ = inplace(elementwise.atanh)
    sigmoid_ = inplace(elementwise.sigmoid)
    erf_ = inplace(elementwise.erf)
    erfc_ = inplace(special.erfc)
    erfinv_ = inplace(special.erfinv)
    exp2_ = inplace(special.exp2)
    logit_ = inplace(special.logit)
    lgamma_ = inplace(gamma.lgamma)
    digamma_ = inplace(gamma.digamma)
    sgn_ = inplace(special.sgn)
    sinc_ = inplace(special.sinc)
    deg2rad_ = inplace(composite.deg2rad)
    rad2deg_ = inplace(composite.rad2deg)
    frac_ = inplace(composite.frac)
    floor_ = inplace(elementwise.floor)
    ceil_ = inplace(elementwise.ceil)
    trunc_ = fix_ = inplace(elementwise.trunc)
    round_ = inplace(elementwise.round)
    clamp_ = clip_ = inplace(composite.clamp)
    clamp_min_ = inplace(composite.clamp_min)
    clamp_max_ = inplace(composite.clamp_max)

    # --- Activations ---
    hardshrink = activation.hardshrink
    prelu = activation.prelu
    relu = activation.relu
    softmax = activation.softmax
    log_softmax = activation.log_softmax
    relu_ = inplace(activation.relu)
