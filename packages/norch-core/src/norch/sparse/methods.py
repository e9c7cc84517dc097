"""What else sparse tensors have: rearrangements and parts of them, ops in place, and what says that it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from ..autograd.graph import is_recording
from ..errors import AutogradError, DTypeError, IndexError, ShapeError
from ..ops import cat
from ..ops.registry import IN_PLACE, METHODS
from ..spec import Spec, wrap_dim
from ..tensor import Tensor
from . import old_types
from .making import empty_coo
from .structure import flat_keys, pick
from .tensor import SparseTensor, make_coo, make_csr, refuse, run_op, take_over, with_entries


def transpose(self: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    """The tensor with two sparse dims exchanged, of CSR and CSC a CSR one. Raises ShapeError for a dense dim."""
    n = self.spec.ndim
    order = list(range(n))
    a, b = wrap_dim(dim0, n, "transpose"), wrap_dim(dim1, n, "transpose")
    order[a], order[b] = order[b], order[a]
    return permute(self, order)


def t(self: SparseTensor) -> SparseTensor:
    """The transpose of a matrix. Raises ShapeError above 2 dims."""
    if self.spec.ndim > 2:
        raise ShapeError(f"t(): expected at most 2 dims, got shape {tuple(self.spec.shape)}")
    return transpose(self, 0, 1) if self.spec.ndim == 2 else self


def permute(self: SparseTensor, *order: Any, dims: Any = None) -> SparseTensor:
    """The tensor with its sparse dims in another order, of CSR and CSC a CSR one. Raises ShapeError where dense ones
    move."""
    given = order if dims is None else (dims,)
    order = tuple(given[0]) if len(given) == 1 and not isinstance(given[0], int) else given
    wrapped = [wrap_dim(d, self.spec.ndim, "permute") for d in order]
    k = self.sparse_dim()
    if sorted(wrapped) != list(range(self.spec.ndim)) or wrapped[k:] != list(range(k, self.spec.ndim)):
        raise ShapeError(
            f"permute(): dims {order} of a tensor of {k} sparse and {self.dense_dim()} dense dims, in that "
            "order; only sparse dims may change places"
        )
    if wrapped == list(range(self.spec.ndim)):
        return self
    places = self.places.index_select(0, self.places.new_tensor(wrapped[:k]))
    shape = [self.spec.shape[d] for d in wrapped]
    if self.ccol is not None:
        return make_csr(self.ccol, places, self.entries, shape)
    out = make_coo(places, self.entries, shape, False)
    return out if self.crow is None else out.to_sparse_csr()


def unsqueeze(self: SparseTensor, dim: int) -> SparseTensor:
    """The tensor with a dim of size 1 before `dim`, a sparse one up to behind their last. DTypeError unless COO."""
    if not self.is_sparse:
        refuse("unsqueeze() of CSR" if self.ccol is None else "unsqueeze() of CSC")
    at, k, shape = wrap_dim(dim, self.spec.ndim + 1, "unsqueeze"), self.sparse_dim(), list(self.spec.shape)
    shape.insert(at, 1)
    if at > k:
        return make_coo(self.places, self.entries.unsqueeze(at - k + 1), shape, self.coalesced)
    zeros = self.places.new_zeros((1, self.places.spec.shape[1]))
    rows = [self.places.narrow(0, 0, at), zeros, self.places.narrow(0, at, k - at)]
    return make_coo(cat(rows), self.entries, shape, self.coalesced)


def select(self: SparseTensor, dim: int, index: int) -> Any:
    """What is at `index` of a sparse dim, sparse; of the last sparse dim dense."""
    at = wrap_dim(dim, self.spec.ndim, "select")
    k, size = self.sparse_dim(), self.spec.shape[at]
    if at >= k:
        refuse("select() of a dense dim")
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} is out of range for dim {dim} of size {size}")
    chosen = (self.places.select(0, at) == index % size).nonzero().reshape(-1)
    entries = pick(self.entries, chosen)
    if k == 1:
        return entries.sum(0).to(self.spec.dtype)
    rest = self.places.new_tensor([d for d in range(k) if d != at])
    shape = [n for d, n in enumerate(self.spec.shape) if d != at]
    return make_coo(self.places.index_select(0, rest).index_select(1, chosen), entries, shape, self.coalesced)


def getitem(self: SparseTensor, index: Any) -> Any:
    """`tensor[i]` and `tensor[i, j]`. Raises DTypeError for other indices."""
    out: Any = self
    for i in index if isinstance(index, tuple) else (index,):
        if not hasattr(type(i), "__index__") or isinstance(i, bool) or getattr(i, "shape", ()) != ():
            raise DTypeError("__getitem__(): sparse tensors take ints only; use index_select() or to_dense()")
        out = select(out, 0, int(i)) if isinstance(out, SparseTensor) else out[int(i)]
    return out


def index_select(self: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """The slices along a sparse dim that the 1-D `index` names, in its order."""
    found: SparseTensor = run_op["index_select"](self, dim, index)
    return found


def unbind(self: SparseTensor, dim: int = 0) -> tuple[Any, ...]:
    """What is at each index of a sparse dim."""
    return tuple([select(self, dim, i) for i in range(self.spec.shape[wrap_dim(dim, self.spec.ndim, "unbind")])])


def swapaxes(self: SparseTensor, axis0: int, axis1: int) -> SparseTensor:
    """The tensor with dims `axis0` and `axis1` exchanged, as `transpose`. Raises IndexError for one out of range."""
    return transpose(self, axis0, axis1)


def iterate(self: SparseTensor) -> Iterator[Any]:
    return iter(unbind(self, 0))


def norm(self: SparseTensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """The `p`-norm of all elements. Raises DTypeError for a `dim`."""
    if dim is not None:
        refuse("norm() along a dim")
    entries = (self if self.coalesced else self.coalesce()).entries
    return (entries if dtype is None else entries.to(dtype)).norm(p)


def new(self: SparseTensor, *data: Any, device: Any = None) -> SparseTensor:
    """A COO tensor of indices, values and a size, or of sizes an empty one, of this one's dtype and device; its layout
    is COO, too. Raises as `norch.sparse_coo_tensor`."""
    return getattr(old_types, self.type().rpartition(".")[2])(*data, device=device or self.device)  # type: ignore[no-any-return]


def kept(self: SparseTensor) -> SparseTensor:
    """The same places with a copy of the values, as a leaf keeps its gradient."""
    return with_entries(self, self.entries.detach().clone())


def emptied(self: SparseTensor, dtype: Any = None, device: Any = None) -> SparseTensor:
    """Zeros: a tensor like this one, in another dtype or on another device if given, that has no elements."""
    dtype, device = dtype or self.spec.dtype, device or self.spec.device
    if not self.is_sparse:
        return empty_coo(tuple(self.spec.shape), dtype, device).to_sparse(layout=self.layout)
    places = self.places.new_empty((self.sparse_dim(), 0), device=device)
    entries = self.entries.new_empty((0, *self.entries.spec.shape[1:]), dtype=dtype, device=device)
    return make_coo(places, entries, self.spec.shape, True)


def added_to(self: SparseTensor, dense: Tensor, sign: int) -> bool:
    """Adds the elements, or for a sign of -1 subtracts them, in a dense tensor's memory; False where they are none of
    its elements, or of another dtype."""
    k, count = self.sparse_dim(), self._nnz()
    spec, shape = dense.spec, self.spec.shape
    if not self.is_sparse or not k or type(spec) is not Spec or (spec.shape, spec.dtype) != (shape, self.spec.dtype):
        return False
    if spec.device is not self.spec.device or (k > 1 and not spec.is_contiguous):
        return False
    if count:
        rows = dense if k == 1 else dense.view(-1, *shape[k:])
        entries = self.entries.detach()
        rows.index_add_(0, flat_keys(self.places, shape[:k]), entries if sign > 0 else -entries)
    return True


_OWN = (transpose, swapaxes, t, permute, unsqueeze, select, index_select, unbind, norm, new, kept, emptied, added_to)
for _own in _OWN:
    setattr(SparseTensor, _own.__name__, _own)
SparseTensor.swapdims = transpose  # type: ignore[assignment]
for _name, _special in {"__getitem__": getitem, "__iter__": iterate}.items():
    setattr(SparseTensor, _name, _special)


# --- What rules run, and what refuses --------------------------------------------------------------------------------

_RULED = """add sub subtract mul multiply div divide true_divide neg negative matmul mm mv addmm sum abs absolute square
    sqrt sin sinh tan tanh asin arcsin asinh arcsinh atan arctan sign sgn floor ceil round trunc fix relu erf erfinv
    expm1 log1p deg2rad rad2deg pow float double half bfloat16 int long short char byte bool type_as is_same_size
    spmm smm""".split()
"""What rules run: the methods that stay as they are."""


def _refused(name: str) -> Callable[..., Any]:
    def call(self: SparseTensor, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Raises DTypeError: `Tensor.{name}` takes no sparse tensors; use to_dense() first."
    call.__wrapped__ = getattr(Tensor, name)  # type: ignore[attr-defined]
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
        return take_over(self, value.to_sparse(layout=self.layout))

    call.__name__ = call.__qualname__ = title
    call.__doc__ = (
        f"`{title}` of a Tensor, for a sparse one whose shape is kept. Raises DTypeError for a result that is not "
        "sparse or of another shape, AutogradError for a leaf that requires grad."
    )
    call.__wrapped__ = function  # type: ignore[attr-defined]
    return call


def _keep(name: str) -> bool:
    if name.startswith("__"):
        return name not in ("__bool__", "__float__", "__int__", "__index__", "__array__", "__contains__",
                            "__dlpack__", "__setitem__", "__round__")  # fmt: skip
    return name in _RULED


for _name, _function in IN_PLACE.items():
    _plain = _name.strip("_") if _name.startswith("__") else _name[:-1]
    if (_plain.removeprefix("i") if _name.startswith("__") else _plain) in (*_RULED, "truediv"):
        setattr(SparseTensor, _name, _in_place(_name if _name.startswith("__") else _plain, _function))
_OF_MEMORY = """as_subclass backward data_ptr detach_ is_set_to register_hook register_post_accumulate_grad_hook
    retain_grad storage storage_offset stride untyped_storage""".split()
for _name in {*METHODS, *IN_PLACE, *_OF_MEMORY, *[n for n in dir(Tensor) if n.endswith("_") and n[0] != "_"]}:
    if _name not in vars(SparseTensor) and not _keep(_name):
        setattr(SparseTensor, _name, _refused(_name))
