"""Functions of complex numbers by name: the methods of a `ComplexPair` that are not of its class, and what norch's
functions of that name give for one.
"""

from __future__ import annotations

import itertools
import math
from functools import partial, reduce
from importlib import import_module
from string import ascii_letters
from typing import TYPE_CHECKING, Any

from .. import ops
from ..dispatch.arguments import describe
from ..dtype import complex64, complex128
from ..errors import DTypeError, ShapeError
from ..ops import broadcast_tensors, where
from ..ops.families import has_kernel
from ..ops.matrix.complex_matmul import complex_matmul
from ..spec import broadcast_shapes
from ..tensor import Tensor
from .complex_linalg import LINALG, matrix_norm
from .complex_more import MORE
from .complex_numbers import ComplexPair, joined, parts_of, tensors_of
from .complex_solving import SOLVING
from .complex_sums import SUMS

if TYPE_CHECKING:
    from collections.abc import Callable


# --- Elementwise, by their parts (Abramowitz and Stegun, sections 3.7, 3.8, 4.1, 4.3 and 4.5) ------------------------


def _log(z: ComplexPair) -> ComplexPair:
    return joined(z.abs().log(), z.angle())


def _sqrt(z: ComplexPair) -> ComplexPair:
    """The root whose real part is not negative."""
    size = ((z.abs() + z.real.abs()) / 2).sqrt()
    other = z.imag / where(size > 0, 2 * size, 1.0)
    right = z.real >= 0
    return joined(where(right, size, other.abs()), where(right, other, ops.copysign(size, z.imag)))


