"""SparseTensor: a tensor in coordinate (COO) or compressed row (CSR) form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ..autograd.graph import is_recording
from ..device import Device
from ..dtype import TENSOR_TYPES, DType
from ..errors import AutogradError, DTypeError, ShapeError
from ..memory_format import sparse_coo, sparse_csr
from ..ops.registry import IN_PLACE, METHODS
from ..spec import Spec, wrap_dim
from ..tensor import Tensor
from ..tensor_base import TakenOver
from .structure import compressed, flat_keys, gathered, merged, pick

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


class SparseTensor(Tensor):
    """A tensor most of whose elements are 0 and not stored. `norch.sparse_coo_tensor` and `to_sparse` make them.

    places: int64, (sparse dims, elements); entries: what is there, of shape (elements, *dense dims). coalesced: whether
    the places are in order, each once. crow: of a CSR tensor where each row begins and the last ends, else None.
    """

    __slots__ = ("coalesced", "crow", "entries", "places")
    places: Tensor
    entries: Tensor
    coalesced: bool
    crow: Tensor | None

    def __new__(cls, *data: Any, **options: Any) -> SparseTensor:
        raise DTypeError("SparseTensor: made by norch.sparse_coo_tensor(), norch.sparse_csr_tensor() and to_sparse()")

    # --- What dense tensors have, too -------------------------------------------------------------------------------

    @property
    def buffer(self) -> Any:
        return self.entries.buffer

    @property
    def node(self) -> Any:
        return None

    @node.setter
    def node(self, value: Any) -> None:
        if value is not None:
            raise AutogradError("Function: a sparse result has no gradient; return its values and make it outside")

    @property
    def apply_function(self) -> Any:  # type: ignore[override]
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
    def grad(self) -> SparseTensor | None:  # type: ignore[override]
        """The gradient that backward passes have gathered here: sparse, of the same places."""
        found = self.entries.grad if self.entries.is_leaf else None
        return None if found is None else with_entries(self, found)

    @grad.setter
    def grad(self, value: SparseTensor | None) -> None:
        if value is not None and (not isinstance(value, SparseTensor) or value._nnz() != self._nnz()):
            raise ShapeError("grad: expected None or a sparse tensor of the same places")
        self.entries.grad = None if value is None else value.entries

    def zero_grad(self) -> None:
        """Forgets the gradient."""
        self.entries.grad = None

    def detach(self) -> SparseTensor:
        """A tensor on the same memory that is no part of the graph."""
        return with_entries(self, self.entries.detach())

    @property  # type: ignore[misc]
    def data(self) -> SparseTensor:
        """`detach()`; assigning replaces places and values."""
        return self.detach()

    @data.setter
    def data(self, value: SparseTensor) -> None:
        take_over(self, value.detach())

    @property
    def layout(self) -> Any:
        """`norch.sparse_coo` or `norch.sparse_csr`."""
        return sparse_coo if self.crow is None else sparse_csr

    @property
    def is_sparse(self) -> bool:
        """Whether the layout is `norch.sparse_coo`."""
        return self.crow is None

    @property
    def is_sparse_csr(self) -> bool:
        """Whether the layout is `norch.sparse_csr`."""
        return self.crow is not None

    def is_contiguous(self, memory_format: object = None) -> bool:
        """False."""
        return False

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """This tensor in another dtype; without one, the name of its type."""
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
        """The same tensor with its places in order, each once: itself where they are."""
        _coo(self, "coalesce")
        if self.coalesced:
            return self
        return make_coo(*merged(self.places, self.entries, self.spec.shape[: self.sparse_dim()]), self.spec.shape, True)

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        self.coalesced = bool(coalesced)
        return self

    def indices(self) -> Tensor:
        """The places, int64, of shape (sparse dims, elements). Raises ShapeError unless coalesced."""
        _coo(self, "indices")
        return self._of_coalesced("indices").places

    def values(self) -> Tensor:
        """The stored elements. Raises ShapeError unless coalesced."""
        return self._of_coalesced("values").entries

    def _of_coalesced(self, op: str) -> SparseTensor:
        if not self.coalesced:
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
            raise DTypeError("crow_indices(): the layout is norch.sparse_coo; use to_sparse_csr()")
        return self.crow

    def col_indices(self) -> Tensor:
        """Of a CSR tensor: the column of each element."""
        if self.crow is None:
            raise DTypeError("col_indices(): the layout is norch.sparse_coo; use to_sparse_csr()")
        return self.places.select(0, 1)

    # --- Conversions ------------------------------------------------------------------------------------------------

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """All elements, stored or 0, in a dense tensor. `masked_grad` is not used: gradients are those of the stored."""
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
        if self.crow is None:
            return self
        return make_coo(self.places, self.entries, self.spec.shape, True)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self, dense_dim: int | None = None) -> SparseTensor:
        """This matrix as CSR. Raises ShapeError unless it has 2 sparse dims and no dense ones."""
        if self.crow is not None:
            return self
        if self.sparse_dim() != 2 or self.spec.ndim != 2:
            raise ShapeError(
                f"to_sparse_csr(): norch's CSR tensors are matrices, without batches or dense dims; this one has "
                f"{self.sparse_dim()} sparse and {self.dense_dim()} dense dims"
            )
        one = self.coalesce()
        return make_csr(compressed(one.places.select(0, 0), self.spec.shape[0]), one.places, one.entries, one.spec.shape)

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """This tensor in another dtype or on another device; itself where it already is. As `to` of dense tensors."""
        given = [
            x for a in args for x in ((a.dtype, a.device) if isinstance(a, Tensor) else (a,))
        ]  # not the layout of another
        entries = self.entries.to(*given, **kwargs)
        if entries is self.entries:
            return self
        device = entries.device
        crow = None if self.crow is None else self.crow.to(device)
        return make(self.places.to(device), entries, self.spec.shape, self.coalesced, crow)

    def cpu(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """This tensor in host memory."""
        return self.to("cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False, **more: Any) -> SparseTensor:
        """This tensor on a CUDA device."""
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
        return _restore, (*parts, self.requires_grad)

    # --- Views and parts --------------------------------------------------------------------------------------------

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """The tensor with two sparse dims exchanged; CSR stays CSR. Raises ShapeError for a dense dim."""
        n = self.spec.ndim
        order = list(range(n))
        a, b = wrap_dim(dim0, n, "transpose"), wrap_dim(dim1, n, "transpose")
        order[a], order[b] = order[b], order[a]
        return self.permute(order)

    swapaxes = swapdims = transpose

    def t(self) -> SparseTensor:
        """The transpose of a matrix. Raises ShapeError above 2 dims."""
        if self.spec.ndim > 2:
            raise ShapeError(f"t(): expected at most 2 dims, got shape {tuple(self.spec.shape)}")
        return self.transpose(0, 1) if self.spec.ndim == 2 else self

    T = mT = H = mH = property(lambda self: self.t(), doc="The transpose of a matrix.")  # type: ignore[assignment]

    def permute(self, *dims: Any) -> SparseTensor:
        """The tensor with its sparse dims in another order; CSR stays CSR. Raises ShapeError where dense ones move."""
        order = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        wrapped = [wrap_dim(d, self.spec.ndim, "permute") for d in order]
        k = self.sparse_dim()
        if sorted(wrapped) != list(range(self.spec.ndim)) or wrapped[k:] != list(range(k, self.spec.ndim)):
            raise ShapeError(
                f"permute(): dims {tuple(order)} of a tensor of {k} sparse and {self.dense_dim()} dense dims, in that "
                "order; only sparse dims may change places"
            )
        if wrapped == list(range(self.spec.ndim)):
            return self
        places = self.places.index_select(0, self.places.new_tensor(wrapped[:k]))
        out = make_coo(places, self.entries, [self.spec.shape[d] for d in wrapped], False)
        return out if self.crow is None else out.to_sparse_csr()

    def select(self, dim: int, index: int) -> Any:
        """What is at `index` of a sparse dim, sparse; of the last sparse dim dense."""
        at = wrap_dim(dim, self.spec.ndim, "select")
        k, size = self.sparse_dim(), self.spec.shape[at]
        if at >= k:
            refuse("select() of a dense dim")
        if not -size <= index < size:
            from ..errors import IndexError

            raise IndexError(f"select(): index {index} is out of range for dim {dim} of size {size}")
        chosen = (self.places.select(0, at) == index % size).nonzero().reshape(-1)
        entries = pick(self.entries, chosen)
        if k == 1:
            return entries.sum(0).to(self.spec.dtype)
        rest = self.places.new_tensor([d for d in range(k) if d != at])
        shape = [n for d, n in enumerate(self.spec.shape) if d != at]
        return make_coo(self.places.index_select(0, rest).index_select(1, chosen), entries, shape, self.coalesced)

    def __getitem__(self, index: Any) -> Any:
        """`tensor[i]` and `tensor[i, j]`. Raises DTypeError for other indices."""
        out: Any = self
        for i in index if isinstance(index, tuple) else (index,):
            if not hasattr(type(i), "__index__") or isinstance(i, bool) or getattr(i, "shape", ()) != ():
                raise DTypeError("__getitem__(): sparse tensors take ints only; use index_select() or to_dense()")
            out = out.select(0, int(i)) if isinstance(out, SparseTensor) else out[int(i)]
        return out

    def index_select(self, dim: int, index: Tensor) -> SparseTensor:
        """The slices along a sparse dim that the 1-D `index` names, in its order."""
        found: SparseTensor = run_op["index_select"](self, dim, index)
        return found

    def unbind(self, dim: int = 0) -> tuple[Any, ...]:
        """What is at each index of a sparse dim."""
        return tuple([self.select(dim, i) for i in range(self.spec.shape[wrap_dim(dim, self.spec.ndim, "unbind")])])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(0))

    def norm(self, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        """The `p`-norm of all elements. Raises DTypeError for a `dim`."""
        if dim is not None:
            refuse("norm() along a dim")
        entries = (self if self.coalesced else self.coalesce()).entries
        return (entries if dtype is None else entries.to(dtype)).norm(p)

    # --- In place ---------------------------------------------------------------------------------------------------

    def copy_(self, source: Any, non_blocking: bool = False) -> SparseTensor:
        """Takes the places and values of `source`, a sparse tensor of the same shape."""
        if not isinstance(source, SparseTensor) or source.spec.shape != self.spec.shape:
            raise ShapeError(f"copy_(): expected a sparse tensor of shape {tuple(self.spec.shape)}")
        return take_over(self, source.to(self.device, self.dtype).clone())

    def zero_(self) -> SparseTensor:
        """Forgets all elements."""
        return take_over(self, run_op["zeros"](self.spec, self.crow is not None))

    def __repr__(self) -> str:
        from .printing import sparse_repr

        return sparse_repr(self)

    __str__ = __repr__


def _coo(tensor: SparseTensor, op: str) -> None:
    if tensor.crow is not None:
        raise DTypeError(f"{op}(): the layout is norch.sparse_csr; use to_sparse()")


def _refuse_function(function: Any, args: tuple[Any, ...]) -> NoReturn:
    raise AutogradError(
        f"{function.__name__}: a Function has no gradient of a sparse argument; give it the values and the indices"
    )


# --- How they are made ----------------------------------------------------------------------------------------------


def make(places: Tensor, entries: Tensor, shape: Sequence[int], coalesced: bool, crow: Tensor | None) -> SparseTensor:
    """A sparse tensor of checked parts."""
    out: SparseTensor = object.__new__(SparseTensor)
    out.spec, out.offset, out.base, out._grad = sparse_spec(shape, entries.dtype, entries.device), 0, None, None
    out.places, out.entries, out.coalesced, out.crow = places, entries, coalesced, crow
    return out


def make_coo(places: Tensor, entries: Tensor, shape: Sequence[int], coalesced: bool) -> SparseTensor:
    return make(places, entries, shape, coalesced, None)


def make_csr(crow: Tensor, places: Tensor, entries: Tensor, shape: Sequence[int]) -> SparseTensor:
    return make(places, entries, shape, True, crow)


def with_entries(tensor: SparseTensor, entries: Tensor) -> SparseTensor:
    """Other values at the same places."""
    return make(tensor.places, entries, tensor.spec.shape, tensor.coalesced, tensor.crow)


def _restore(places: Tensor, entries: Tensor, shape: Any, coalesced: bool, crow: Any, grad: bool) -> SparseTensor:
    return make(places, entries, shape, coalesced, crow).requires_grad_(grad)


def take_over(tensor: SparseTensor, value: SparseTensor) -> SparseTensor:
    """Makes `tensor` what `value` is."""
    for name in ("spec", "places", "entries", "coalesced", "crow"):
        setattr(tensor, name, getattr(value, name))
    return tensor


# --- Its other methods ----------------------------------------------------------------------------------------------

_RULED = """add sub subtract mul multiply div divide true_divide neg negative matmul mm mv addmm sum abs absolute square
    sqrt sin sinh tan tanh asin arcsin asinh arcsinh atan arctan sign sgn floor ceil round trunc fix relu erf erfinv
    expm1 log1p deg2rad rad2deg pow float double half bfloat16 int long short char byte bool type_as is_same_size
    spmm smm""".split()
"""What rules run: the methods that stay as they are."""


def _refused(name: str) -> Callable[..., Any]:
    def call(self: SparseTensor, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    call.__name__ = call.__qualname__ = name
    return call


def _in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    title = name if name.startswith("__") else f"{name}_"

    def call(self: SparseTensor, *args: Any, **kwargs: Any) -> Any:
        value = function(self, *args, **kwargs)
        if value is NotImplemented:
            return value
        if not isinstance(value, SparseTensor) or value.spec.shape != self.spec.shape:
            raise DTypeError(f"{title}(): the result is not sparse, or has another shape; use the op out of place")
        if self.requires_grad and self.is_leaf and is_recording():
            raise AutogradError(f"{title}(): a leaf that requires grad cannot be changed in place; use no_grad()")
        value = value.to(self.dtype)
        return take_over(self, value.to_sparse() if self.crow is None else value.to_sparse_csr())

    call.__name__ = call.__qualname__ = title
    return call


def _keep(name: str) -> bool:
    if name.startswith("__"):
        return name not in ("__len__", "__bool__", "__float__", "__int__", "__index__", "__array__", "__contains__",
                            "__dlpack__", "__setitem__")  # fmt: skip
    return name in _RULED


for _name, _function in IN_PLACE.items():
    _plain = _name.strip("_") if _name.startswith("__") else _name[:-1]
    if (_plain.removeprefix("i") if _name.startswith("__") else _plain) in (*_RULED, "truediv"):
        setattr(SparseTensor, _name, _in_place(_name if _name.startswith("__") else _plain, _function))
for _name in dir(Tensor):
    _value = getattr(Tensor, _name)
    if _name in METHODS or _name in IN_PLACE or _name.endswith("_") or _name in ("stride", "data_ptr", "storage"):
        if _name not in vars(SparseTensor) and not _keep(_name) and callable(_value) and _name != "__class__":
            setattr(SparseTensor, _name, _refused(_name))
SparseTensor.__len__ = lambda self: METHODS["__len__"](self)  # type: ignore[method-assign]
