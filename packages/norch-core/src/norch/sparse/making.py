"""Sparse tensors of indices and values, and of dense tensors."""

from __future__ import annotations

from typing import Any

from ..dtype import BOOL, as_dtype, int64
from ..errors import DTypeError, IndexError, ShapeError
from ..memory_formats import sparse_coo, sparse_csc, sparse_csr
from ..ops.creation import DeviceLike, zeros
from ..ops.from_data import as_tensor
from ..ops.shape.joining import cat, stack
from ..spec import as_shape
from ..tensor import Tensor
from .structure import expanded, flat_keys, pick
from .tensor import SparseTensor, make_coo, make_csc, make_csr, refuse


def _integers(data: Any, op: str, name: str, device: Any) -> Tensor:
    given = as_tensor(data, device=device)
    if isinstance(given, SparseTensor):
        refuse(op)
    dtype = given.spec.dtype
    whole = dtype.category != BOOL and (not dtype.is_floating_point or bool((given == given.trunc()).all()))
    if not whole and given.spec.numel:
        raise DTypeError(f"{op}(): {name} must be integers, got {given.spec.dtype}")
    return given.detach().to(int64)


def _entries(values: Any, op: str, dtype: Any, device: DeviceLike) -> Tensor:
    """The values, on their own device unless another is given."""
    out = as_tensor(values, None if dtype is None else as_dtype(dtype, op), device)
    if isinstance(out, SparseTensor):
        refuse(op)
    if not out.spec.ndim:
        out = out.reshape(1)
    # An object of its own, so that `requires_grad_` of the sparse tensor is not one of the values.
    return out.reshape(tuple(out.spec.shape)) if out.requires_grad else out.detach()


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
    pin_memory: bool = False,
) -> SparseTensor:
    """A COO tensor with values[k] at the place indices[:, k]; a place that comes twice holds the sum.

    indices: integers, or floats that are such, (sparse dims, n). values: (n, *dense dims). size: by default as large as
    the indices need; alone it gives a tensor without elements. check_invariants: False, with a `size`, takes indices
    that are known to fit without a look at them, for which a GPU waits. is_coalesced: that no place comes twice, and
    they are in order, as is so of fewer than two. Gradients flow to `values`. Raises ShapeError where the three do not
    fit, IndexError for an index out of range, DTypeError unless indices are whole numbers.
    """
    op = "sparse_coo_tensor"
    if values is None:
        return empty_coo(as_shape(indices if size is None else size, op), dtype, device).requires_grad_(requires_grad)
    entries = _entries(values, op, dtype, device)
    places = _integers(indices, op, "indices", entries.device)
    if places.spec.ndim != 2:
        raise ShapeError(f"{op}(): indices must have 2 dims, (sparse dims, n), got shape {tuple(places.spec.shape)}")
    k, count = places.spec.shape
    if entries.spec.shape[0] != count:
        raise ShapeError(f"{op}(): {count} indices for values of shape {tuple(entries.spec.shape)}")
    dense = tuple(entries.spec.shape[1:])
    shape = None if size is None else as_shape(size, op)
    if shape is not None and (len(shape) != k + len(dense) or shape[k:] != dense):
        raise ShapeError(
            f"{op}(): size {shape} for {k} sparse dims, as the indices have, and the dense dims {dense} of the values"
        )
    if shape is not None and check_invariants is False:
        high = []
    elif count and k:
        low, *high = cat([places.amin().reshape(1), places.amax(1)]).tolist()
        if low < 0:
            raise IndexError(f"{op}(): the indices hold {low}, which is negative")
        for d, n in enumerate(() if shape is None else shape[:k]):
            if high[d] >= n:
                raise IndexError(f"{op}(): the indices hold {high[d]} for dim {d} of size {n}")
    else:
        high = [-1] * k
    found = (*[n + 1 for n in high], *dense) if shape is None else shape
    out = make_coo(places, entries, found, bool(is_coalesced) or count < 2)
    return out.requires_grad_() if requires_grad and not entries.requires_grad else out


