"""Products of tensors beyond matmul: inner and tensor products, sums of products with an input."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import DTypeError, ShapeError
from ...spec import Shape, as_int, broadcast_shapes, wrap_dim
from ..creation import empty, eye
from ..elementwise.arithmetic import where
from ..families import NUMBER, composite, infer_elementwise
from ..reduction.norms import norm
from ..reduction.reductions import sum as total
from ..registry import public
from ..shape.edges import pad_edges
from ..shape.joining import cat, common_spec
from ..shape.views import broadcast_to, permute, reshape, slice_dim
from ..upcast import upcast
from .matmul import add_product, bmm, check_product, dot, factors_in, matmul, mm, mv, outer

if TYPE_CHECKING:
    from ...dtype import DType
    from ...tensor import Tensor


@public(method=False)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """The products of two tensors summed over dims of both, as one matrix product.

    dims: a number, for the last of `a` and the first of `b`, or two lists of dims, or such a tensor. A size of 1
    broadcasts. Raises ShapeError where the sizes differ, IndexError for a dim out of range.
    """
    if hasattr(dims, "spec"):
        dims = dims.tolist() if dims.spec.numel > 1 else int(dims)
    if isinstance(dims, int):
        left, right = list(range(a.spec.ndim - dims, a.spec.ndim)), list(range(dims))
        if not 0 <= dims <= min(a.spec.ndim, b.spec.ndim):
            raise ShapeError(f"tensordot(): {dims} dims of shapes {tuple(a.spec.shape)} and {tuple(b.spec.shape)}")
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    left = [wrap_dim(d, a.spec.ndim, "tensordot") for d in left]
    right = [wrap_dim(d, b.spec.ndim, "tensordot") for d in right]
    for i, j in zip(left, right):
        n, m = a.spec.shape[i], b.spec.shape[j]
        a = total(a, i, True, dtype=a.spec.dtype) if m == 1 != n else a
        b = total(b, j, True, dtype=b.spec.dtype) if n == 1 != m else b
    sizes, others = [a.spec.shape[d] for d in left], [b.spec.shape[d] for d in right]
    if sizes != others or len(set(left)) != len(left) or len(set(right)) != len(right):
        raise ShapeError(
            f"tensordot(): dims {left} and {right} of shapes {tuple(a.spec.shape)} and {tuple(b.spec.shape)} differ"
        )
    rows = [d for d in range(a.spec.ndim) if d not in left]
    columns = [d for d in range(b.spec.ndim) if d not in right]
    shape, inner_size = [a.spec.shape[d] for d in rows] + [b.spec.shape[d] for d in columns], math.prod(sizes)
    first = reshape(permute(a, [*rows, *left]), (math.prod(shape[: len(rows)]), inner_size))
    second = reshape(permute(b, [*right, *columns]), (inner_size, math.prod(shape[len(rows) :])))
    return reshape(matmul(first, second), shape)


@public()
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors of 3 along `dim`, by default the first of size 3; the two broadcast.

    `linalg.cross` takes the last dim by default. Raises ShapeError where `dim` has another size.
    """
    if dim is None:
        shape = broadcast_shapes(input.spec.shape, other.spec.shape, op="cross")
        dim = shape.index(3) - len(shape) if 3 in shape else -1
    if input.size(dim) != 3 or other.size(dim) != 3:
        raise ShapeError(f"cross(): dim {dim} of shapes {tuple(input.shape)} and {tuple(other.shape)} must be 3")
    if dim >= 0 and input.spec.ndim == other.spec.ndim:
        dim -= input.spec.ndim
    return (_cross if dim < 0 else _cross_of_parts)(input, other, dim)


def _cross_of_parts(input: Tensor, other: Tensor, dim: int) -> Tensor:
    # a[i] * b[i + 1] - a[i + 1] * b[i] is the product's element i + 2.
    return _next(input * _next(other, dim) - _next(input, dim) * other, dim)


def _cross_input(g: Tensor, other: Tensor, dim: int) -> Tensor:
    return _cross(other, g, dim)


def _cross_other(g: Tensor, input: Tensor, dim: int) -> Tensor:
    return _cross(g, input, dim)


@composite(
    lambda input, other, dim: infer_elementwise("cross", (input, other), NUMBER)._replace(attrs={"dim": dim}),
    {"input": _cross_input, "other": _cross_other},
    name="cross_product",
)
def _cross(input: Tensor, other: Tensor, dim: int) -> Tensor:
    return _cross_of_parts(input, other, dim)


_FEW = 1000
"""Elements that one kernel moves around sooner than two copies of parts, which cost less for each element."""


def _next(x: Tensor, dim: int) -> Tensor:
    """Along a dim of 3 the element after each, the first after the last."""
    at = wrap_dim(dim, x.spec.ndim, "cross")
    if x.spec.numel > _FEW:
        return cat([slice_dim(x, at, 1, 2), slice_dim(x, at, 0, 1)], at)
    return pad_edges(x, *_one_on(x.spec.ndim, at), "circular")


@lru_cache(64)
def _one_on(ndim: int, dim: int) -> tuple[Shape, Shape]:
    """What goes before each dim and behind it: of one an element comes from the front to the end."""
    one = tuple([int(d == dim) for d in range(ndim)])
    return tuple([-n for n in one]), one


