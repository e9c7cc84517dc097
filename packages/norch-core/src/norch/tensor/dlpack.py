"""Tensors as DLPack capsules, and back. NumPy, which makes and reads them, lacks some dtypes: they pass as integers.

https://dmlc.github.io/dlpack/latest/c_api.html says how a capsule is laid out.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dispatch.arguments import checked
from ..dtype import DType, bfloat16, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, int8, int16
from ..errors import DeviceError
from ..ops.from_data import array_to_tensor
from ..ops.registry import method

if TYPE_CHECKING:
    from . import Tensor

_INT = 0
_CODES = {bfloat16: 4, float8_e4m3fn: 10, float8_e4m3fnuz: 11, float8_e5m2: 12, float8_e5m2fnuz: 13}
"""DLDataTypeCode of what NumPy lacks."""
_BY_CODE = {code: dtype for dtype, code in _CODES.items()}


TYPES = {"cuda": 2}
"""DLDeviceType of the device types whose buffers have addresses that other libraries know."""


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", DELETER),
        ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    )  # fmt: skip


NAME = b"dltensor"
"""Of a capsule that nobody took."""


def unread(capsule: Any) -> tuple[bytes, Any] | None:
    """A capsule's name and what it holds, to be read and written; None if it was taken already."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    for name, kind in ((NAME, Managed), (b"dltensor_versioned", Versioned)):
        if api.PyCapsule_IsValid(capsule, name):
            return name, kind.from_address(api.PyCapsule_GetPointer(capsule, name))
    return None


def _on_devices() -> Any:
    return import_module("norch.tensor.device_memory")  # which few programs need


_BEFORE_VERSIONS = np.lib.NumpyVersion(np.__version__) < "2.1.0"
"""Whether NumPy knows no versions of the protocol: then it takes no such arguments, and what it reads is read-only."""


def _exported(array: np.ndarray[Any, Any], kwargs: dict[str, Any]) -> Any:
    if _BEFORE_VERSIONS and kwargs.keys() <= {"stream", "max_version", "dl_device", "copy"}:
        return (array.copy() if kwargs.get("copy") else array).__dlpack__()
    return array.__dlpack__(**kwargs)


class _Writable:
    """The memory of an array that NumPy takes for read-only."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def _stand_in(dtype: DType) -> DType:
    return int16 if dtype is bfloat16 else int8


@method()
def __dlpack__(self: Tensor, **kwargs: Any) -> Any:
    """A DLPack capsule on this tensor's memory, on the CPU or a CUDA device. Raises as `numpy()` does where that is not
    to be had."""
    dtype = self.spec.dtype
    if self.spec.device.type in TYPES:
        return _on_devices().capsule_of(self, kwargs.get("stream"))
    if dtype not in _CODES:
        return _exported(self.numpy(), kwargs)
    if self.requires_grad:
        self.numpy()  # raises
    capsule = _exported(self.view(_stand_in(dtype)).numpy(), kwargs)
    held = unread(capsule)
    assert held is not None
    held[1].tensor.code = _CODES[dtype]
    return capsule


@method()
def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    device = self.spec.device
    if device.type in TYPES:
        return TYPES[device.type], device.index
    if device.type != "cpu":
        raise DeviceError(f"__dlpack_device__(): only CPU and CUDA tensors can be exchanged, this one is on {device}")
    return (1, 0)


class _Given:
    """What NumPy is to read of `source`: integers where it lacks the dtype, which then is `dtype`."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.dtype: DType | None = None

    def __dlpack__(self, **kwargs: Any) -> Any:
        capsule = self.source if type(self.source).__name__ == "PyCapsule" else self.source.__dlpack__(**kwargs)
        held = unread(capsule)
        self.dtype = None if held is None else _BY_CODE.get(held[1].tensor.code)
        if held is not None and self.dtype is not None:
            held[1].tensor.code = _INT
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def _device_of(source: Any) -> tuple[int, int]:
    """The DLDeviceType and the index of a capsule, or of what gives one."""
    if hasattr(source, "__dlpack_device__"):
        number, index = source.__dlpack_device__()
        return int(number), int(index)
    if type(source).__name__ != "PyCapsule":
        return 1, 0
    held = unread(source)
    if held is None:
        raise DeviceError("from_dlpack(): the capsule was taken already")
    return held[1].tensor.device_type, held[1].tensor.device_id


@checked
def from_dlpack(source: Any) -> Tensor:
    """A tensor of the same shape on the memory of `source`, any object with `__dlpack__` on the CPU or a CUDA device
    (NumPy, PyTorch, JAX, CuPy, …); else DeviceError.

    A capsule, which `__dlpack__` gives, is taken too; of one on the CPU what it says must not be written is copied.
    """
    number, index = _device_of(source)
    if number != 1:
        return _on_devices().from_other(source, number, index)  # type: ignore[no-any-return]
    if isinstance(source, np.ndarray):
        return array_to_tensor(source, None, False)
    given = _Given(source)
    array = np.from_dlpack(given)
    result = array_to_tensor(np.asarray(_Writable(array)) if _BEFORE_VERSIONS else array, None, False)
    return result if given.dtype is None else result.view(given.dtype)
