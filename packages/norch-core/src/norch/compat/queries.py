"""Questions about tensors and dtypes that PyTorch has as functions."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..backend import registry
from ..device import CPU, Device
from ..dispatch.arguments import check_functions
from ..errors import DeviceError

if TYPE_CHECKING:
    from ..dtype import DType
    from ..tensor import Tensor


def is_floating_point(input: Tensor) -> bool:
    """Whether the dtype is a floating one."""
    return input.is_floating_point()


def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.is_signed()


def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not 0. Raises ShapeError where there is not exactly one."""
    return input.is_nonzero()


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.is_same_size(other)


def is_storage(obj: object) -> bool:
    """Whether `obj` is what `Tensor.storage()` returns."""
    from ..tensor import Storage

    return isinstance(obj, Storage)


def numel(input: Tensor) -> int:
    """How many elements there are."""
    return input.numel()


def get_device(input: Tensor) -> int:
    """The index of the tensor's device; -1 for the CPU."""
    return input.get_device()


def get_device_module(device: Any = None) -> Any:
    """The module of a device or device type, such as `norch.cuda` for "cuda:0"; of the accelerator unless given, and of
    the CPU where there is none. Raises DeviceError for a type that is not installed."""
    return _get_device_module(registry.accelerator() or "cpu" if device is None else Device(device).type)


def _get_device_module(device_type: str) -> Any:
    found = import_module("norch.device_module").lookup(device_type)
    if found is None:
        raise DeviceError(f"there is no device type {device_type!r}")
    return found


def _get_available_device_type() -> str | None:
    """The type of the device other than the CPU that there is, or None."""
    return registry.accelerator()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of a device, or one that is given; with `optional` of None the current one, with `allow_cpu` -1 of the
    CPU. Raises ValueError otherwise."""
    if isinstance(device, int):
        return device
    place = None if device is None else Device(device)
    if place is None and optional:
        found = registry.accelerator()
        return -1 if found is None else Device(found).index
    if place is None or (place.type == "cpu" and not allow_cpu):
        raise ValueError(f"expected a device other than the CPU with its index, got {device!r}")
    return -1 if place.type == "cpu" else place.index


def _element_size(dtype: DType) -> int:
    """The bytes of an element."""
    return dtype.itemsize


def typename(obj: object) -> str:
    """The full name of the type of `obj`; of a tensor, what `Tensor.type()` gives."""
    from ..tensor import Tensor

    if isinstance(obj, Tensor):
        return str(obj.type())
    module = getattr(obj, "__module__", "") or type(obj).__module__
    name = getattr(obj, "__qualname__", "") or type(obj).__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def detach(input: Tensor) -> Tensor:
    """A tensor of the same shape on the same memory that is no part of the graph."""
    return input.detach()


def is_inference(input: Tensor) -> bool:
    """False: there are no inference tensors apart from others."""
    return False


def set_flush_denormal(mode: bool) -> bool:
    """Has ops on the CPU that this thread runs take subnormal numbers for 0, or no longer do so where `mode` is False.

    Returns whether the backend can do so: norch-cpu can, the NumPy reference cannot. Such numbers, below 1.2e-38 in
    float32, take many processors a hundred times as long.
    """
    return CPU.backend.set_flush_denormal(bool(mode))


def set_vital(vital: str, attr: str, value: str) -> bool:
    """False, for "not kept", as PyTorch answers by default: no `value` of an `attr` of a `vital` part is gathered."""
    return False


check_functions(globals())
