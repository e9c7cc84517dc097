"""Memory of devices exchanged with other libraries, without a copy: DLPack capsules and CUDA's array interface.

https://dmlc.github.io/dlpack/latest/c_api.html and
https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html say what both look like.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ..device import Device
from ..dtype import BOOL, DTYPES, FLOATING, DType, bfloat16
from ..errors import AutogradError, DeviceError, DTypeError
from ..spec import Spec, span
from ..tensor_base import make_tensor
from .dlpack import DELETER, NAME, TYPES, DLTensor, Managed, unread

if TYPE_CHECKING:
    from . import Tensor

_BY_TYPE = {number: name for name, number in TYPES.items()}
_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
"""DLDataTypeCode."""
_KINDS = {_INT: "i", _UINT: "u", _FLOAT: "f", _BOOL: "b"}
"""The same in NumPy's type strings."""
_ANY_STREAM = -1


_exported: dict[int, Any] = {}
"""What capsules that are not done with describe, by the address of the description."""


def _forget(address: int) -> None:
    _exported.pop(address, None)


def _forget_unused(capsule: int) -> None:
    """Of a capsule that nobody took."""
    if _api("PyCapsule_IsValid", ctypes.c_int)(capsule, NAME):
        _exported.pop(_api("PyCapsule_GetPointer", ctypes.c_void_p)(capsule, NAME), None)


_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_delete, _destroy = DELETER(_forget), _DESTRUCTOR(_forget_unused)
for _function in (_delete, _destroy):  # which are called, while the interpreter ends, when this module is gone
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_function))


def _api(name: str, result: Any) -> Any:
    """A function of Python's API that takes the address of a capsule, and a name."""
    return ctypes.PYFUNCTYPE(result, ctypes.c_void_p, ctypes.c_char_p)((name, ctypes.pythonapi))


def _code_of(dtype: DType) -> tuple[int, int]:
    if dtype is bfloat16:
        return _BFLOAT, 16
    if dtype.is_stored and dtype.category == FLOATING:
        raise DTypeError(f"__dlpack__(): {dtype} tensors of devices cannot be exchanged; view(norch.uint8) can be")
    code = _BOOL if dtype.category == BOOL else _FLOAT if dtype.category == FLOATING else _INT
    return (_UINT if dtype.name.startswith("uint") else code), 8 * dtype.itemsize


_BY_CODE = {_code_of(dtype): dtype for dtype in DTYPES if not (dtype.is_stored and dtype.category == FLOATING)}


def _address(tensor: Tensor) -> int:
    """Where its first element lies, of which no gradient is recorded."""
    if tensor.requires_grad:
        raise AutogradError("__dlpack__(): the tensor requires grad, which other libraries cannot; use detach()")
    spec = tensor.spec
    start: int = spec.device.backend.data_ptr(tensor.buffer)
    return start + tensor.offset * spec.dtype.itemsize if spec.numel else 0


def capsule_of(tensor: Tensor, stream: Any = None) -> Any:
    """A DLPack capsule on the memory of a tensor on a device of TYPES.

    stream: as the protocol has it; -1 where the caller waits itself for what computes the tensor.
    """
    spec, address = tensor.spec, _address(tensor)
    if stream != _ANY_STREAM:
        _module(spec.device).current_stream(spec.device).synchronize()
    code, bits = _code_of(spec.dtype)
    sizes = ctypes.c_int64 * max(spec.ndim, 1)
    shape, strides = sizes(*spec.shape), sizes(*spec.strides)
    made = Managed()
    made.tensor = DLTensor(
        address or None, TYPES[spec.device.type], spec.device.index, spec.ndim, code, bits, 1, shape, strides, 0
    )
    made.deleter = _delete
    where = ctypes.addressof(made)
    new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)
    capsule = new(("PyCapsule_New", ctypes.pythonapi))(where, NAME, _destroy)
    _exported[where] = made, shape, strides, tensor
    return capsule


