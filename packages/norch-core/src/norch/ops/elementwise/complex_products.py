"""Products and sizes of complex numbers kept as pairs: real and imaginary parts along a last dim of size 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.plan import Inferred
from ...errors import ShapeError
from ...spec import Spec, broadcast_shapes
from ..families import composite, floating, infer_elementwise
from ..shape.joining import stack
from ..shape.views import select_dim, unsqueeze
from .arithmetic import eq, where
from .composites import hypot

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer(a: Spec, b: Spec, conj: bool) -> Inferred:
    if a.shape[-1:] != (2,) or b.shape[-1:] != (2,):
        raise ShapeError(f"complex_mul(): expected pairs along the last dim, got shapes {a.shape} and {b.shape}")
    dtype, shape = floating("mul", a, b), broadcast_shapes(a.shape, b.shape, op="mul")
    return Inferred((Spec(shape, None, dtype, a.device),), ((dtype, shape), (dtype, shape)), {"conj": conj})


def _first_vjp(g: Tensor, b: Tensor, conj: bool) -> Tensor:
    return complex_mul(g, b, not conj)


def _second_vjp(g: Tensor, a: Tensor, conj: bool) -> Tensor:
    return complex_mul(a, g, True) if conj else complex_mul(g, a, True)


@composite(_infer, {"a": _first_vjp, "b": _second_vjp})
def complex_mul(a: Tensor, b: Tensor, conj: bool) -> Tensor:
    """a b of pairs that broadcast, or a times the conjugate of b."""
    re, im, c, d = [select_dim(x, x.spec.ndim - 1, i) for x in (a, b) for i in (0, 1)]
    if conj:
        return stack([re * c + im * d, im * c - re * d], -1)
    return stack([re * c - im * d, re * d + im * c], -1)


def _infer_abs(pair: Spec) -> Spec:
    part = Spec(pair.shape[:-1], pair.strides[:-1], pair.dtype, pair.device)
    return infer_elementwise("abs", (part,)).outputs[0]


def _abs_rule(g: Tensor, pair: Tensor, y: Tensor) -> Tensor:
    return pair / unsqueeze(where(eq(y, 0), 1.0, y), -1) * unsqueeze(g, -1)


@composite(_infer_abs, _abs_rule)
def complex_abs(pair: Tensor) -> Tensor:
    """sqrt(real**2 + imaginary**2) of pairs, without overflow; its gradient at 0 is 0."""
    re, im = [select_dim(pair, pair.spec.ndim - 1, i) for i in (0, 1)]
    return hypot(re, im)
