"""Moving tensors: to another dtype, to another device, to the host."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import shown
from ..autograd.graph import record
from ..device import CPU, Device
from ..dispatch.failure import allocate_for, copy_out
from ..dispatch.op import Op
from ..dtype import (
    FLOATING,
    TENSOR_TYPES,
    ComplexDType,
    DType,
    as_dtype,
    bfloat16,
    bool_,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    split_tensor_type,
    uint8,
)
from ..errors import DTypeError, MetaError
from ..observing import TRANSFER, observable
from ..ops.creation import COPY
from ..ops.registry import method
from ..overriding import of_foreign
from ..spec import Spec, elementwise_layout, is_channels_last
from ..tensor_base import TensorBase, make_tensor

if TYPE_CHECKING:
    from . import Tensor


def cast(tensor: Tensor, dtype: DType) -> Tensor:
    """The tensor in `dtype`: itself where it has that."""
    if tensor.spec.dtype is dtype:
        return tensor
    if dtype.category != FLOATING and tensor.node is not None:
        tensor = tensor.detach()  # integers have no gradient
    return COPY.call(tensor, dtype, None)


_PLACES = (Device, str)


@method(check=False)
def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """This tensor in another dtype or on another device; itself where it already is, unless `copy=True`.

    `to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`; the names `dtype`, `device`, `copy`, `memory_format`
    and `non_blocking` may be used. Raises DeviceError, saying why, for a device that cannot be used,
    DTypeError for anything but these, TypeError for another name.
    """
    spec = self.spec
    if not kwargs and len(args) == 1:
        if type(args[0]) is DType:
            return cast(self, args[0])
        if type(args[0]) in _PLACES and Device(args[0]) is spec.device:
            return self
    dtype, device = spec.dtype, spec.device
    for value in (*args, kwargs.get("dtype"), kwargs.get("device"), kwargs.get("other")):
        if isinstance(value, DType) or (isinstance(value, type) and value in (float, int, bool)):
            dtype = as_dtype(value, "to")
        elif isinstance(value, Device | str) or type(value) is int:
            device = Device(value)
        elif isinstance(value, TensorBase):
            dtype, device = value.spec.dtype, value.spec.device
        elif isinstance(value, ComplexDType):
            return _complex(self, value, args, kwargs)  # type: ignore[no-any-return]
        elif value is not None and not isinstance(value, bool):
            asked = of_foreign(value)
            if asked is not None:
                return asked("to", (self, *args), kwargs)  # type: ignore[no-any-return]
            raise DTypeError(f"to(): expected a dtype, a device or a tensor, got {value!r}")
    for name in kwargs:
        if name not in _NAMES:
            raise TypeError(f"to(): unexpected argument {name!r}; it takes {', '.join(_NAMES)}")
    if device is spec.device:
        out = cast(self, dtype)
    elif dtype.name in spec.device.backend.missing_dtypes:
        out = cast(_transfer(self, device), dtype)
    else:
        out = _transfer(cast(self, dtype), device)
    if kwargs.get("memory_format") is not None:
        from ..memory_formats import contiguous_format, preserve_format

        form = kwargs["memory_format"]
        if form is contiguous_format:
            out = out.contiguous()
        elif form is not preserve_format and not is_channels_last(out.spec):
            out = out.clone(memory_format=form)
    return out.clone() if out is self and kwargs.get("copy") else out


def _complex(tensor: Tensor, dtype: ComplexDType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def of_parts(value: Any) -> Any:
        return dtype.parts if value is dtype else value

    parts = to(tensor, *map(of_parts, args), **{name: of_parts(value) for name, value in kwargs.items()})
    pairs = import_module("norch.compat.complex_parts")  # which stands above
    return pairs.complex(parts, parts.new_zeros(parts.shape))


_NAMES = ("dtype", "device", "other", "copy", "non_blocking", "memory_format")


def _transfer(tensor: Tensor, device: Device) -> Tensor:
    if tensor.left_to is not None:
        return tensor.left_to("to", (tensor,), {"device": device})  # type: ignore[no-any-return]
    out = move_bytes(tensor, device)
    if tensor.node is not None:
        record(_TRANSFER.plans[tensor.spec, device], (tensor, device), (out,))
    return out


@lru_cache(256)
def _there(spec: Spec, device: Device) -> Spec:
    """Kept, since making it takes longer than a small copy."""
    return spec.like(device=device)


@observable(TRANSFER, "to")
def move_bytes(tensor: Tensor, device: Device) -> Tensor:
    """A contiguous copy on another device, through the host unless one backend has both.

    On the device "meta", where nothing is copied, it keeps the order of the dims in memory.
    """
    if tensor.is_meta and not (device.is_meta and device.type != "meta"):
        raise MetaError("to")
    if device.is_meta:
        strides = elementwise_layout(tensor.spec.shape, (tensor.spec,))
        spec = tensor.spec.like(tensor.spec.shape, strides, device=device)
        return make_tensor(spec, allocate_for(spec))
    source = tensor if tensor.spec.is_contiguous else tensor.detach().contiguous()
    spec = _there(source.spec, device)
    backend, old = device.backend, source.spec.device.backend
    out = make_tensor(spec, allocate_for(spec))
    start = source.offset * spec.dtype.itemsize
    if backend is old:
        backend.copy(out.buffer, 0, source.buffer, start, spec.nbytes)
    elif spec.nbytes:
        memory = backend.host_view(out.buffer) if device is CPU else None
        if memory is not None:
            copy_out(source.spec.device, source.buffer, start, memory[: spec.nbytes])
            return out
        view = old.host_view(source.buffer)
        if view is None:
            view = memoryview(bytearray(spec.nbytes))
            copy_out(source.spec.device, source.buffer, start, view)
            start = 0
        backend.copy_in(out.buffer, 0, view[start : start + spec.nbytes])
    return out


# The engine brings a gradient to its operand's device, so there is nothing left to do.
_TRANSFER = Op("to", ("x", "device"), 1, lambda spec, device: (spec.like(device=device), 0), lambda g: g, kind="view")


@method()
def cpu(self: Tensor) -> Tensor:
    """This tensor in host memory."""
    host = Device(CPU)  # what stands for it in a dry run
    return self if self.spec.device is host else _transfer(self, host)


@method()
def cuda(self: Tensor, device: int | str | Device | None = None, non_blocking: bool = False) -> Tensor:
    """This tensor on a CUDA device, the first unless given."""
    return to(self, Device("cuda", device) if isinstance(device, int) else Device(device or "cuda"))


@method("type")
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """This tensor in another dtype (or of an old tensor type, or its name); without one, the name of its dtype.

    `norch.Tensor` stands for the default dtype, as in PyTorch.
    """
    if isinstance(dtype, type) and issubclass(dtype, TensorBase):
        return to(self, get_default_dtype())
    if isinstance(dtype, str) and dtype.endswith("Tensor"):
        name, device_type = split_tensor_type(dtype, "type")
        return to(self, device_type, TENSOR_TYPES[name])
    if hasattr(dtype, "device_type"):
        return to(self, dtype.device_type, dtype.dtype)
    if isinstance(dtype, ComplexDType):
        return to(self, dtype)
    return _name_of_type(self) if dtype is None else to(self, as_dtype(dtype, "type"))


def _name_of_type(tensor: Tensor) -> str:
    """The name of the dtype; where norch is `torch`, that of PyTorch's old type, such as "torch.cuda.FloatTensor"."""
    spec = tensor.spec
    old = next((name for name, dtype in TENSOR_TYPES.items() if dtype is spec.dtype), None)
    if old is None or shown.root == "norch":
        return repr(spec.dtype)
    return f"{shown.root}.{old}" if spec.device.type == "cpu" else f"{shown.root}.{spec.device.type}.{old}"


