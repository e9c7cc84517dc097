"""Methods that PyTorch's tensors have beside the ops: questions, hooks, memory that is pinned, functions of Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..compat import queries
from ..device import Device
from ..errors import AutogradError, DeviceError, DTypeError, ShapeError
from ..ops import creation_like, tensor
from ..ops.elementwise import arithmetic as elementwise
from ..ops.shape import views as movement
from ..spec import Size
from . import shape_changes
from .base import RemovableHandle

if TYPE_CHECKING:
    from . import Tensor


class OtherMethods:
    __slots__ = ()

    # --- Questions ---
    get_device = queries.get_device
    is_nonzero = queries.is_nonzero
    is_same_size = queries.is_same_size

    def is_set_to(self: Any, tensor: Tensor) -> bool:
        """Whether both show the same memory in the same way."""
        return bool(self.buffer is tensor.buffer and self.offset == tensor.offset and self.spec is tensor.spec)

    def is_conj(self) -> bool:
        """False: norch has no complex dtypes."""
        return False

    def is_shared(self) -> bool:
        """False: tensors are not in memory that processes share."""
        return False

    def is_coalesced(self) -> bool:
        """False: norch has no sparse tensors."""
        return False

    @property
    def layout(self) -> Any:
        """`norch.strided`."""
        from ..memory_format import strided

        return strided

    @property
    def is_sparse(self) -> bool:
        """False: norch has no sparse tensors."""
        return False

    is_sparse_csr = is_quantized = is_mkldnn = is_meta = is_nested = is_sparse

    @property
    def is_mps(self: Any) -> bool:
        """Whether the values are on a device of type "mps"."""
        return bool(self.spec.device.type == "mps")

    @property
    def is_xpu(self: Any) -> bool:
        """Whether the values are on a device of type "xpu"."""
        return bool(self.spec.device.type == "xpu")

    @property
    def output_nr(self) -> int:
        """Which result of its op this is."""
        return int(getattr(getattr(self, "node", None), "position", 0))

    # --- Views ---
    squeeze_ = shape_changes.squeeze_
    unsqueeze_ = shape_changes.unsqueeze_
    transpose_ = swapaxes_ = swapdims_ = shape_changes.transpose_
    t_ = shape_changes.t_
    resize_ = shape_changes.resize_
    resize_as_ = shape_changes.resize_as_
    set_ = shape_changes.set_
    fill_diagonal_ = shape_changes.fill_diagonal_

    @property
    def mH(self: Any) -> Tensor:
        """`mT`: norch has no complex dtypes."""
        out: Tensor = self.mT
        return out

    @property
    def H(self: Any) -> Tensor:
        """The transpose of a matrix. Raises ShapeError unless 2-D."""
        if self.spec.ndim != 2:
            raise ShapeError(f"H: expected a matrix, got shape {tuple(self.spec.shape)}; use mH")
        return movement.transpose(self, 0, 1)

    def adjoint(self: Any) -> Tensor:
        """`mT`: norch has no complex dtypes."""
        out: Tensor = self.mT
        return out

    @property
    def real(self: Any) -> Tensor:
        """The tensor itself: norch has no complex dtypes."""
        out: Tensor = self
        return out

    def to_dense(self: Any) -> Tensor:
        """The tensor itself: norch has no sparse tensors."""
        out: Tensor = self
        return out

    def sum_to_size(self: Any, *size: Any) -> Tensor:
        """The sum over the dims that `size` lacks or has 1 in. ShapeError where `size` does not broadcast back."""
        from ..spec import as_shape

        wanted = as_shape(size, "sum_to_size")
        shape = tuple(self.spec.shape)
        lead = len(shape) - len(wanted)
        if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, shape[lead:], strict=True)):
            raise ShapeError(f"sum_to_size(): shape {shape} does not sum to {wanted}")
        over = [d for d, m in enumerate(shape) if d < lead or (wanted[d - lead] == 1 != m)]
        out: Tensor = self.sum(over, dtype=self.spec.dtype) if over else self
        return movement.reshape(out, wanted)

    def where(self: Any, condition: Tensor, other: Any) -> Tensor:
        """This tensor where `condition` is True, `other` elsewhere; the three broadcast."""
        return elementwise.where(condition, self, other)

    # --- New tensors ---
    new_empty_strided = creation_like.new_empty_strided

    def new(self: Any, *data: Any, device: Any = None) -> Tensor:
        """`new_tensor` of data, or `new_empty` of sizes, as `Tensor(...)`. PyTorch's old form of both."""
        place = self.spec.device if device is None else device
        if len(data) == 1 and not isinstance(data[0], int):
            if isinstance(data[0], Size):
                return creation_like.new_empty(self, tuple(data[0]), device=place)
            return creation_like.new_tensor(self, data[0], device=place)
        return creation_like.new_empty(self, data or (0,), device=place)

    # --- Python functions of elements ---
    def apply_(self: Any, function: Callable[[Any], Any]) -> Tensor:
        """Replaces every element by `function` of it, a Python function: slow, and on the CPU only."""
        return _mapped(self, function, (), "apply_")

    def map_(self: Any, tensor: Tensor, function: Callable[[Any, Any], Any]) -> Tensor:
        """Replaces every element by `function` of it and of the other tensor's; slow, and on the CPU only."""
        return _mapped(self, function, (tensor,), "map_")

    # --- Memory and streams ---
    def pin_memory(self: Any, device: Any = None) -> Tensor:
        """A copy in host memory that a GPU reads directly. Raises DeviceError where no device has such memory."""
        if self.spec.device.type != "cpu":
            raise DeviceError(f"pin_memory(): only CPU tensors can be pinned, this one is on {self.spec.device}")
        try:
            backend: Any = Device("cuda" if device is None else device).backend
        except DeviceError as error:
            raise DeviceError(f"pin_memory(): there is no device to pin memory for: {error}") from None
        out: Tensor = backend.module.pin_memory(self)
        (out if out.base is None else out.base).__dict__["_pinned"] = True
        return out

    def is_pinned(self: Any, device: Any = None) -> bool:
        """Whether `pin_memory` made this tensor, or what it is a view of."""
        return "_pinned" in (self if self.base is None else self.base).__dict__

    def record_stream(self, stream: Any) -> None:
        """Does nothing: memory notes by itself which streams use it."""

    def share_memory_(self) -> Tensor:
        """Not supported. Raises NotImplementedError: to pass values between processes, send arrays."""
        raise NotImplementedError("share_memory_(): norch has no memory that processes share; send x.numpy()")

    # --- Autograd ---
    def register_post_accumulate_grad_hook(self: Any, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls `hook(tensor)` after a backward pass has added to this leaf's `.grad`. AutogradError unless a leaf."""
        from ..autograd.graph import Leaf, resolve

        node = resolve(self)
        if type(node) is not Leaf:
            raise AutogradError("register_post_accumulate_grad_hook(): the tensor is no leaf that requires grad")
        if node.hooks is None:
            node.hooks = {}  # the engine looks for these hooks where it finds any
        hooks = self.__dict__.setdefault("_after_grad", {})
        return RemovableHandle(hooks, hook)


def _mapped(self: Any, function: Callable[..., Any], others: tuple[Any, ...], op: str) -> Tensor:
    if self.spec.device.type != "cpu":
        raise DeviceError(f"{op}(): a Python function of elements runs on the CPU only, not on {self.spec.device}")
    for other in others:
        if other.spec.dtype is not self.spec.dtype:
            raise DTypeError(f"{op}(): tensors of {self.spec.dtype} and {other.spec.dtype}; convert one")
    if self.requires_grad:
        raise AutogradError(f"{op}(): cannot be differentiated; use it on detach()")
    columns = [x.expand(tuple(self.spec.shape)).reshape(-1).tolist() for x in (self, *others)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    made = tensor(values, dtype=self.spec.dtype).reshape(tuple(self.spec.shape))
    out: Tensor = self.copy_(made)
    return out
