"""Matrix products of which an operand is sparse, each other's derivatives."""

from __future__ import annotations

from typing import Any

from ..autograd import no_grad
from ..autograd.function import Function
from ..autograd.graph import is_recording
from ..dtype import float32
from ..errors import DTypeError, ShapeError
from ..memory_formats import sparse_coo
from ..ops.creation import zeros
from ..ops.elementwise.arithmetic import mul
from ..ops.masks import nonzero
from ..ops.matrix.sparse_product import coo_matmul, parts_of
from ..ops.shape.joining import cat, stack
from ..tensor import Tensor
from .structure import counted, flat_keys, joined, merged, pick
from .tensor import SparseTensor, make_coo, with_entries


class SparseProduct(Function):
    """A matrix of `size` rows, with values[k] at rows[k], columns[k], times a dense one. in_order: of `coo_matmul`."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, dense: Tensor, rows: Tensor, columns: Tensor, size: int, in_order: bool = False
    ) -> Tensor:
        ctx.save_for_backward(values, dense)
        ctx.places = rows, columns
        return coo_matmul(values, dense, rows, columns, size, in_order)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (values, dense), (rows, columns) = ctx.saved_tensors, ctx.places
        by_value = SampledProduct.apply(g, dense, rows, columns) if ctx.needs_input_grad[0] else None
        by_dense = None
        if ctx.needs_input_grad[1]:
            by_dense = SparseProduct.apply(values, g, columns, rows, dense.spec.shape[0])
        return by_value, by_dense, None, None, None, None


class SampledProduct(Function):
    """The inner products of row rows[k] of `a` and row columns[k] of `b`."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.places = rows, columns
        found = [
            mul(pick(a, rows.narrow(0, i, n)), pick(b, columns.narrow(0, i, n))).sum(1, dtype=a.dtype)
            for i, n in parts_of(rows, a.spec.shape[1])
        ]
        if len(found) < 2:
            return found[0] if found else zeros(0, dtype=a.dtype, device=a.device)
        return cat(found)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (a, b), (rows, columns) = ctx.saved_tensors, ctx.places
        by_a = SparseProduct.apply(g, b, rows, columns, a.spec.shape[0]) if ctx.needs_input_grad[0] else None
        by_b = SparseProduct.apply(g, a, columns, rows, b.spec.shape[0]) if ctx.needs_input_grad[1] else None
        return by_a, by_b, None, None


def check_operands(op: str, a: Tensor, b: Tensor) -> None:
    """Raises where two operands, of which one is sparse, cannot be multiplied."""
    if a.spec.dtype is not b.spec.dtype:
        raise DTypeError(f"{op}(): operands of dtypes {a.spec.dtype} and {b.spec.dtype}; convert one")
    for x in (a, b):
        if isinstance(x, SparseTensor) and (x.spec.ndim != 2 or x.sparse_dim() != 2):
            raise ShapeError(
                f"{op}(): takes sparse matrices, of 2 sparse dims, got {x.sparse_dim()} sparse and {x.dense_dim()} "
                "dense; use to_dense() first"
            )
    shapes = f"shapes {tuple(a.spec.shape)} and {tuple(b.spec.shape)}"
    if not 1 <= a.spec.ndim <= 2 or not 1 <= b.spec.ndim <= 2:
        raise ShapeError(f"{op}(): takes a sparse matrix and a dense vector or matrix, got {shapes}")
    if a.spec.shape[-1] != b.spec.shape[0]:
        raise ShapeError(f"{op}(): {shapes} do not match: {a.spec.shape[-1]} columns, {b.spec.shape[0]} rows")