@method()
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the dtype of `other`."""
    return to(self, other.spec.dtype)


@method("float")
def float_(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in float32."""
    return cast(self, float32) if memory_format is None else to(self, float32, memory_format=memory_format)


@method(check=False)
def cfloat(self: Tensor, memory_format: Any = None) -> Any:
    """A `ComplexPair` of this tensor in float32, with zeros for the imaginary parts. memory_format: changes nothing."""
    return to(self, complex64)


@method(check=False)
def cdouble(self: Tensor, memory_format: Any = None) -> Any:
    """A `ComplexPair` of this tensor in float64, with zeros for the imaginary parts. memory_format: changes nothing."""
    return to(self, complex128)


@method(check=False)
def double(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in float64."""
    return cast(self, float64) if memory_format is None else to(self, float64, memory_format=memory_format)


@method()
def half(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in float16."""
    return cast(self, float16) if memory_format is None else to(self, float16, memory_format=memory_format)


@method("bfloat16")
def to_bfloat16(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in bfloat16."""
    return cast(self, bfloat16) if memory_format is None else to(self, bfloat16, memory_format=memory_format)


@method()
def long(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in int64."""
    return cast(self, int64) if memory_format is None else to(self, int64, memory_format=memory_format)


@method("int")
def int_(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in int32."""
    return cast(self, int32) if memory_format is None else to(self, int32, memory_format=memory_format)


@method()
def short(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in int16."""
    return cast(self, int16) if memory_format is None else to(self, int16, memory_format=memory_format)


@method()
def char(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in int8."""
    return cast(self, int8) if memory_format is None else to(self, int8, memory_format=memory_format)


@method()
def byte(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in uint8."""
    return cast(self, uint8) if memory_format is None else to(self, uint8, memory_format=memory_format)


@method("bool")
def to_bool(self: Tensor, memory_format: Any = None) -> Tensor:
    """This tensor in bool: True where it is not 0."""
    return cast(self, bool_) if memory_format is None else to(self, bool_, memory_format=memory_format)
