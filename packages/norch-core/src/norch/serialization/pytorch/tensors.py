"""Storages, which are the memory that PyTorch's tensors lie on, here as flat tensors, and the tensors on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...device import CPU, Device
from ...dtype import ALL, TENSOR_TYPES, ComplexDType, DType, bool_, float16, float32, float64, uint8
from ...ops.creation import empty_spec
from ...ops.from_data import array_to_tensor
from ...spec import Spec, span
from ...tensor import Tensor, TypedStorage
from ...tensor_base import make_tensor
from ..files import memory
from ..header import MAX_DIMS
from ..tree import as_pair, device_named

if TYPE_CHECKING:
    from ...spec import Shape
    from ..files import File


class StorageType:
    """The class of a storage: it says the dtype of its elements, which of complex numbers are two each, the parts. An
    untyped one has bytes.
    """

    def __init__(self, dtype: DType, parts: int = 1) -> None:
        self.dtype, self.parts = dtype, parts


STORAGES = {name.replace("Tensor", "Storage"): StorageType(dtype) for name, dtype in TENSOR_TYPES.items()} | {
    "ComplexHalfStorage": StorageType(float16, 2),
    "ComplexFloatStorage": StorageType(float32, 2),
    "ComplexDoubleStorage": StorageType(float64, 2),
}
UNTYPED = StorageType(uint8)
_NAMES = {
    "qint8": "QInt8", "quint8": "QUInt8", "qint32": "QInt32",
    "quint4x2": "QUInt4x2", "quint2x4": "QUInt2x4", "float8_e8m0fnu": "", "float4_e2m1fn_x2": "",
}  # fmt: skip
_HERE = {dtype.name for dtype in ALL}
LACKED = {name: dtype for dtype, kind in _NAMES.items() if dtype not in _HERE for name in (dtype, f"{kind}Storage")}
"""By name in PyTorch: dtypes that norch lacks, and their storages."""


def lacked(name: str) -> str:
    """What to say of a file that holds one of LACKED."""
    dtype = LACKED[name]
    save = "dequantize()" if dtype[0] == "q" else "to(torch.float32)"
    return (
        f"it holds a tensor of {dtype}, of which norch has none; it has {', '.join(d.name for d in ALL)}; where "
        f"PyTorch is installed, save its {save}"
    )


def device_at(location: str) -> Device:
    """The device of a location such as "cpu" or "cuda:0". ValueError for another."""
    return CPU if location == "cpu" else device_named(location if ":" in location else f"{location}:0")


def as_storage(flat: Tensor) -> Any:
    """What a file gives for a storage: one of a flat tensor on all of its memory, of another that tensor."""
    return TypedStorage(flat) if flat.offset == 0 and flat.nbytes == flat.buffer.nbytes else flat


def rebuild(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, dtype: Any = None) -> Any:
    """A tensor on a storage, on one of pairs a pair. ValueError for what does not lie within it."""
    storage = storage._tensor if isinstance(storage, TypedStorage) else storage
    of_pairs = not isinstance(storage, Tensor) and hasattr(storage, "pair") and dtype is None
    if (of_pairs or isinstance(dtype, ComplexDType)) and type(offset) is int:
        flat, parts = (storage.pair.view(-1), None) if of_pairs else (storage, dtype.parts)
        shape, strides = (*_sizes(size), 2), (*(2 * n for n in _sizes(stride)), 1)
        return as_pair(rebuild(flat, 2 * offset, shape, strides, requires_grad, parts))
    if not isinstance(storage, Tensor) or storage.spec.ndim != 1 or not storage.spec.is_contiguous:
        raise ValueError("a tensor has no storage")
    spec = storage.spec
    chosen = spec.dtype if dtype is None else dtype
    if not isinstance(chosen, DType) or type(offset) is not int or offset < 0 or type(requires_grad) is not bool:
        raise ValueError("a tensor has no dtype or offset")
    shape, strides = _sizes(size), _sizes(stride)
    if len(shape) != len(strides):
        raise ValueError("a tensor has not as many strides as dims")
    new = Spec(shape, strides, chosen, spec.device)
    begin = storage.offset * spec.dtype.itemsize
    room = spec.numel * spec.dtype.itemsize
    if new.numel >= 2**60 or (new.numel and (offset + span(shape, strides)) * chosen.itemsize > room):
        raise ValueError(f"a tensor of shape {shape}, strides {strides} and offset {offset} reaches beyond its storage")
    if begin % chosen.itemsize:
        raise ValueError("a tensor lies between the elements of its storage")
    out = make_tensor(new, storage.buffer, begin // chosen.itemsize + (offset if new.numel else 0))
    if requires_grad and not chosen.is_floating_point:
        raise ValueError(f"a tensor of {chosen} requires a gradient")
    return out.requires_grad_() if requires_grad else out


def rebuild_meta(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Tensor:
    """A tensor on the device "meta", which needs no storage. ValueError as of `rebuild`."""
    shape, strides = _sizes(size), _sizes(stride)
    if not isinstance(dtype, DType) or len(shape) != len(strides):
        raise ValueError("a tensor on meta has no dtype, or not as many strides as dims")
    whole = empty_spec(Spec((span(shape, strides),), None, dtype, Device("meta")))
    return rebuild(whole, 0, size, stride, requires_grad)  # type: ignore[no-any-return]


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) > MAX_DIMS:
        raise ValueError("a tensor has no shape or strides")
    if not all(type(n) is int and 0 <= n < 2**60 for n in value):
        raise ValueError(f"a tensor has the shape or strides {value!r:.80}")
    return tuple(value)


def byteswapped(file: File, what: str, at: int, shape: Shape, dtype: DType, checksum: str | None) -> Tensor:
    """Big-endian bytes of a file as a tensor on the CPU."""
    data = np.empty(shape[0] * dtype.itemsize, np.uint8)
    file.data(memory(data), what, at, dtype is bool_, checksum)
    data.view(f"u{dtype.itemsize}").byteswap(inplace=True)
    out: Tensor = array_to_tensor(data.view(dtype.numpy), None, False)
    return out
