"""Transposes as properties, and what PyTorch's scripts ask of a tensor beside its spec."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..dispatch.arguments import checked
from ..errors import ShapeError
from ..memory_formats import strided
from ..ops.shape.views import permute, transpose

if TYPE_CHECKING:
    from . import Tensor

_MAKING = "norch.sparse.making"


class Properties:
    __slots__ = ()

    # --- Transposes ---
    @property
    def T(self: Any) -> Tensor:
        """A view with all dims in reverse order."""
        return permute(self, tuple(range(self.spec.ndim))[::-1])

    @property
    def mT(self: Any) -> Tensor:
        """A view with the last two dims exchanged. Raises ShapeError below 2 dims."""
        if self.spec.ndim < 2:
            raise ShapeError(f"mT: expected at least 2 dims, got shape {tuple(self.spec.shape)}")
        return transpose(self, -2, -1)

    @property
    def H(self: Any) -> Tensor:
        """The transpose of a matrix. Raises ShapeError unless 2-D."""
        if self.spec.ndim != 2:
            raise ShapeError(f"H: expected a matrix, got shape {tuple(self.spec.shape)}; use mH")
        return transpose(self, 0, 1)

    mH = mT

    def adjoint(self: Any) -> Tensor:
        """`mT`, or a 0-d tensor itself: norch has no complex dtypes."""
        out: Tensor = self.mT if self.spec.ndim else self
        return out

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """What CuPy, Numba and others read a CUDA tensor by. AttributeError where it is elsewhere."""
        from .device_memory import interface_of  # ctypes is loaded when it is needed

        return interface_of(self)

    # --- Complex numbers, which norch does not have, and sparse tensors, which are made here: see norch.sparse ---
    @property
    def real(self: Any) -> Tensor:
        """The tensor itself: norch has no complex dtypes."""
        out: Tensor = self
        return out

    def conj(self: Any) -> Tensor:
        """The tensor itself: norch has no complex dtypes."""
        out: Tensor = self
        return out

    conj_physical = resolve_conj = resolve_neg = conj

    def conj_physical_(self: Any) -> Tensor:
        """The tensor itself, whose numbers are their own conjugates."""
        out: Tensor = self
        return out

    def angle(self: Any) -> Tensor:
        """`norch.angle` of this tensor: 0, or pi where it is negative."""
        return import_module("norch").angle(self)  # type: ignore[no-any-return]

    def stft(self: Any, *args: Any, **kwargs: Any) -> Any:
        """`norch.stft` of this tensor: the arguments are those behind its first. Raises as that does."""
        return import_module("norch").stft(self, *args, **kwargs)

    def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The tensor itself, in `dtype` if given: it is dense. masked_grad: changes nothing."""
        out: Tensor = self if dtype is None else self.to(dtype)
        return out

    def to_sparse(self: Any, sparse_dim: int | None = None, *, layout: Any = None, **more: Any) -> Any:
        """A COO tensor, or in `layout`, of the elements that are not 0; of fewer `sparse_dim` than dims, those slices.

        Waits for the values. Raises ShapeError and DTypeError for what norch's sparse tensors cannot be.
        """
        return import_module(_MAKING).to_sparse(self, sparse_dim, layout=layout, **more)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self: Any, dense_dim: int | None = None) -> Any:
        """A CSR tensor of a matrix's elements that are not 0. Raises ShapeError for others, and for a `dense_dim`."""
        return import_module(_MAKING).to_sparse_csr(self, dense_dim)

    def to_sparse_csc(self: Any, dense_dim: int | None = None) -> Any:
        """A CSC tensor, as `to_sparse_csr`. Raises ShapeError for others, and for a `dense_dim`."""
        return import_module(_MAKING).to_sparse_csc(self, dense_dim)

    def sparse_mask(self: Any, mask: Any) -> Any:
        """The elements at the places of `mask`, sparse as it is. Raises ShapeError unless that has this shape."""
        return import_module(_MAKING).sparse_mask(self, mask)

    def _repr_html_(self: Any) -> str | None:
        """What a notebook shows; None, which is the plain text, for tensors without strides."""
        found: str | None = import_module("norch.inspection.notebook").tensor_html(self)
        return found

    def is_conj(self) -> bool:
        """False: norch has no complex dtypes."""
        return False

    def is_neg(self) -> bool:
        """False: a negative is computed at once."""
        return False

    def is_coalesced(self) -> bool:
        """False: it is dense."""
        return False

    @property
    def layout(self) -> Any:
        """`norch.strided`."""
        return strided

    @property
    def is_sparse(self) -> bool:
        """False: see `norch.sparse`."""
        return False

    is_sparse_csr = is_quantized = is_mkldnn = is_nested = is_sparse

    # --- Devices and memory ---
    @property
    def is_mps(self: Any) -> bool:
        """Whether the values are on a device of type "mps"."""
        return bool(self.spec.device.type == "mps")

    @property
    def is_xpu(self: Any) -> bool:
        """Whether the values are on a device of type "xpu"."""
        return bool(self.spec.device.type == "xpu")

    @property
    def is_meta(self: Any) -> bool:
        """Whether the tensor is on the device "meta", where it has no values."""
        return bool(self.spec.device.is_meta)

    def get_device(self: Any) -> int:
        """The index of the tensor's device; -1 for the CPU and "meta"."""
        return -1 if self.spec.device.type in ("cpu", "meta") else int(self.spec.device.index)

    @checked
    def is_set_to(self: Any, tensor: Tensor) -> bool:
        """Whether both show the same memory in the same way. tensor: of any shape."""
        return bool(self.buffer is tensor.buffer and self.offset == tensor.offset and self.spec is tensor.spec)

    # --- Values, shape and graph ---
    def is_nonzero(self: Any) -> bool:
        """Whether the only element is not 0. Raises ShapeError where there is not exactly one."""
        return bool(self)

    @checked
    def is_same_size(self: Any, other: Tensor) -> bool:
        """Whether two tensors have the same shape."""
        return bool(self.spec.shape == other.spec.shape)

    @property
    def output_nr(self) -> int:
        """Which result of its op this is."""
        return int(getattr(getattr(self, "node", None), "position", 0))