def product(a: Tensor, b: Tensor, op: str = "matmul") -> Tensor:
    """a @ b, of which at least one is a sparse matrix; of two the result is sparse, CSR unless one is COO."""
    if a.spec.ndim > 2 and isinstance(b, SparseTensor) and not isinstance(a, SparseTensor):
        rows = a.reshape(-1, a.spec.shape[-1])
        return product(rows, b, op).reshape((*a.spec.shape[:-1], *b.spec.shape[1:]))
    if a.spec.ndim == b.spec.ndim == 3 and isinstance(a, SparseTensor) and not isinstance(b, SparseTensor):
        return _batch(a, b, op)
    check_operands(op, a, b)
    dtype = a.spec.dtype
    if dtype.is_floating_point and dtype.itemsize == 2:
        return product(a.to(float32), b.to(float32), op).to(dtype)  # sums of 16 bits would be rounded at each addition
    if not isinstance(b, SparseTensor):
        rows, columns = a.places.unbind(0)  # type: ignore[attr-defined]
        in_order = a.coalesced or a.crow is not None  # type: ignore[attr-defined]
        return _times(a.entries, b, rows, columns, a.spec.shape[0], in_order)  # type: ignore[attr-defined]
    if not isinstance(a, SparseTensor):
        rows, columns = b.places.unbind(0)
        turned = _times(b.entries, a if a.spec.ndim == 1 else a.t(), columns, rows, b.spec.shape[1])
        return turned if a.spec.ndim == 1 else turned.t()
    return _sparse(a, b)


def _batch(a: SparseTensor, b: Tensor, op: str) -> Tensor:
    """A batch of sparse matrices times one of dense ones, as the product of one matrix that has them as its blocks."""
    (count, n, m), (batches, rows, k) = a.spec.shape, b.spec.shape
    if a.sparse_dim() != 3 or (count, m) != (batches, rows):
        raise ShapeError(
            f"{op}(): takes batches of sparse and of dense matrices, got shapes {tuple(a.spec.shape)} "
            f"({a.sparse_dim()} dims sparse) and {tuple(b.spec.shape)}"
        )
    at, i, j = a.places.unbind(0)
    whole = make_coo(stack([at * n + i, at * m + j]), a.entries, (count * n, count * m), a.coalesced)
    return product(whole, b.reshape(count * m, k), op).reshape(count, n, k)


def _times(values: Tensor, dense: Tensor, rows: Tensor, columns: Tensor, size: int, in_order: bool = False) -> Tensor:
    if not (is_recording() and (values.requires_grad or dense.requires_grad)) and _is_plain(values, dense):
        with no_grad():  # places that are views seem to be of a graph
            return coo_matmul(values, dense, rows, columns, size, in_order)
    if dense.spec.ndim == 1:
        return SparseProduct.apply(values, dense.unsqueeze(1), rows, columns, size, in_order).squeeze(1)  # type: ignore[no-any-return]
    return SparseProduct.apply(values, dense, rows, columns, size, in_order)  # type: ignore[no-any-return]


def _is_plain(*operands: Tensor) -> bool:
    """Whether no operand's class has a way of its own to call a `Function`."""
    return all(x.apply_function is None for x in operands)


def _sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    shape = (a.spec.shape[0], b.spec.shape[1])
    pairs = pick(counted(b.places.select(0, 0), b.spec.shape[0]), a.places.select(0, 1)).sum()
    is_filled = 0 < shape[0] * shape[1] <= min(_FILLED * int(pairs), 1 << 27)
    if is_filled and bool(a.entries.isfinite().all()):  # an infinity would meet the zeros of what `b` has not
        out = make_coo(*_filled(a, b, shape), shape, True)
    else:
        i, j = joined(a.places.select(0, 1), b.places.select(0, 0), b.spec.shape[0])
        places = stack([pick(a.places.select(0, 0), i), pick(b.places.select(0, 1), j)])
        out = make_coo(*merged(places, pick(a.entries, i) * pick(b.entries, j), shape), shape, True)
    return out if sparse_coo in (a.layout, b.layout) else out.to_sparse_csr()


_FILLED = 4
"""Up to so many times as many elements as there are products the result is made dense, so that none is put in order."""


def _filled(a: SparseTensor, b: SparseTensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The places and values of a product, by that of `a` with all of `b`."""
    rows, columns = a.places.unbind(0)
    in_order = a.coalesced or a.crow is not None
    values = _times(a.entries, b.to_dense(), rows, columns, shape[0], in_order).reshape(-1)
    there = [with_entries(x, x.entries.new_ones(x.entries.shape)) for x in (a, b)]
    counts = coo_matmul(there[0].entries, there[1].to_dense(), rows, columns, shape[0], in_order)
    places = nonzero(counts).t()
    return places, pick(values, flat_keys(places, shape))