@public()
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The products summed over the last dims: (..., k), (*, k) -> (..., *). Raises ShapeError where these differ."""
    if not input.spec.ndim or not other.spec.ndim:
        return input * other
    return tensordot(input, other, ([-1], [-1]))


@public()
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """`dot`: norch has no complex dtypes. Raises as dot does."""
    return dot(input, other)


_SHORT, _MANY = 64, 4096
"""From how many products on rows of so few elements are made longer first, on the CPU."""


@public()
def kron(input: Tensor, other: Tensor) -> Tensor:
    """The Kronecker product: each element of input times the whole of other, laid out as blocks. Dtypes promote."""
    ndim = max(input.spec.ndim, other.spec.ndim)
    first = (1,) * (ndim - input.spec.ndim) + tuple(input.spec.shape)
    second = (1,) * (ndim - other.spec.ndim) + tuple(other.spec.shape)
    a = reshape(input, [m for n in first for m in (n, 1)])
    b = reshape(other, [m for n in second for m in (1, n)])
    is_short = ndim and second[-1] < _SHORT and input.spec.device.type == "cpu"
    if is_short and input.spec.numel * other.spec.numel > _MANY:
        a, b = (
            reshape(broadcast_to(x, (*x.spec.shape[:-2], first[-1], second[-1])), (*x.spec.shape[:-2], -1))
            for x in (a, b)
        )
    return reshape(a * b, [n * m for n, m in zip(first, second, strict=True)])


@public()
def matrix_power(input: Tensor, n: int) -> Tensor:
    """A square matrix (..., n, n) multiplied by itself, `n` factors, by squaring; for a negative `n` its inverse.

    Raises ShapeError for other shapes, DTypeError for an `n` that is no int.
    """
    power = as_int(n, "matrix_power", "n")
    if input.spec.ndim < 2 or input.spec.shape[-1] != input.spec.shape[-2]:
        raise ShapeError(f"matrix_power(): expected square matrices, got shape {tuple(input.spec.shape)}")
    if power < 0:
        return matrix_power(input.inverse(), -power)
    if power == 0:
        one = eye(input.spec.shape[-1], dtype=input.spec.dtype, device=input.device)
        return broadcast_to(one, tuple(input.spec.shape)).clone()
    if power == 1:
        return input.clone()
    root = matrix_power(input, power // 2) if power > 3 else input
    out = matmul(root, root)
    return matmul(out, input) if power % 2 else out


# --- beta * input + alpha * product ---------------------------------------------------------------------------------


@public(inplace=True)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec), of shape (m), to which `input` broadcasts. Raises as addmm does."""
    return add_product("addmv", input, mv, mat, vec, beta, alpha)


@public(inplace=True)
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * outer(vec1, vec2), of shape (n, m), to which `input` broadcasts. Raises as addmm does, and
    DTypeError for fractions of integers.
    """
    if any(isinstance(v, float) for v in (beta, alpha)) and not any(
        x.spec.dtype.is_floating_point for x in (input, vec1, vec2)
    ):
        raise DTypeError(f"addr(): of integers beta and alpha must be integers, got {beta} and {alpha}")
    return add_product("addr", input, outer, vec1, vec2, beta, alpha)


@public(inplace=True)
def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: DType | None = None, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2): (b, m, n), to which `input` broadcasts. out_dtype: as of mm.

    Raises as addmm does.
    """
    if out_dtype is not None:
        batch1, batch2 = factors_in(out_dtype, "baddbmm", batch1, batch2)
    return add_product("baddbmm", input, bmm, batch1, batch2, beta, alpha)


@public(inplace=True)
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * input + alpha * bmm(batch1, batch2).sum(0), by one matrix product: (m, n). Raises as addmm does."""
    check_product("addbmm", batch1, 3, batch2, 3)
    b, m, k = batch1.spec.shape
    left, right = reshape(permute(batch1, [1, 0, 2]), (m, b * k)), reshape(batch2, (b * k, batch2.spec.shape[2]))
    return add_product("addbmm", input, mm, left, right, beta, alpha)


# --- Blocks ---------------------------------------------------------------------------------------------------------


@public(method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices (vectors are rows) on the diagonal of a larger one; dtypes promote. Of none (1, 0), as in PyTorch.
    Raises ShapeError above 2 dims.
    """
    given = list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], tuple | list) else list(tensors)
    if not given:
        return empty(1, 0)
    dtype = common_spec([x.spec for x in given], "block_diag").dtype
    blocks = []
    for x in given:
        if x.spec.ndim > 2:
            raise ShapeError(f"block_diag(): expected at most 2 dims, got shape {tuple(x.spec.shape)}")
        block = x if x.spec.ndim == 2 else reshape(x, 1, -1)
        blocks.append(block if block.spec.dtype is dtype else block.to(dtype))
    width = sum(x.spec.shape[1] for x in blocks)
    rows, at = [], 0
    for x in blocks:
        n, m = x.spec.shape
        before = [x.new_zeros(n, at)] if at else []
        behind = [x.new_zeros(n, width - at - m)] if at + m < width else []
        rows.append(cat([*before, x, *behind], 1) if before or behind else x)
        at += m
    return cat(rows, 0)


# --- Distances ------------------------------------------------------------------------------------------------------


@public(inplace=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Each slice along `dim` whose `p`-norm is above `maxnorm` scaled down to it. Shape and dtype kept.

    Raises ShapeError below 2 dims, for p <= 0 and a negative maxnorm; IndexError for a dim out of range.
    """
    at = wrap_dim(dim, input.spec.ndim, "renorm")
    if input.spec.ndim < 2 or p <= 0 or maxnorm < 0:
        raise ShapeError(
            f"renorm(): needs at least 2 dims, p > 0 and maxnorm >= 0; got shape {tuple(input.spec.shape)}, {p}, "
            f"{maxnorm}"
        )
    x = upcast(input)
    size = norm(x, p, [d for d in range(input.spec.ndim) if d != at], True)
    large = size > maxnorm
    return (x * where(large, maxnorm / (where(large, size, 1.0) + 1e-7), 1.0)).to(input.spec.dtype)
