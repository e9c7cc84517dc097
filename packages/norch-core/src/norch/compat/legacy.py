"""PyTorch's old names: `FloatTensor`, `LongTensor`, ..., `range`, `set_default_tensor_type`. Loaded when first used."""

from __future__ import annotations

import sys
import warnings
from typing import Any, NamedTuple

import numpy as np

from ..device import set_default_device
from ..dispatch.arguments import check_functions, into
from ..dtype import TENSOR_TYPES, DType, bool_, get_default_dtype, set_default_dtype, split_tensor_type
from ..errors import DTypeError
from ..ops import arange, frombuffer
from ..tensor import Tensor, TypedStorage


class _TensorType(type):
    """A type whose instances are the tensors of one dtype on one type of device."""

    dtype: DType
    device_type: str

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.device.type == cls.device_type

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """A tensor of data, or an uninitialised one of sizes."""
        place = cls.device_type if device is None else device
        if len(data) == 1 and isinstance(data[0], TypedStorage):
            data = (data[0]._elements(),)
        return Tensor(*data, dtype=cls.dtype, device=place)

    def __repr__(cls) -> str:
        return f"<tensor type {cls.dtype!r} on {cls.device_type!r}>"


def tensor_type(name: str, device_type: str = "cpu") -> _TensorType:
    """The type of that name, such as "FloatTensor"."""
    doc = f"Old form of tensors of dtype {TENSOR_TYPES[name].name}: `{name}(data)` or `{name}(2, 3)`."
    return _TensorType(name, (), {"__doc__": doc, "dtype": TENSOR_TYPES[name], "device_type": device_type})


def named_type(text: str, op: str) -> _TensorType:
    """The tensor type that "torch.FloatTensor" or "torch.cuda.FloatTensor" names. DTypeError for another name."""
    name, device_type = split_tensor_type(text, op)
    return tensor_type(name, device_type)


HalfTensor, BFloat16Tensor, FloatTensor = map(tensor_type, ("HalfTensor", "BFloat16Tensor", "FloatTensor"))
DoubleTensor, ByteTensor, CharTensor = map(tensor_type, ("DoubleTensor", "ByteTensor", "CharTensor"))
ShortTensor, IntTensor = map(tensor_type, ("ShortTensor", "IntTensor"))
LongTensor, BoolTensor = map(tensor_type, ("LongTensor", "BoolTensor"))


def _storage_of(name: str) -> type[TypedStorage]:
    dtype = TENSOR_TYPES[name.replace("Storage", "Tensor")]

    def from_buffer(cls: type, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0) -> Any:
        """A copy of the bytes of `buffer`, in elements: `count` of them (-1: all), from byte `offset` on. byte_order:
        "native", "little" or "big", that in which they lie there. ValueError for another.
        """
        if byte_order not in ("native", "little", "big"):
            raise ValueError(f"from_buffer(): byte_order must be 'native', 'little' or 'big', got {byte_order!r}")
        data = np.frombuffer(buffer, f"V{dtype.itemsize}", count, offset).view(np.uint8).reshape(-1, dtype.itemsize)
        if dtype is bool_:
            data = data != 0
        elif byte_order not in ("native", sys.byteorder):
            data = data[:, ::-1]
        return cls(frombuffer(data.tobytes(), dtype=dtype))

    doc = f"Memory of elements of dtype {dtype.name}: `{name}.from_buffer(data)` copies bytes."
    reading: Any = classmethod(from_buffer)
    methods = {"from_buffer": reading, "_from_buffer": reading, "__doc__": doc, "_new": dtype}
    return type(name, (TypedStorage,), methods)


HalfStorage, BFloat16Storage, FloatStorage = map(_storage_of, ("HalfStorage", "BFloat16Storage", "FloatStorage"))
DoubleStorage, ByteStorage, CharStorage = map(_storage_of, ("DoubleStorage", "ByteStorage", "CharStorage"))
ShortStorage, IntStorage = map(_storage_of, ("ShortStorage", "IntStorage"))
LongStorage, BoolStorage = map(_storage_of, ("LongStorage", "BoolStorage"))


class SVD(NamedTuple):
    """What svd returns."""

    U: Tensor
    S: Tensor
    V: Tensor


def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """(U, S, V) with input = U @ diag(S) @ V.mH, reduced where `some`; with `compute_uv=False` U and V are square and
    hold zeros. PyTorch has deprecated it: use `linalg.svd`, which gives V.mH, or `linalg.svdvals`.
    """
    from .. import linalg

    if not compute_uv:
        batch, rows, columns = input.shape[:-2], input.shape[-2], input.shape[-1]
        u, v = input.new_zeros((*batch, rows, rows)), input.new_zeros((*batch, columns, columns))
        return SVD(u, linalg.svdvals(input), v)
    u, s, vh = linalg.svd(input, full_matrices=not some)
    return SVD(u, s, vh.mH)


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """`linalg.cholesky`, under the name that PyTorch has deprecated."""
    from .. import linalg

    return linalg.cholesky(input, upper=upper)


def qr(input: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """`linalg.qr`, reduced where `some`, under the name that PyTorch has deprecated."""
    from .. import linalg

    return linalg.qr(input, "reduced" if some else "complete")


def set_default_tensor_type(t: Any) -> None:
    """Sets the default dtype, and device, to those of `t`, an old tensor type or its name. DTypeError for others."""
    if isinstance(t, str):
        t = named_type(t, "set_default_tensor_type")
    if not isinstance(t, _TensorType):
        raise DTypeError(f"set_default_tensor_type(): expected a tensor type such as norch.FloatTensor, got {t!r}")
    set_default_dtype(t.dtype)
    set_default_device(t.device_type)


def range(
    start: float,
    end: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """`arange` that includes `end`, of the default dtype, or that of `out`. PyTorch has deprecated it: use `arange`."""
    warnings.warn("range() includes its end, unlike Python's; use arange()", DeprecationWarning, stacklevel=2)
    if end is None:
        start, end = 0, start
    if out is not None:
        return into(_range, out, start, end, step, dtype=dtype, device=device)  # type: ignore[no-any-return]
    made = _range(start, end, step, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def _range(start: float, end: float, step: float, *, dtype: Any, device: Any) -> Tensor:
    count = int((end - start) / step) + 1
    return arange(count, device=device).to(dtype or get_default_dtype()) * step + start


_range.__name__ = "range"


check_functions(globals())
