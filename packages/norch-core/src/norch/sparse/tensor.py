"""SparseTensor: a tensor in coordinate (COO) or compressed row or column (CSR, CSC) form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..autograd.graph import is_recording
from ..device import Device
from ..dtype import TENSOR_TYPES, DType
from ..errors import AutogradError, DTypeError, ShapeError
from ..memory_formats import sparse_coo, sparse_csc, sparse_csr
from ..ops.registry import METHODS
from ..spec import Spec
from ..tensor import Tensor
from ..tensor_base import TakenOver
from .structure import compressed, flat_keys, gathered, merged

run_op: dict[str, Callable[..., Any]] = {}
"""How an op is run ("run"), or its result written ("into"): filled by `rules.py`."""


class NotDense(TakenOver, DTypeError):
    """What sparse tensors cannot do, or, of a spec that a plan is looked up by, that a rule is to do it."""

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        try:
            return run_op["run"](op, args)
        except Exception as found:
            raise found from None

    def into(self, op: Any, out: Any, args: tuple[Any, ...]) -> None:
        run_op["into"](op, out, args)


def refuse(name: str) -> NoReturn:
    raise DTypeError(f"{name}(): takes no sparse tensors; use to_dense() first")


class SparseSpec(Spec):
    """The spec of the tensor that a sparse one stands for. No plan is looked up by it."""

    __slots__ = ()

    def __hash__(self) -> int:
        raise NotDense("this takes no sparse tensors; use to_dense() first")

    def like(self, shape: Any = None, strides: Any = None, dtype: Any = None, device: Any = None) -> Spec:
        chosen = self.shape if shape is None else shape
        return sparse_spec(tuple(chosen), dtype or self.dtype, device or self.device)


def sparse_spec(shape: Sequence[int], dtype: DType, device: Device) -> SparseSpec:
    dense, out = Spec(tuple(shape), None, dtype, device), object.__new__(SparseSpec)
    for name in ("shape", "strides", "dtype", "device", "ndim", "numel", "nbytes", "overlaps", "is_contiguous"):
        setattr(out, name, getattr(dense, name))
    return out


class SparseTensor(Tensor, plain_results=True):
    """A tensor most of whose elements are 0 and not stored. `norch.sparse_coo_tensor` and `to_sparse` make them.

    places: int64, (sparse dims, elements); entries: what is there, of shape (elements, *dense dims). coalesced: whether
    the places are in order, each once. crow: of a CSR tensor where each row begins and the last ends, else None. ccol:
    the same of a CSC tensor's columns; its places are in order by columns, and so not coalesced.
    """

    __slots__ = ("ccol", "coalesced", "crow", "entries", "places")
    places: Tensor
    entries: Tensor
    coalesced: bool
    crow: Tensor | None
    ccol: Tensor | None

    def __new__(cls, *data: Any, **options: Any) -> SparseTensor:
        raise DTypeError("SparseTensor: made by norch.sparse_coo_tensor(), norch.sparse_csr_tensor() and to_sparse()")

    # --- What dense tensors have, too -------------------------------------------------------------------------------

    @property
    def buffer(self) -> Any:
        """The memory of the stored elements."""
        return self.entries.buffer

    @property
    def node(self) -> Any:
        """None: the stored elements have the node. Raises AutogradError where one is set."""
        return None

    @node.setter
    def node(self, value: Any) -> None:
        if value is not None:
            raise AutogradError("Function: a sparse result has no gradient; return its values and make it outside")

    @property
    def apply_function(self) -> Any:
        """What refuses a Function of a sparse tensor that requires grad; None where it does not."""
        return _refuse_function if self.requires_grad and is_recording() else None

    @property
    def requires_grad(self) -> bool:
        return self.entries.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Marks a leaf as wanting a gradient, or not. Raises as of dense tensors."""
        if requires_grad and not self.entries.requires_grad:
            self.entries = self.entries.detach()  # other sparse tensors may have the same
        self.entries.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return self.entries.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self.entries.grad_fn

    @property
    def grad(self) -> Any:
        """The gradient that backward passes have gathered here: sparse, of the same places."""
        found = self.entries.grad if self.entries.is_leaf else None
        return None if found is None else with_entries(self, found)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and (not isinstance(value, SparseTensor) or value._nnz() != self._nnz()):
            raise ShapeError("grad: expected None or a sparse tensor of the same places")
        self.entries.grad = None if value is None else value.entries

    def zero_grad(self) -> None:
        """Forgets the gradient."""
        self.entries.grad = None

    def detach(self) -> SparseTensor:
        """A tensor on the same memory that is no part of the graph."""
        return with_entries(self, self.entries.detach())

    @property
    def data(self) -> Any:
        """`detach()`; assigning replaces places and values."""
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        take_over(self, value.detach())

    @property
    def layout(self) -> Any:
        """`norch.sparse_coo`, `norch.sparse_csr` or `norch.sparse_csc`."""
        return sparse_csr if self.crow is not None else sparse_coo if self.ccol is None else sparse_csc

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is `norch.sparse_coo`."""
        return self.layout is sparse_coo

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is `norch.sparse_csr`."""
        return self.crow is not None

    def is_contiguous(self, memory_format: object = None) -> bool:
        """False, of any `memory_format`: its elements lie apart from their places."""
        return False

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """This tensor in another dtype; without one, the name of its type. non_blocking changes nothing."""
        if dtype is not None:
            return METHODS["type"](self, dtype)
        name = next(n for n, d in TENSOR_TYPES.items() if d is self.spec.dtype)
        return f"torch.sparse.{name}"

    # --- Its parts --------------------------------------------------------------------------------------------------

    def _nnz(self) -> int:
        """How many elements are stored."""
        return self.places.spec.shape[1]

    def sparse_dim(self) -> int:
        """How many dims are stored as places: the first ones."""
        return self.places.spec.shape[0]

    def dense_dim(self) -> int:
        """How many dims each stored element has."""
        return self.spec.ndim - self.sparse_dim()

    def is_coalesced(self) -> bool:
        """Whether the places are known to be in order, each once."""
        _coo(self, "is_coalesced")
        return self.coalesced

    def coalesce(self) -> SparseTensor:
        """The same tensor as COO, with its places in order, each once: itself where they are."""
        if self.crow is not None:
            _coo(self, "coalesce")
        if self.coalesced:
            return self
        return make_coo(*merged(self.places, self.entries, self.spec.shape[: self.sparse_dim()]), self.spec.shape, True)

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self.coalesced = bool(coalesced)
        return self

    @property
    def each_once(self) -> bool:
        """Whether no place is known to come twice, in whatever order they are."""
        return self.coalesced or self.ccol is not None

    def indices(self) -> Tensor:
        """The places, int64, of shape (sparse dims, elements). Raises ShapeError unless coalesced."""
        _coo(self, "indices")
        return self._of_coalesced("indices").places

    def values(self) -> Tensor:
        """The stored elements. Raises ShapeError unless coalesced."""
        return self._of_coalesced("values").entries

    def _of_coalesced(self, op: str) -> SparseTensor:
        if not self.each_once:
            raise ShapeError(f"{op}(): the tensor is not coalesced, so that places may come twice; coalesce() it first")
        return self

    def _indices(self) -> Tensor:
        """The places as they are stored."""
        _coo(self, "_indices")
        return self.places

    def _values(self) -> Tensor:
        """The elements as they are stored, detached."""
        return self.entries.detach()

    def crow_indices(self) -> Tensor:
        """Of a CSR tensor: at which element each row begins, and where the last ends."""
        if self.crow is None:
            raise DTypeError(f"crow_indices(): the layout is {self.layout}; use to_sparse_csr()")
        return self.crow

    def col_indices(self) -> Tensor:
        """Of a CSR tensor: the column of each element."""
        if self.crow is None:
            raise DTypeError(f"col_indices(): the layout is {self.layout}; use to_sparse_csr()")
        return self.places.select(0, 1)

    def ccol_indices(self) -> Tensor:
        """Of a CSC tensor: at which element each column begins, and where the last ends; else DTypeError."""
        if self.ccol is None:
            raise DTypeError(f"ccol_indices(): the layout is {self.layout}; use to_sparse_csc()")
        return self.ccol

    def row_indices(self) -> Tensor:
        """Of a CSC tensor: the row of each element. Raises DTypeError of others."""
        if self.ccol is None:
            raise DTypeError(f"row_indices(): the layout is {self.layout}; use to_sparse_csc()")
        return self.places.select(0, 0)

    # --- Conversions ------------------------------------------------------------------------------------------------

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements in a dense tensor. `masked_grad` or not, gradients are those of the stored ones."""
        sizes, shape = self.spec.shape[: self.sparse_dim()], tuple(self.spec.shape)
        if sizes:
            rows = 1
            for n in sizes:
                rows *= n
            out = gathered(self.entries, flat_keys(self.places, sizes), rows).reshape(shape)
        else:
            out = self.entries.sum(0).to(self.spec.dtype)
        return out if dtype is None else out.to(dtype)

    def to_sparse(self, *sparse_dim: Any, layout: Any = None, **more: Any) -> SparseTensor:
        """This tensor as COO, or in `layout`."""
        if layout is sparse_csr:
            return self.to_sparse_csr()
        if layout is sparse_csc:
            return self.to_sparse_csc()
        if self.ccol is not None:
            return self.coalesce()
        if self.crow is None:
            return self
        return make_coo(self.places, self.entries, self.spec.shape, True)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: int | None = None) -> SparseTensor:
        """This matrix as CSR. Raises ShapeError unless it has 2 sparse dims and no dense ones.

        dense_dim: 0 or None.
        """
        if self.crow is not None:
            return self
        if self.sparse_dim() != 2 or self.spec.ndim != 2:
            raise ShapeError(
                f"to_sparse_csr(): norch's CSR tensors are matrices, without batches or dense dims; this one has "
                f"{self.sparse_dim()} sparse and {self.dense_dim()} dense dims"
            )
        one = self.coalesce()
        return make_csr(
            compressed(one.places.select(0, 0), self.spec.shape[0]), one.places, one.entries, one.spec.shape
        )

    def to_sparse_csc(self, dense_dim: int | None = None) -> SparseTensor:
        """This matrix as CSC. Raises as `to_sparse_csr`. dense_dim: 0 or None."""
        if self.ccol is not None:
            return self
        if self.sparse_dim() != 2 or self.spec.ndim != 2:
            return self.to_sparse_csr()  # which raises
        return make_csc(make_coo(self.places.flip(0), self.entries, self.spec.shape[::-1], False).to_sparse_csr())

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """This tensor in another dtype or on another device; itself where it already is. As `to` of dense tensors."""
        given = [
            x for a in args for x in ((a.dtype, a.device) if isinstance(a, Tensor) else (a,))
        ]  # not the layout of another
        entries = self.entries.to(*given, **kwargs)
        if entries is self.entries:
            return self
        device = entries.device
        crow, ccol = (None if c is None else c.to(device) for c in (self.crow, self.ccol))
        return make(self.places.to(device), entries, self.spec.shape, self.coalesced, crow, ccol)

    def cpu(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """This tensor in host memory."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False, **more: Any) -> SparseTensor:
        """This tensor on a CUDA device. non_blocking: as of `Tensor.to`."""
        return self.to(f"cuda:{device}" if isinstance(device, int) else device or "cuda")

    def clone(self, *, memory_format: object = None) -> SparseTensor:
        """A copy in memory of its own, through which gradients flow."""
        out = with_entries(self, self.entries.clone())
        out.places = self.places.clone()
        return out

    def contiguous(self, memory_format: object = None) -> SparseTensor:
        """The tensor itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> SparseTensor:
        found: SparseTensor = memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = (self.places, self.entries.detach(), tuple(self.spec.shape), self.coalesced, self.crow)
        return _restore, (*parts, self.requires_grad, self.ccol)

    # --- In place ---------------------------------------------------------------------------------------------------

    def copy_(self, source: Any, non_blocking: bool = False) -> SparseTensor:
        """Takes the places and values of `source`, a sparse tensor of the same shape."""
        if not isinstance(source, SparseTensor) or source.spec.shape != self.spec.shape:
            raise ShapeError(f"copy_(): expected a sparse tensor of shape {tuple(self.spec.shape)}")
        return take_over(self, source.to(self.device, self.dtype).clone())

    def zero_(self) -> SparseTensor:
        """Forgets all elements."""
        return take_over(self, self.emptied())  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        from .printing import sparse_repr

        return sparse_repr(self)

    __str__ = __repr__


def _coo(tensor: SparseTensor, op: str) -> None:
    if not tensor.is_sparse:
        raise DTypeError(f"{op}(): the layout is {tensor.layout}; use to_sparse()")


def _refuse_function(function: Any, args: tuple[Any, ...]) -> NoReturn:
    raise AutogradError(
        f"{function.__name__}: a Function has no gradient of a sparse argument; give it the values and the indices"
    )


# --- How they are made ----------------------------------------------------------------------------------------------


def make(
    places: Tensor,
    entries: Tensor,
    shape: Sequence[int],
    coalesced: bool,
    crow: Tensor | None,
    ccol: Tensor | None = None,
) -> SparseTensor:
    """A sparse tensor of checked parts."""
    out: SparseTensor = object.__new__(SparseTensor)
    out.spec, out.offset, out.base, out._grad = sparse_spec(shape, entries.dtype, entries.device), 0, None, None
    out.places, out.entries, out.coalesced, out.crow, out.ccol = places, entries, coalesced, crow, ccol
    return out


def make_coo(places: Tensor, entries: Tensor, shape: Sequence[int], coalesced: bool) -> SparseTensor:
    return make(places, entries, shape, coalesced, None)


def make_csr(crow: Tensor, places: Tensor, entries: Tensor, shape: Sequence[int]) -> SparseTensor:
    return make(places, entries, shape, True, crow)


def make_csc(transpose: SparseTensor) -> SparseTensor:
    """The transpose of a CSR tensor, of the same parts."""
    return make(
        transpose.places.flip(0), transpose.entries, transpose.spec.shape[::-1], False, None, transpose.crow_indices()
    )


def with_entries(tensor: SparseTensor, entries: Tensor) -> SparseTensor:
    """Other values at the same places."""
    return make(tensor.places, entries, tensor.spec.shape, tensor.coalesced, tensor.crow, tensor.ccol)


def _restore(
    places: Tensor, entries: Tensor, shape: Any, coalesced: bool, crow: Any, grad: bool, ccol: Any = None
) -> SparseTensor:
    return make(places, entries, shape, coalesced, crow, ccol).requires_grad_(grad)


def take_over(tensor: SparseTensor, value: SparseTensor) -> SparseTensor:
    """Makes `tensor` what `value` is."""
    for name in ("spec", "places", "entries", "coalesced", "crow", "ccol"):
        setattr(tensor, name, getattr(value, name))
    return tensor
