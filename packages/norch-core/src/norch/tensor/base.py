"""What a tensor is made of, and its part in the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .. import switches
from ..autograd.engine import backward
from ..autograd.graph import RETAIN, Leaf, Node, next_sequence_number, resolve
from ..autograd.hooks import RemovableHandle, Retained, hooks_of
from ..device import Device
from ..dtype import DType
from ..errors import AutogradError, DTypeError, IndexError, ShapeError
from ..spec import Size, Spec, wrap_dim
from ..tensor_base import TensorBase, make_tensor
from .storage import TypedStorage, UntypedStorage

if TYPE_CHECKING:
    from . import Tensor


class GraphMethods(TensorBase):
    """Shape and type of a tensor, and its part in the graph."""

    __slots__ = ()

    # --- Shape and type ---------------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The size of each dim."""
        return self.spec.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        return self.spec.dtype

    @property
    def device(self) -> Device:
        """Where the values are."""
        return self.spec.device

    @property
    def ndim(self) -> int:
        """How many dims there are."""
        return self.spec.ndim

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.spec.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps or sharing."""
        return self.spec.numel * self.spec.dtype.itemsize

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of dim `dim`. Raises IndexError for a dim out of range."""
        return self.spec.shape if dim is None else self.spec.shape[_wrapped(dim, self.spec.ndim, "size")]

    def dim(self) -> int:
        """How many dims there are."""
        return self.spec.ndim

    def ndimension(self) -> int:
        """How many dims there are."""
        return self.spec.ndim

    def numel(self) -> int:
        """How many elements there are."""
        return self.spec.numel

    def nelement(self) -> int:
        """How many elements there are."""
        return self.spec.numel

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.spec.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """For each dim (or for `dim`) how many elements of the buffer lie between neighbours.

        Raises IndexError for a dim out of range.
        """
        return self.spec.strides if dim is None else self.spec.strides[_wrapped(dim, self.spec.ndim, "stride")]

    def storage_offset(self) -> int:
        """Where in the buffer, in elements, the tensor starts."""
        return self.offset

    def is_contiguous(self, memory_format: object = None) -> bool:
        """Whether the elements lie in row-major order, or that of `memory_format`, without gaps; False where that is
        for another number of dims."""
        if memory_format is not None:
            from ..memory_formats import channels_behind, suits

            if not suits(self, memory_format):  # type: ignore[arg-type]
                return False
            behind = channels_behind(self, memory_format, "is_contiguous")  # type: ignore[arg-type]
            return (self if behind is None else behind).spec.is_contiguous
        return self.spec.is_contiguous

    def is_floating_point(self) -> bool:
        """Whether the dtype is a floating one."""
        return self.spec.dtype.is_floating_point

    def is_complex(self) -> bool:
        """False: norch has no complex dtypes."""
        return False

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.spec.dtype.is_signed

    def data_ptr(self) -> int:
        """The address of the first element; 0 where the device's addresses mean nothing."""
        if self.left_to is not None:
            return 0
        at = self.spec.device.backend.data_ptr(self.buffer)
        return at + self.offset * self.spec.dtype.itemsize if at else 0

    def storage(self) -> TypedStorage:
        """The buffer behind this tensor and its views, as elements of its dtype."""
        return TypedStorage(self)

    _typed_storage = storage

    def untyped_storage(self) -> UntypedStorage:
        """The buffer behind this tensor and its views, as bytes."""
        return UntypedStorage(self)

    @property
    def is_cpu(self) -> bool:
        """Whether the values are in host memory."""
        return self.spec.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether the values are on a CUDA device."""
        return self.spec.device.type == "cuda"

    # --- The graph --------------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether ops on this tensor are recorded. Settable on leaves."""
        return self.node is not None and resolve(self) is not None  # type: ignore[arg-type]

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Marks a leaf itself as wanting a gradient, or not. DTypeError unless floating, AutogradError for results of
        ops.
        """
        this: Tensor = self  # type: ignore[assignment]
        node = resolve(this)
        if requires_grad:
            if node is None:
                if not self.spec.dtype.is_floating_point:
                    raise DTypeError(f"requires_grad_(): only floating tensors can require grad, got {self.spec.dtype}")
                self.node = self.__dict__.pop("_leaf", None) or Leaf(this)
                switches.moved()
        elif node is not None:
            if type(node) is not Leaf:
                raise AutogradError(
                    f"requires_grad_(): a result of {node.title()} requires grad as long as "
                    "its operands do; use detach()"
                )
            if node.hooks is not None:
                self.__dict__["_leaf"] = node  # its hooks are for when it requires grad again
            self.node = None
            switches.moved()
        return this

    @property
    def _cdata(self) -> int:
        """What tells this tensor from others that live, as programs know it from PyTorch."""
        return id(self)

    @property
    def is_leaf(self) -> bool:
        """True for tensors that no recorded op made."""
        node = resolve(self)  # type: ignore[arg-type]
        return node is None or type(node) is Leaf

    @property
    def grad_fn(self) -> Node | None:
        """The node of the op that made this tensor; None for a leaf."""
        node = resolve(self)  # type: ignore[arg-type]
        return None if type(node) is Leaf else node

    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward passes have gathered here. Settable to None or a tensor of the same shape.

        Raises DTypeError for anything else, ShapeError for another shape or dtype.
        """
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, TensorBase):
                raise DTypeError(f"grad: expected a Tensor or None, got {type(value).__name__}")
            if value.spec.shape != self.spec.shape or value.spec.dtype is not self.spec.dtype:
                raise ShapeError(
                    f"grad: a gradient of shape {tuple(value.spec.shape)}, {value.spec.dtype} for a tensor of shape "
                    f"{tuple(self.spec.shape)}, {self.spec.dtype}"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def zero_grad(self) -> None:
        """Forgets the gradient."""
        self._grad = None

    def backward(
        self,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Adds this tensor's gradients to the `.grad` of the leaves it depends on. See `norch.autograd.backward`."""
        backward(self, gradient, retain_graph, create_graph, inputs)  # type: ignore[arg-type]

    def detach(self) -> Tensor:
        """A tensor on the same memory that is no part of the graph."""
        if self.left_to is not None:
            return self.left_to("detach", (self,), {})  # type: ignore[no-any-return]
        return make_tensor(self.spec, self.buffer, self.offset) if type(self.spec) is Spec else self._detached()

    def _detached(self) -> Tensor:
        return make_tensor(self.spec, self.buffer, self.offset)

    def detach_(self) -> Tensor:
        """Takes this tensor itself out of the graph. Raises AutogradError for a view of a tensor in it."""
        if self.base is not None and self.base.requires_grad:
            raise AutogradError("detach_(): a view cannot be taken out of the graph of its base; use detach()")
        self.node = None
        return self  # type: ignore[return-value]

    @property
    def data(self) -> Tensor:
        """`detach()`, but `x.data[...] = value`, `x.data.normal_()` and `x.data.uniform_()` are no changes that a
        backward pass looks for; assigning replaces the values, and may change shape and dtype."""
        found = self.detach()
        found.__dict__["_unused_since"] = next_sequence_number()
        return found

    @data.setter
    def data(self, value: Tensor) -> None:
        self.spec, self.buffer, self.offset = value.spec, value.buffer, value.offset
        switches.moved()

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Calls `hook(grad)` when this tensor's gradient is known; what it returns, if anything, replaces it.

        Raises AutogradError for a tensor that requires no grad.
        """
        node = resolve(self)  # type: ignore[arg-type]
        if node is None:
            raise AutogradError("register_hook(): the tensor does not require grad")
        hooks = hooks_of(node)
        handle = RemovableHandle(hooks, hook)
        if RETAIN in hooks:
            hooks[RETAIN] = hooks.pop(RETAIN)  # comes last, to keep what the others make of the gradient
        return handle

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook(tensor)` as soon as a backward pass has added all that it will to this leaf's `.grad`.

        That is while the pass goes on with the ops before, so what is begun here runs beside them. Raises AutogradError
        unless this is a leaf that requires grad.
        """
        node = resolve(self)  # type: ignore[arg-type]
        if type(node) is not Leaf:
            raise AutogradError("register_post_accumulate_grad_hook(): the tensor is no leaf that requires grad")
        return RemovableHandle(hooks_of(node).after, hook)

    def retain_grad(self) -> None:
        """Makes a result of an op keep its gradient in `.grad`, as leaves do. AutogradError unless it requires grad."""
        node = resolve(self)  # type: ignore[arg-type]
        if node is None:
            raise AutogradError("retain_grad(): the tensor does not require grad")
        if type(node) is not Leaf and not self.__dict__.get("_retains"):
            self.__dict__["_retains"] = True
            hooks_of(node)[RETAIN] = Retained(self)  # type: ignore[arg-type]

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called."""
        return bool(self.__dict__.get("_retains"))

    @property
    def _version(self) -> int:
        """When the memory was last changed in place: 0 if never. Grows with every change."""
        modified = self.buffer.modified
        return 0 if modified is None else int(modified[0])

    def _is_view(self) -> bool:
        return self.base is not None

    @property
    def _base(self) -> Tensor | None:
        """The tensor that this one is a view of, under PyTorch's name."""
        return self.base

    def is_inference(self) -> bool:
        """False: there are no inference tensors apart from others."""
        return False


def _wrapped(dim: int, ndim: int, op: str) -> int:
    at = wrap_dim(dim, ndim, op)
    if ndim == 0:
        raise IndexError(f"{op}(): a 0-d tensor has no dim {dim}")
    return at