def _pow(input: Any, exponent: Any) -> ComplexPair:
    if isinstance(exponent, float) and exponent.is_integer() and abs(exponent) < 64:
        exponent = int(exponent)
    if isinstance(exponent, int):
        if exponent < 0:
            return 1 / _pow(input, -exponent)  # type: ignore[no-any-return]
        if exponent == 0:
            return _like("ones_like", input)  # type: ignore[no-any-return]
        half = input if exponent < 2 else _pow(input, exponent // 2)
        square = half if exponent < 2 else half * half
        return square * input if exponent > 1 and exponent % 2 else square
    if not isinstance(input, ComplexPair):
        re, im = parts_of(input)
        base = re if isinstance(re, Tensor) else exponent.real.new_tensor(re)
        input = joined(base, base * 0 + im)
    return (_log(input) * exponent).exp()  # type: ignore[no-any-return]


def _sin(z: ComplexPair) -> ComplexPair:
    a, b = z.real, z.imag
    return joined(a.sin() * b.cosh(), a.cos() * b.sinh())


def _cos(z: ComplexPair) -> ComplexPair:
    a, b = z.real, z.imag
    return joined(a.cos() * b.cosh(), -a.sin() * b.sinh())


def _sinh(z: ComplexPair) -> ComplexPair:
    a, b = z.real, z.imag
    return joined(a.sinh() * b.cos(), a.cosh() * b.sin())


def _cosh(z: ComplexPair) -> ComplexPair:
    a, b = z.real, z.imag
    return joined(a.cosh() * b.cos(), a.sinh() * b.sin())


def _tanh(z: ComplexPair) -> ComplexPair:
    t, u = z.real.tanh(), z.imag.tan()
    below = 1 + t * t * u * u
    return joined(t * (1 + u * u) / below, u * (1 - t * t) / below)


def _tan(z: ComplexPair) -> ComplexPair:
    turned = _tanh(z * 1j)
    return joined(turned.imag, -turned.real)


def _sgn(z: ComplexPair) -> ComplexPair:
    size = z.abs()
    return z / where(size > 0, size, 1.0)  # type: ignore[no-any-return]


# --- Comparisons ------------------------------------------------------------------------------------------------------


def _eq(input: Any, other: Any) -> Tensor:
    (a, b), (c, d) = parts_of(input), parts_of(other)
    return (a == c) & (b == d)  # type: ignore[no-any-return]


def _ne(input: Any, other: Any) -> Tensor:
    return ~_eq(input, other)


def _isclose(input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose(): rtol and atol must not be negative, got {rtol} and {atol}")
    error = (input - other).abs()
    near: Tensor = (error <= atol + rtol * ops.abs(other)) & error.isfinite() | _eq(input, other)
    return near | (ops.isnan(input) & ops.isnan(other)) if equal_nan else near


def _equal(input: Any, other: Any) -> bool:
    return input.shape == other.shape and bool(_eq(input, other).all())


def _isnan(z: ComplexPair) -> Tensor:
    return z.pair.isnan().any(-1)


# --- Reductions -------------------------------------------------------------------------------------------------------


def _prod(z: ComplexPair, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if dtype is not None:
        return ops.prod(z.to(dtype), dim, keepdim)
    numbers, at = (z.reshape(-1), -1) if dim is None or not z.ndim else (z, dim)
    many = numbers.unbind(at)
    product = reduce(ComplexPair.__mul__, many) if many else ComplexPair(numbers.sum(at).pair) + 1
    return product.unsqueeze(at) if keepdim and dim is not None and z.ndim else product


def _var(z: ComplexPair, *args: Any, **kwargs: Any) -> Tensor:
    return z.real.var(*args, **kwargs) + z.imag.var(*args, **kwargs)


def _vector_norm(z: ComplexPair, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
    z = z if dtype is None else z.to(dtype)
    return import_module("norch.linalg").vector_norm(z.abs(), *args, **kwargs)  # type: ignore[no-any-return]


def _norm(z: ComplexPair, p: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """As `norch.norm`: of the magnitudes, and of singular values for "nuc" alone."""
    if p == "nuc":
        return _matrix_norm(z, p, (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    return _vector_norm(z, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)


def _matrix_norm(
    A: ComplexPair, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    return matrix_norm(A if dtype is None else A.to(dtype), ord, dim, keepdim)


# --- Products ---------------------------------------------------------------------------------------------------------


def _multilinear(name: str, operands: Any, call: Callable[..., Tensor]) -> ComplexPair:
    """What is linear in each operand: the sum over all choices of a part of each, times i for each imaginary one."""
    sums: list[Any] = [None, None]
    choices = [parts_of(z)[:2] if isinstance(z, ComplexPair) else (z,) for z in operands]
    for chosen in itertools.product(*[range(len(parts)) for parts in choices]):
        power = sum(chosen)
        term = call(*[parts[i] for parts, i in zip(choices, chosen, strict=True)])
        before = sums[power % 2]
        term = -term if power % 4 > 1 else term
        sums[power % 2] = term if before is None else before + term
    if sums[0] is None:
        raise DTypeError(f"{name}(): expected a ComplexPair, got {describe(operands[0])}")
    return joined(sums[0], sums[0] * 0 if sums[1] is None else sums[1])


def _product(name: str, input: Any, other: Any, *args: Any, **kwargs: Any) -> ComplexPair:
    function = getattr(ops, name)
    if isinstance(input, ComplexPair) and isinstance(other, ComplexPair):
        if name in ("matmul", "mm", "bmm") and (found := _matrix_product(name, input, other)) is not None:
            return found
        (a, b), (c, d) = parts_of(input), parts_of(other)
        re, im = function(a, c, *args, **kwargs), function(a, d, *args, **kwargs)
        return joined(re - function(b, d, *args, **kwargs), im + function(b, c, *args, **kwargs))
    return _multilinear(name, (input, other), lambda a, b: function(a, b, *args, **kwargs))


def _matrix_product(name: str, input: ComplexPair, other: ComplexPair) -> ComplexPair | None:
    """Of matrices, where there is a kernel, by that, or of two where each product and sum is a launch by one product of
    both parts with both; else None."""
    a, b = input.pair, other.pair
    first, second, ndim = a.spec.shape, b.spec.shape, {"mm": 3, "bmm": 4}.get(name, 0)
    if min(len(first), len(second)) < 3 or (ndim and not len(first) == len(second) == ndim):
        return None
    if first[-2] != second[-3] or a.dtype is not b.dtype or (name == "bmm" and first[0] != second[0]):
        return None
    if first[:-3] != second[:-3]:
        try:
            batch = broadcast_shapes(first[:-3], second[:-3], op=name)
        except ShapeError:
            return None
        a, b = a.expand(*batch, *first[-3:]), b.expand(*batch, *second[-3:])
    if has_kernel(complex_matmul.op, a.spec, b.spec, False, False):  # type: ignore[attr-defined]
        return ComplexPair(complex_matmul(a, b, False, False))
    if a.spec.ndim != 3 or a.spec.device.type == "cpu":
        return None
    (m, k), (left, right) = first[:2], [z.permute(2, 0, 1) for z in (a, b)]
    by_re, by_im = ops.matmul(left.reshape(2 * m, k), right)
    return joined(by_re[:m] - by_im[m:], by_im[:m] + by_re[m:])


def _vdot(input: Any, other: Any) -> ComplexPair:
    return _product("dot", input.conj() if isinstance(input, ComplexPair) else input, other)


def _einsum(equation: str, *operands: Any) -> ComplexPair:
    """Of one or two pairs by one sum over real numbers, in which the parts of each are a dim more."""
    given = operands[0] if len(operands) == 1 and isinstance(operands[0], list | tuple) else operands
    which = [i for i, z in enumerate(given) if isinstance(z, ComplexPair)]
    terms, arrow, output = equation.partition("->")
    names = terms.split(",")
    if not arrow or not 1 <= len(which) <= 2 or len(names) != len(given):
        return _multilinear("einsum", given, partial(ops.einsum, equation))
    parts = [c for c in ascii_letters if c not in equation][: len(which)]
    for i, part in zip(which, parts, strict=True):
        names[i] += part
    tensors = [z.pair if isinstance(z, ComplexPair) else z for z in given]
    try:
        found = ops.einsum(f"{','.join(names)}->{output}{''.join(parts)}", *tensors)
    except ShapeError:  # of which the equation that was given says more
        return _multilinear("einsum", given, partial(ops.einsum, equation))
    if len(which) == 1:
        return ComplexPair(found)
    return joined(found[..., 0, 0] - found[..., 1, 1], found[..., 0, 1] + found[..., 1, 0])


# --- Elements ---------------------------------------------------------------------------------------------------------


def _of_list(name: str, tensors: Any, *args: Any, **kwargs: Any) -> ComplexPair:
    """`cat`, `stack` and their kind."""
    re, im = zip(*[tensors_of(z) for z in tensors], strict=True)
    function = getattr(ops, name)
    return joined(function(re, *args, **kwargs), function(im, *args, **kwargs))


def _broadcast(*tensors: Any) -> tuple[Any, ...]:
    parts = broadcast_tensors(*[z.real if isinstance(z, ComplexPair) else z for z in tensors])
    shape = parts[0].shape
    return tuple([z.expand(shape) for z in tensors])


def _where(condition: Tensor, input: Any, other: Any) -> ComplexPair:
    (a, b), (c, d) = parts_of(input), parts_of(other)
    return joined(where(condition, a, c), where(condition, b, d))


def _pad(input: ComplexPair, pad: Any, mode: str = "constant", value: Any = None) -> ComplexPair:
    re, im = parts_of(0.0 if value is None else value)
    return joined(ops.pad(input.real, pad, mode, re), ops.pad(input.imag, pad, mode, im))


def _new(name: str, z: ComplexPair, *args: Any, **kwargs: Any) -> Any:
    kwargs = {"dtype": z.dtype, "device": z.device, **kwargs}
    return import_module("norch.compat.complex_creation").created(name, args, kwargs)


def _like(name: str, *args: Any, **kwargs: Any) -> Any:
    return import_module("norch.compat.complex_creation").like(name, *args, **kwargs)


def _normal_(z: ComplexPair, mean: Any = 0.0, std: float = 1.0, *, generator: Any = None) -> ComplexPair:
    """Draws whose distance from `mean` has the standard deviation `std`: half of its square is each part's."""
    z.pair.normal_(0.0, std * 0.5**0.5, generator=generator)
    return z if mean == 0 else z.add_(mean)


def _uniform_(z: ComplexPair, *bounds: float, generator: Any = None, **named: float) -> ComplexPair:
    """Draws whose parts are each uniform between the bounds, as PyTorch's."""
    z.pair.uniform_(*bounds, generator=generator, **named)
    return z


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": _log, "log2": lambda z: _log(z) / math.log(2), "log10": lambda z: _log(z) / math.log(10),
    "sqrt": _sqrt, "rsqrt": lambda z: 1 / _sqrt(z), "square": lambda z: z * z, "reciprocal": lambda z: 1 / z,
    "sin": _sin, "cos": _cos, "tan": _tan, "sinh": _sinh, "cosh": _cosh, "tanh": _tanh, "sgn": _sgn,
    "sigmoid": lambda z: (_tanh(z * 0.5) + 1) * 0.5, "pow": _pow, "positive": lambda z: z,
    "eq": _eq, "ne": _ne, "isclose": _isclose, "equal": _equal, "isnan": _isnan,
    "allclose": lambda a, b, *args, **kwargs: bool(_isclose(a, b, *args, **kwargs).all()),
    "isfinite": lambda z: z.pair.isfinite().all(-1), "isinf": lambda z: z.pair.isinf().any(-1),
    "bool": lambda z, **kwargs: _ne(z, 0), "any": lambda z, *args, **kwargs: _ne(z, 0).any(*args, **kwargs),
    "all": lambda z, *args, **kwargs: _ne(z, 0).all(*args, **kwargs),
    "nonzero": lambda z, **kwargs: _ne(z, 0).nonzero(**kwargs),
    "count_nonzero": lambda z, dim=None: _ne(z, 0).count_nonzero(dim),
    "prod": _prod, "var": _var, "std": lambda *args, **kwargs: _var(*args, **kwargs).sqrt(),
    "norm": _norm, "vector_norm": _vector_norm, "matrix_norm": _matrix_norm,
    "vdot": _vdot, "einsum": _einsum,
    "stft": lambda *args, **kwargs: import_module("norch.spectral")._stft_of_complex(*args, **kwargs),
    "broadcast_tensors": _broadcast, "where": _where, "pad": _pad,
    "masked_fill": lambda z, mask, value: _where(mask, value, z), "normal_": _normal_, "uniform_": _uniform_,
    "type": lambda z, dtype=None: repr(z.dtype) if dtype is None else z.to(dtype),
    "float": lambda z, **kwargs: z.real.float(**kwargs), "double": lambda z, **kwargs: z.real.double(**kwargs),
    "cfloat": lambda z, **kwargs: z.to(complex64, **kwargs), "cdouble": lambda z, **kwargs: z.to(complex128, **kwargs),
    "expand_as": lambda z, other: z.expand(other.shape), "view_as": lambda z, other: z.reshape(other.shape),
}  # fmt: skip
FUNCTIONS |= MORE | LINALG | SOLVING | SUMS
for _name in ("matmul", "mm", "bmm", "mv", "dot", "inner", "outer", "kron", "tensordot"):
    FUNCTIONS[_name] = partial(_product, _name)
for _name in ("cat", "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack"):
    FUNCTIONS[_name] = partial(_of_list, _name)
for _name in ("empty", "full", "ones", "rand", "randn", "zeros"):
    FUNCTIONS[f"{_name}_like"] = partial(_like, f"{_name}_like")
for _name in ("empty", "full", "ones", "zeros", "tensor"):
    FUNCTIONS[f"new_{_name}"] = partial(_new, _name)