def empty_coo(shape: Any, dtype: Any, device: Any) -> SparseTensor:
    places = zeros(len(shape), 0, dtype=int64, device=device)
    return make_coo(places, zeros(0, dtype=dtype, device=device), shape, True)


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    pin_memory: bool = False,
) -> SparseTensor:
    """A CSR matrix: row i holds the elements crow_indices[i] to crow_indices[i + 1] of col_indices and values.

    The indices become int64 and are always checked: they begin at 0, end at the number of elements and do not fall.
    Columns that do not rise within a row are put in order, the elements of one place added up; with `check_invariants`
    they raise. Raises as `sparse_coo_tensor`, and ShapeError for batches, which norch does not have.
    """
    given, names = (crow_indices, col_indices, values), ("crow", "col", "columns")
    return _compressed("sparse_csr_tensor", names, given, size, dtype, device, requires_grad, check_invariants)


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    pin_memory: bool = False,
) -> SparseTensor:
    """A CSC matrix: column i holds the elements ccol_indices[i] to ccol_indices[i + 1] of row_indices and values.

    Indices are checked, or put in order, as those of `sparse_csr_tensor` are. Its transpose is CSR, of the same parts.
    check_invariants: as there. Raises as `sparse_csr_tensor`.
    """
    turned = size if size is None else as_shape(size, "sparse_csc_tensor")[::-1]
    given = ccol_indices, row_indices, values
    names = ("ccol", "row", "rows")
    made = _compressed("sparse_csc_tensor", names, given, turned, dtype, device, requires_grad, check_invariants)
    return make_csc(made)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: DeviceLike = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    pin_memory: bool = False,
) -> SparseTensor:
    """`sparse_csr_tensor` or `sparse_csc_tensor` of these, as `layout` says.

    Raises as they do, and DTypeError for another layout.
    compressed_indices: crow_indices or ccol_indices. plain_indices: col_indices or row_indices.
    """
    make = {sparse_csr: sparse_csr_tensor, sparse_csc: sparse_csc_tensor}.get(layout)
    if make is None:
        raise DTypeError(f"sparse_compressed_tensor(): layout must be sparse_csr or sparse_csc, got {layout}")
    options: dict[str, Any] = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
    return make(compressed_indices, plain_indices, values, size, check_invariants=check_invariants, **options)


def _compressed(
    op: str,
    names: tuple[str, str, str],
    given: Any,
    size: Any,
    dtype: Any,
    device: Any,
    requires_grad: bool,
    check_invariants: bool | None,
) -> SparseTensor:
    """The CSR matrix of (crow_indices, col_indices, values), which the caller's arguments may call something else."""
    crow_name, name, across = f"{names[0]}_indices", f"{names[1]}_indices", names[2]
    entries = _entries(given[2], op, dtype, device)
    crow = _integers(given[0], op, crow_name, entries.device)
    columns = _integers(given[1], op, name, entries.device)
    if not crow.spec.ndim == columns.spec.ndim == entries.spec.ndim == 1:
        raise ShapeError(
            f"{op}(): {crow_name}, {name} and values must be vectors, without batches or dense dims, got shapes "
            f"{tuple(crow.spec.shape)}, {tuple(columns.spec.shape)} and {tuple(entries.spec.shape)}"
        )
    rows, count = crow.spec.numel - 1, columns.spec.numel
    if rows < 0 or entries.spec.numel != count:
        raise ShapeError(f"{op}(): {rows + 1} {crow_name} and {count} {name} for {entries.spec.numel} values")
    shape = None if size is None else as_shape(size, op)
    if shape is not None and (len(shape) != 2 or shape[0] != rows):
        raise ShapeError(f"{op}(): {rows + 1} {crow_name} for size {shape}; such tensors are matrices")
    steps = crow[1:] - crow[:-1]
    ends = [crow[:1], crow[-1:], steps.amin().reshape(1) if rows else crow[:1]]
    first, last, least = cat(ends).tolist()
    if first or last != count or least < 0:
        raise ShapeError(f"{op}(): {crow_name} must begin at 0, end at {count} and not fall")
    width = 0 if shape is None else shape[1]
    if count:
        low, high = stack([columns.amin(), columns.amax()]).tolist()
        width = high + 1 if shape is None else width
        if low < 0 or high >= width:
            raise IndexError(f"{op}(): {name} hold {low if low < 0 else high} for {width} {across}")
    places = stack([expanded(crow, count), columns])
    key = flat_keys(places, (rows, width))
    if count > 1 and not bool((key[1:] > key[:-1]).all()):
        if check_invariants:
            raise ShapeError(f"{op}(): {name} must rise within each {'row' if across == 'columns' else 'column'}")
        out = make_coo(places, entries, (rows, width), False).to_sparse_csr()
    else:
        out = make_csr(crow, places, entries, (rows, width))
    return out.requires_grad_() if requires_grad and not entries.requires_grad else out


