"""The functions of `norch.sparse`."""

from __future__ import annotations

from typing import Any

from ..dtype import as_dtype, int64
from ..errors import DTypeError, ShapeError
from ..ops.creation import zeros
from ..ops.elementwise.arithmetic import exp, log
from ..ops.matrix import matmul as dense_products
from ..spec import wrap_dim, wrap_dims
from ..tensor import Tensor
from .products import SampledProduct, check_operands, product
from .structure import flat_keys, gathered, merged, pick
from .tensor import SparseTensor, make_coo, with_entries


def mm(sparse: Tensor, dense: Tensor, reduce: str = "sum") -> Tensor:
    """The product of two matrices, either or both of them sparse; of two sparse ones it is sparse.

    Gradients flow to the values of the sparse one and to the dense one. reduce: of a sparse and a dense one, what is
    made of the products of a row's stored elements: "sum", "mean", "amax" or "amin". Raises as matmul does, ValueError
    for another `reduce`.
    """
    for x in (sparse, dense):
        if x.left_to is not None:
            return x.left_to("sparse.mm", (sparse, dense, reduce), {})  # type: ignore[no-any-return]
    reduce = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    if reduce != "sum":
        return _reduced(sparse, dense, reduce)
    if not isinstance(sparse, SparseTensor) and not isinstance(dense, SparseTensor):
        return dense_products.mm(sparse, dense)
    if not sparse.spec.ndim == dense.spec.ndim == 2:
        shapes = f"{tuple(sparse.spec.shape)} and {tuple(dense.spec.shape)}"
        raise ShapeError(f"mm(): expected tensors of 2 and 2 dims, got {shapes}")
    return product(sparse, dense, "mm")


def _reduced(sparse: Tensor, dense: Tensor, reduce: str) -> Tensor:
    if reduce not in ("mean", "amax", "amin"):
        raise ValueError(f"mm(): reduce must be sum, mean, amax or amin, got {reduce!r}")
    _sparse(sparse, "mm")
    if isinstance(dense, SparseTensor):
        raise DTypeError(f"mm(): reduce {reduce!r} takes a dense matrix on the right; use to_dense() first")
    check_operands("mm", sparse, dense)
    rows, columns = sparse.places.unbind(0)  # type: ignore[attr-defined]
    products = pick(dense, columns) * sparse.entries.unsqueeze(1)  # type: ignore[attr-defined]
    out = dense.new_zeros((sparse.spec.shape[0], dense.spec.shape[1]))
    at = rows.unsqueeze(1).expand(tuple(products.spec.shape))
    return out.scatter_reduce(0, at, products, reduce, include_self=False)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2), where mat1 (m, k) is sparse. Raises as `norch.addmm`."""
    return dense_products.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1
) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2), at the places of the sparse `input` alone. Raises as matmul does."""
    _sparse(input, "sampled_addmm")
    shape = (mat1.spec.shape[0], mat2.spec.shape[-1])
    if not mat1.spec.ndim == mat2.spec.ndim == 2 or mat1.spec.shape[1] != mat2.spec.shape[0] or shape != input.shape:
        raise ShapeError(
            f"sampled_addmm(): shapes {tuple(mat1.spec.shape)} and {tuple(mat2.spec.shape)} do not match, or not "
            f"{tuple(input.spec.shape)} of input"
        )
    rows, columns = input.places.unbind(0)
    found = SampledProduct.apply(mat1, mat2.t(), rows, columns)
    found = found if alpha == 1 else found * alpha
    return with_entries(input, found if beta == 0 else found + input.entries * beta)


def sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of the stored elements over `dim` (one, several or None): sparse as long as a sparse dim is left.

    Raises IndexError for a dim out of range, DTypeError for a dense tensor.
    """
    _sparse(input, "sum")
    return summed(input, dim, False, None if dtype is None else as_dtype(dtype, "sum"))


def summed(input: SparseTensor, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    chosen = dtype or (input.spec.dtype if input.spec.dtype.is_floating_point else int64)
    n, k = input.spec.ndim, input.sparse_dim()
    dims = wrap_dims(None if dim in ((), []) else dim, n, "sum")
    kept = [d for d in range(k) if d not in dims]
    inner = tuple([d - k + 1 for d in dims if d >= k])
    entries = input.entries.sum(inner, keepdim, dtype=chosen) if inner else input.entries.to(chosen)
    if not kept:
        out = entries.sum(0, dtype=chosen)
        return out.reshape((*(1,) * k, *out.spec.shape)) if keepdim else out
    shape = [1 if d in dims else m for d, m in enumerate(input.spec.shape) if keepdim or d not in dims]
    if len(kept) == k:
        return make_coo(input.places, entries, shape, input.coalesced)
    places = input.places.index_select(0, input.places.new_tensor(kept))
    places, entries = merged(places, entries, [input.spec.shape[d] for d in kept])
    if keepdim:
        rows = [d for d in range(k) if d not in dims]
        full = zeros(k, places.spec.shape[1], dtype=int64, device=places.device)
        places = full.index_copy(0, full.new_tensor(rows), places)
    return make_coo(places, entries, shape, True)


def softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """The softmax along `dim` of the stored elements; what is not stored counts as -inf.

    Raises DTypeError unless floating, IndexError for a dim out of range.
    """
    return _softmax(input, dim, dtype, "softmax")


def log_softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """The logarithm of `softmax`. Raises as it does."""
    return _softmax(input, dim, dtype, "log_softmax")


def _softmax(input: SparseTensor, dim: int, dtype: Any, op: str) -> SparseTensor:
    _sparse(input, op)
    x = input if dtype is None else input.to(as_dtype(dtype, op))
    if not x.spec.dtype.is_floating_point:
        raise DTypeError(f"{op}(): needs a floating dtype, got {x.spec.dtype}; pass dtype")
    at, k = wrap_dim(dim, x.spec.ndim, op), x.sparse_dim()
    x = x if x.coalesced else x.coalesce()
    if at >= k:
        inner = getattr(x.entries, op)(at - k + 1)
        return with_entries(x, inner)
    rest = [d for d in range(k) if d != at]
    sizes = [x.spec.shape[d] for d in rest]
    group = flat_keys(x.places.index_select(0, x.places.new_tensor(rest)), sizes) if rest else x.places.select(0, 0) * 0
    groups = 1
    for n in sizes:
        groups *= n
    entries = x.entries
    if not x._nnz():
        return x
    with_dense = group.reshape(-1, *(1,) * (entries.spec.ndim - 1)).expand(tuple(entries.spec.shape))
    low = entries.detach().new_full((groups, *entries.spec.shape[1:]), -float("inf"))
    shifted = entries - pick(low.scatter_reduce(0, with_dense, entries.detach(), "amax"), group)
    total = pick(gathered(exp(shifted), group, groups), group)
    return with_entries(x, shifted - log(total) if op == "log_softmax" else exp(shifted) / total)


def _sparse(input: Tensor, op: str) -> None:
    if not isinstance(input, SparseTensor):
        raise DTypeError(f"{op}(): expected a sparse tensor, got a dense one; use norch.{op} or to_sparse()")