def interface_of(tensor: Tensor) -> dict[str, Any]:
    """CUDA's array interface of a tensor; AttributeError for one that is elsewhere, as where there is none."""
    spec = tensor.spec
    if spec.device.type != "cuda":
        raise AttributeError(f"__cuda_array_interface__: the tensor is on {spec.device}")
    code, bits = _code_of(spec.dtype)
    if code == _BFLOAT:
        raise AttributeError("__cuda_array_interface__: bfloat16 has no code there; view(norch.int16) has one")
    strides = None if spec.is_contiguous else tuple([s * spec.dtype.itemsize for s in spec.strides])
    stream = _module(spec.device).current_stream(spec.device).cuda_stream
    return {
        "shape": tuple(spec.shape),
        "typestr": f"{'|' if bits == 8 else '<'}{_KINDS[code]}{bits // 8}",
        "data": (_address(tensor), False),
        "version": 3,
        "strides": strides,
        "stream": stream or 1,  # 1 is the default one
    }


def from_other(source: Any, number: int, index: int) -> Tensor:
    """A tensor on the memory that a capsule, or the one that `source.__dlpack__()` gives, describes, of device `index`
    of the DLDeviceType `number`. Raises DeviceError for one that is not in TYPES."""
    kind = _BY_TYPE.get(number)
    if kind is None:
        raise DeviceError(
            f"from_dlpack(): the data are on a device of DLPack's type {number}; norch takes the CPU and CUDA"
        )
    device = Device(kind, index)
    if hasattr(source, "__dlpack__"):
        stream = _module(device).current_stream(device).cuda_stream
        source = source.__dlpack__(stream=stream or 1)
    return _on_memory_of(source, device)


def _on_memory_of(capsule: Any, device: Device) -> Tensor:
    held = unread(capsule)
    if held is None:
        raise DeviceError("from_dlpack(): the capsule was taken already")
    name, managed = held
    given = managed.tensor
    dtype = _BY_CODE.get((given.code, given.bits))
    if dtype is None or given.lanes != 1:
        raise DTypeError(f"from_dlpack(): norch has no dtype for elements of code {given.code} and {given.bits} bits")
    shape = tuple(given.shape[: given.ndim])
    strides = tuple(given.strides[: given.ndim]) if given.strides else None
    start = (given.data or 0) + given.byte_offset
    found = on_memory(start, shape, strides, dtype, device, _Taken(capsule, managed))
    _rename(id(capsule), b"used_" + name)
    return found


def _rename(at: int, name: bytes) -> None:
    kept = _NAMES.setdefault(name, ctypes.c_char_p(name))
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))(at, kept)


_NAMES: dict[bytes, Any] = {}


class _Taken:
    """What a capsule held: its deleter is called when the memory is no longer used."""

    def __init__(self, capsule: Any, managed: Any) -> None:
        self.capsule, self.managed = capsule, managed

    def __del__(self) -> None:
        if self.managed.deleter:
            self.managed.deleter(ctypes.addressof(self.managed))


def from_interface(source: Any) -> Tensor:
    """A tensor on the memory that CUDA's array interface of `source` describes. Raises DTypeError for elements that
    norch has no dtype for."""
    given = source.__cuda_array_interface__
    kind, size = given["typestr"][1], int(given["typestr"][2:])
    dtype = next((_BY_CODE.get((code, 8 * size)) for code, letter in _KINDS.items() if letter == kind), None)
    if dtype is None:
        raise DTypeError(f"as_tensor(): norch has no dtype for elements {given['typestr']!r}")
    shape, strides = tuple(given["shape"]), given.get("strides")
    device = Device("cuda", int(getattr(getattr(source, "device", None), "id", 0)))
    if given.get("stream") is not None:
        _module(device).wait_for_handle(given["stream"], device)
    counts = None if strides is None else tuple([s // dtype.itemsize for s in strides])
    return on_memory(given["data"][0] or 0, shape, counts, dtype, device, source)


def on_memory(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: DType, device: Device, owner: Any
) -> Tensor:
    """A tensor on memory of a device that `owner` keeps. Raises DeviceError for negative strides."""
    spec = Spec(shape, None, dtype, device) if strides is None else Spec(shape, strides, dtype, device)
    if any(s < 0 for s in spec.strides):
        raise DeviceError(f"from_dlpack(): strides {strides} are negative, which norch's never are")
    nbytes = span(spec.shape, spec.strides) * dtype.itemsize if spec.numel else 0
    buffer = device.backend.adopt(address, nbytes, device.index, owner)
    if buffer is None:
        raise DeviceError(f"from_dlpack(): the backend of {device} takes no memory of others")
    return make_tensor(spec, buffer)


def _module(device: Device) -> Any:
    backend: Any = device.backend
    return backend.module