# --- Of dense tensors -----------------------------------------------------------------------------------------------


def to_sparse(
    input: Tensor, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> SparseTensor:
    """The elements that are not 0 as a COO tensor, or in `layout`. Of fewer `sparse_dim` than dims, those slices.

    Waits for their number. Raises ShapeError for a `sparse_dim` that is not of 1 to all dims, DTypeError for another
    layout.
    """
    if layout in (sparse_csr, sparse_csc):
        return (to_sparse_csr if layout is sparse_csr else to_sparse_csc)(input, dense_dim)
    if layout not in (None, sparse_coo):
        raise DTypeError(f"to_sparse(): sparse tensors are COO, CSR or CSC, and not {layout}")
    n = input.spec.ndim
    k = n - (dense_dim or 0) if sparse_dim is None else sparse_dim
    if blocksize is not None or not 1 <= k <= n:
        raise ShapeError(
            f"to_sparse(): {k} sparse dims of shape {tuple(input.spec.shape)}, without blocks; take 1 to {n}"
        )
    held = input.detach() if input.spec.dtype.category == BOOL else input.detach() != 0
    mask = held if k == n else held.reshape((*input.spec.shape[:k], -1)).any(-1)
    places = mask.nonzero().t().contiguous()
    flat = input.reshape((-1, *input.spec.shape[k:]))
    return make_coo(places, pick(flat, flat_keys(places, input.spec.shape[:k])), input.spec.shape, True)


def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> SparseTensor:
    """A matrix as a CSR tensor of its elements that are not 0. Raises ShapeError unless it has 2 dims."""
    if input.spec.ndim != 2 or dense_dim:
        raise ShapeError(
            f"to_sparse_csr(): norch's CSR tensors are matrices, without batches or dense dims; got shape "
            f"{tuple(input.spec.shape)}"
        )
    return to_sparse(input).to_sparse_csr()


def to_sparse_csc(input: Tensor, dense_dim: int | None = None) -> SparseTensor:
    """A matrix as a CSC tensor of its elements that are not 0. Raises ShapeError unless it has 2 dims."""
    return make_csc(to_sparse_csr(input if input.spec.ndim != 2 else input.t(), dense_dim))


def sparse_mask(input: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements of a dense tensor at the places of a sparse one. Raises ShapeError where their shapes differ."""
    from .tensor import with_entries

    if not isinstance(mask, SparseTensor) or isinstance(input, SparseTensor):
        raise DTypeError("sparse_mask(): takes a dense tensor and a sparse mask")
    if input.spec.shape != mask.spec.shape:
        raise ShapeError(f"sparse_mask(): shapes {tuple(input.spec.shape)} and {tuple(mask.spec.shape)} differ")
    return with_entries(mask, at_places(input, mask))


def at_places(dense: Tensor, where: SparseTensor) -> Tensor:
    """The elements of `dense`, of the same shape or of one that broadcasts to it, at the places of a sparse tensor."""
    shape, k = where.spec.shape, where.sparse_dim()
    lead = len(shape) - dense.spec.ndim
    dense = dense.reshape((*(1,) * lead, *dense.spec.shape)) if lead else dense
    dims = [d for d in range(k) if dense.spec.shape[d] != 1]
    sizes = [dense.spec.shape[d] for d in dims]
    flat = dense.reshape((-1, *dense.spec.shape[k:]))
    if not dims:
        return flat.expand(where._nnz(), *flat.spec.shape[1:]) if where._nnz() else flat[:0]
    places = where.places if len(dims) == k else where.places.index_select(0, where.places.new_tensor(dims))
    return pick(flat, flat_keys(places, sizes))
