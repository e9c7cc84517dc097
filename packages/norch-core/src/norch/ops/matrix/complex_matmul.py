"""Products of matrices of complex numbers kept as pairs: real and imaginary parts along a last dim of size 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dispatch.plan import Inferred
from ...errors import ShapeError
from ...spec import Spec
from ..families import composite, floating
from ..shape.joining import stack
from ..shape.views import select_dim, transpose
from .matmul import matmul

if TYPE_CHECKING:
    from ...tensor import Tensor


def _infer(a: Spec, b: Spec, adjoint_a: bool, adjoint_b: bool) -> Inferred:
    shapes = [s.shape for s in (a, b)]
    if any(len(shape) < 3 or shape[-1] != 2 for shape in shapes) or a.shape[:-3] != b.shape[:-3]:
        raise ShapeError(f"complex_matmul(): expected matrices of pairs, as many of each, got shapes {shapes}")
    (m, k), (inner, n) = [
        s[-3:-1][::-1] if adj else s[-3:-1] for s, adj in zip(shapes, (adjoint_a, adjoint_b), strict=True)
    ]
    if k != inner:
        raise ShapeError(f"complex_matmul(): the product of shapes {shapes} sums over {k} and {inner} elements")
    dtype = floating("matmul", a, b)
    out = Spec((*a.shape[:-3], m, n, 2), None, dtype, a.device)
    return Inferred((out,), ((dtype, a.shape), (dtype, b.shape)), {"adjoint_a": adjoint_a, "adjoint_b": adjoint_b})


def _first_vjp(g: Tensor, b: Tensor, adjoint_a: bool, adjoint_b: bool) -> Tensor:
    if adjoint_a:
        return complex_matmul(b, g, adjoint_b, True)
    return complex_matmul(g, b, False, not adjoint_b)


def _second_vjp(g: Tensor, a: Tensor, adjoint_a: bool, adjoint_b: bool) -> Tensor:
    if adjoint_b:
        return complex_matmul(g, a, True, adjoint_a)
    return complex_matmul(a, g, not adjoint_a, False)


@composite(_infer, {"a": _first_vjp, "b": _second_vjp})
def complex_matmul(a: Tensor, b: Tensor, adjoint_a: bool, adjoint_b: bool) -> Tensor:
    """Products of pairs, (*batch, m, k, 2) by (*batch, k, n, 2) -> (*batch, m, n, 2), floating. adjoint_a, adjoint_b:
    whether the conjugate transpose of an operand is multiplied, which then is (*batch, k, m, 2) or (*batch, n, k, 2).

    Raises ShapeError for shapes that do not fit.
    """
    (re, im), (c, d) = _parts(a, adjoint_a), _parts(b, adjoint_b)
    return stack([matmul(re, c) - matmul(im, d), matmul(re, d) + matmul(im, c)], -1)


def _parts(pair: Tensor, adjoint: bool) -> tuple[Tensor, Tensor]:
    re, im = [select_dim(pair, pair.spec.ndim - 1, i) for i in (0, 1)]
    return (transpose(re, -2, -1), -transpose(im, -2, -1)) if adjoint else (re, im)
