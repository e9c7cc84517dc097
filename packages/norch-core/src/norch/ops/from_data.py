"""Tensors of data: numbers, nested lists, arrays and buffers."""

from __future__ import annotations

from array import array as packed_array
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import CPU, Device, get_default_device
from ..dispatch.plan import SCALARS
from ..dispatch.traced import KINDS
from ..dtype import (
    FLOATING,
    INTEGER,
    ComplexDType,
    DType,
    as_dtype,
    bool_,
    complex64,
    complex128,
    float64,
    get_default_dtype,
    iinfo,
    int64,
    promote_types,
    scalar_dtype,
)
from ..errors import DTypeError, ShapeError
from ..observing import TRANSFER, observable
from ..spec import Spec
from ..tensor_base import TensorBase, make_tensor
from .creation import FILL, DeviceLike, finish, spec_for
from .registry import public

if TYPE_CHECKING:
    from ..tensor import Tensor


@public(method=False, check=False)
def tensor(
    data: Any, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor holding a copy of `data`: a number (0-d), nested lists (a dim for each level), a NumPy array or a
    tensor.

    dtype: by default that of the array, or bool, int64 or the default dtype by what the lists hold. Raises ShapeError
    for ragged lists, DTypeError for data that are no numbers, and for Python's numbers that the dtype cannot hold; a
    negative one wraps in uint8, one too large for a floating dtype is inf.
    """
    out = as_tensor(data, dtype=dtype, device=device, copy=True)
    return finish(out.pin_memory() if pin_memory else out, requires_grad)


@public("asarray", method=False)
def as_tensor(
    data: Any, dtype: Any = None, device: DeviceLike = None, *, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """`data` as a tensor, without a copy where it is a tensor or a NumPy array of the dtype and device wanted.

    copy: True for a copy in any case, False for none. Raises as `tensor` does, and ValueError where `copy` is False and
    one is needed.
    """
    if requires_grad:
        return as_tensor(data, dtype, device, copy=copy).requires_grad_()
    if copy is False:
        return _shared(data, as_tensor(data, dtype, device))  # type: ignore[no-any-return]
    target = get_default_device() if device is None else Device(device)
    if _is_pair(data):
        wanted = [x for x in (device and target, dtype) if x is not None]
        kept = data.to(*wanted) if wanted else data
        return kept.detach().clone() if copy else kept  # type: ignore[no-any-return]
    if isinstance(dtype, ComplexDType):
        return _complex(data, dtype, target)  # type: ignore[no-any-return]
    chosen = None if dtype is None else as_dtype(dtype, "tensor")
    if isinstance(data, TensorBase):
        given: Tensor = data  # type: ignore[assignment]
        moved = given.detach() if copy else given
        moved = moved.to(given.device if device is None else target, chosen or given.dtype)
        return moved.clone() if copy and moved.buffer is given.buffer else moved
    kind = KINDS.get(type(data), type(data))
    if kind in SCALARS and (chosen is None or chosen.category == FLOATING or (kind is int and chosen is int64)):
        if kind is not int or -_EXACT <= data <= _EXACT:
            return FILL.call(spec_for((), chosen or scalar_dtype(kind), target, "tensor"), data)
    if type(data) is list and (found := _of_one_type(data, chosen)) is not None:
        out = found
    else:
        if not isinstance(data, np.ndarray):
            if hasattr(type(data), "__cuda_array_interface__"):
                return _on_device(data, chosen, target if device is not None else None, copy)
            data = _array_of(data, chosen)
        if data.dtype.kind == "c" and dtype is None:
            return _complex(data, complex128 if data.dtype.itemsize > 8 else complex64, target)  # type: ignore[no-any-return]
        out = array_to_tensor(data, chosen, bool(copy) or data.dtype.hasobject)
    return out if target is out.spec.device else out.to(target)


def _on_device(data: Any, dtype: DType | None, device: Device | None, copy: bool | None) -> Tensor:
    """The memory of a GPU that an object of another library has."""
    given = import_module("norch.tensor.device_memory").from_interface(data)
    return as_tensor(given, dtype, given.device if device is None else device, copy=copy)


def _shared(data: Any, made: Any) -> Any:
    """`made` of `data`, whose memory it has. Raises ValueError where it has other."""
    given, parts = (data.pair, made.pair) if _is_pair(data) and _is_pair(made) else (data, made)
    shares = (
        parts.buffer is given.buffer
        if isinstance(given, TensorBase) and isinstance(parts, TensorBase)
        else isinstance(given, np.ndarray)
        and isinstance(parts, TensorBase)
        and parts.spec.device.type == "cpu"
        and np.may_share_memory(given, parts.detach().numpy())  # type: ignore[attr-defined]
    )
    if not shares:
        raise ValueError(f"asarray(): {type(data).__name__} data would be copied, and copy is False")
    return made


def _complex(data: Any, dtype: ComplexDType, device: Device) -> Any:
    """A ComplexPair of complex numbers or of real ones."""
    pairs = import_module("norch.compat.complex_parts")  # which stands above
    if isinstance(data, TensorBase):
        return data.to(device, dtype)  # type: ignore[attr-defined]
    values = data if isinstance(data, np.ndarray) else np.asarray(_to_lists(data))
    parts = [tensor(np.array(x), dtype=dtype.parts, device=device) for x in (values.real, values.imag)]
    return pairs.complex(*parts)


_EXACT = 2**53
"""Integers up to here are floats of 64 bits too."""

_ARRAY_CODES = {"float32": "f", "float64": "d", "int64": "q"}
"""How `array` names a dtype."""

_LIST = {list}


def _of_one_type(data: list[Any], dtype: DType | None) -> Tensor | None:
    """A tensor of lists of Python numbers of one type, without what `_array_of` asks; None for any other list."""
    shape, kinds = [len(data)], set(map(type, data))
    while kinds == _LIST:
        lengths = set(map(len, data))
        if len(lengths) != 1:
            return None
        if len(shape) == 64:  # as a list does that holds itself
            raise ShapeError("tensor(): the lists are nested more than 64 levels deep")
        shape.append(lengths.pop())
        data = list(chain.from_iterable(data))
        kinds = set(map(type, data))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    chosen = scalar_dtype(kind) if dtype is None and kind in SCALARS else dtype
    if kind is bool and chosen is bool_:
        buffer = CPU.backend.from_host(memoryview(bytearray(data)))
        return None if buffer is None else make_tensor(spec_for(tuple(shape), chosen, CPU, "tensor"), buffer)
    if chosen is None or (kind is not float and kind is not int):
        return None
    code = _ARRAY_CODES.get(chosen.name)
    if code is None or (code == "q" and kind is float):
        return None
    try:
        values = packed_array(code, data)
    except OverflowError:
        return None
    buffer = CPU.backend.from_host(memoryview(values).cast("B"))
    return None if buffer is None else make_tensor(spec_for(tuple(shape), chosen, CPU, "tensor"), buffer)


def of_new_array(array: np.ndarray[Any, Any], dtype: DType) -> Tensor:
    """A CPU tensor on the memory of a contiguous array of that dtype, which nothing else holds."""
    backend, spec = CPU.backend, spec_for(array.shape, dtype, CPU, "tensor")
    buffer = backend.from_host(memoryview(array).cast("B")) if array.size else backend.allocate(0, 0)  # type: ignore[arg-type]
    return array_to_tensor(array, dtype, False) if buffer is None else make_tensor(spec, buffer)


def _array_of(data: Any, dtype: DType | None) -> np.ndarray[Any, Any]:
    """Nested lists, numbers or anything with `__array__` as an array of a dtype that norch has.

    dtype: what it will be converted to, so that nothing is rounded twice.
    """
    if isinstance(data, np.generic) or hasattr(data, "__array__"):
        return np.asarray(data)
    if dtype is None and isinstance(data, tuple | list):
        dtype = _dtype_of_elements(data)
        if isinstance(dtype, ComplexDType):
            return np.asarray(_to_lists(data), np.complex128 if dtype is complex128 else np.complex64)
    try:
        if isinstance(data, tuple | list) and _holds_tensors(data):
            data = _to_lists(data)
        array = np.asarray(data)
    except ValueError:
        raise ShapeError(f"tensor(): the nested lists are ragged: {_ragged(data)}") from None
    except OverflowError as error:
        raise DTypeError(f"tensor(): {error}") from None
    if array.dtype.kind in "fuO" and set(map(type, _numbers(data))) <= {int, bool} and array.size:
        array = np.array(data, object)  # integers beyond int64, which NumPy would take for something else
    elif array.dtype.kind == "c" and dtype is None:
        return array.astype(np.complex128 if get_default_dtype() is float64 else np.complex64)
    elif array.dtype.kind not in "biuf":
        raise DTypeError(f"tensor(): expected numbers, got {type(data).__name__} {data!r:.60}")
    if (array.dtype.kind == "f" and dtype is None) or not array.size:
        dtype = get_default_dtype() if dtype is None else dtype
    elif dtype is None:
        dtype = None if array.dtype.kind == "b" else int64
    if dtype is None or array.dtype.kind == "b":
        return array
    if dtype.category == INTEGER:
        return _as_integers(array, dtype)
    if dtype.category != FLOATING:
        return np.asarray(array != 0)
    try:
        with np.errstate(over="ignore"):
            exact = array.astype(np.float64) if array.dtype.hasobject else array
            rounded: np.ndarray[Any, Any] = exact.astype(dtype.numpy, copy=False)
            return rounded
    except OverflowError:
        raise DTypeError("tensor(): an integer is beyond what a float can hold") from None


def _numbers(data: Any) -> Iterator[Any]:
    """The elements of nested lists."""
    if not isinstance(data, tuple | list):
        yield data
        return
    for part in data:
        yield from _numbers(part)


def _dtype_of_elements(data: Any) -> DType | None:
    """The dtype that NumPy's numbers, arrays and tensors in lists promote to; None where there are only Python's.

    With complex numbers that are pairs it is that of the widest of these.
    """
    kinds = set(map(type, _numbers(data)))
    if kinds <= {bool, int, float}:
        return None
    if any(hasattr(kind, "as_subclass") and not issubclass(kind, TensorBase) for kind in kinds):
        return max((x.dtype for x in _numbers(data) if _is_pair(x)), key=lambda d: d.itemsize)  # type: ignore[no-any-return]
    found: DType | None = None
    of_python = {bool: bool_, int: int64, float: get_default_dtype()}
    for element in _numbers(data):
        kind = of_python.get(type(element))
        if kind is None:
            if isinstance(element, TensorBase):
                kind = element.spec.dtype
            elif isinstance(element, np.generic | np.ndarray) and element.dtype.kind in "biuf":
                kind = as_dtype(element.dtype, "tensor")
            else:
                return None
        found = kind if found is None else found if found is kind else promote_types(found, kind)
    return found


def _as_integers(array: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    """Numbers as integers of `dtype`, fractions cut off. Raises DTypeError for one that it cannot hold."""
    limits = iinfo(dtype)
    least = limits.min if dtype.is_signed else -limits.max
    low, high = (array.min(), array.max()) if array.size else (0, 0)
    # Compared as Python's numbers: NumPy rounds both to a float. NaN is in no range.
    for number in (low, high):
        number = number.item() if isinstance(number, np.generic) else number
        if not least - 1 < number < limits.max + 1:
            raise DTypeError(f"tensor(): {number} is out of range for {dtype}")
    if low >= 0 and dtype.itemsize == 8:
        return array.astype(dtype.numpy)  # uint64 holds more than int64
    return array.astype(np.int64).astype(dtype.numpy)


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(x, (TensorBase, np.ndarray)) for x in _numbers(data))


def _is_pair(value: Any) -> bool:
    """Whether it holds complex numbers, which are no tensor."""
    return hasattr(type(value), "as_subclass") and not isinstance(value, TensorBase)


def _to_lists(data: Any) -> Any:
    """Nested lists of numbers. A tensor of one element is a number in them, whatever its dims, as in PyTorch."""
    if isinstance(data, TensorBase) or _is_pair(data):
        return data.item() if data.numel() == 1 else data.tolist()
    if isinstance(data, (np.ndarray, np.generic)):
        return data.tolist()
    return [_to_lists(d) for d in data] if isinstance(data, tuple | list) else data


def _ragged(data: Any, path: str = "data") -> str:
    """Where nested lists stop being rectangular, in words."""
    if not isinstance(data, tuple | list):
        return path
    lengths = [len(d) if isinstance(d, tuple | list) else None for d in data]
    for i, n in enumerate(lengths):
        if n != lengths[0]:
            return f"{path}[0] has {_length(lengths[0])}, {path}[{i}] has {_length(n)}"
    for i, d in enumerate(data):
        found = _ragged(d, f"{path}[{i}]")
        if " has " in found:
            return found
    return path


def _length(n: int | None) -> str:
    return "no length (a number)" if n is None else f"length {n}"


@public(method=False)
def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor on the memory of `array`: a change of either is seen in both.

    An array with negative strides or of a foreign byte order is copied. Raises DTypeError for a dtype norch lacks.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"from_numpy(): expected a NumPy array, got {type(array).__name__}")
    if array.dtype.kind == "c" and array.dtype.itemsize <= 16:
        parts = np.ascontiguousarray(array).view(array.real.dtype).reshape(*array.shape, 2)
        pairs = import_module("norch.compat.complex_parts")
        return pairs.view_as_complex(array_to_tensor(parts, None, False))  # type: ignore[no-any-return]
    return array_to_tensor(array, None, False)


@public(method=False)
def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-D tensor on the memory of an object with the buffer protocol (bytes are copied, being read-only): `count`
    elements (-1: all), from byte `offset` on. Raises ShapeError where there are not so many bytes, or no whole number
    of elements.
    """
    array = np.frombuffer(buffer, as_dtype(dtype, "frombuffer").numpy, count, offset)
    return finish(from_numpy(array if array.flags.writeable else array.copy()), requires_grad)


# --- Arrays ---------------------------------------------------------------------------------------------------------


@observable(TRANSFER, "tensor")
def array_to_tensor(array: np.ndarray[Any, Any], dtype: DType | None, copy: bool) -> Tensor:
    """A tensor of an array's values: on its memory where that can be, in memory of its own if `copy`."""
    own = as_dtype(array.dtype, "tensor")
    if dtype is not None and dtype is not own:
        with np.errstate(all="ignore"):
            array, copy, own = array.astype(dtype.numpy), False, dtype
    flags = array.flags
    # Strides are negative or no multiple of an element only where something lies between the elements.
    if not flags.c_contiguous and not copy:
        copy = any(s < 0 or s % own.itemsize for s in array.strides)
    if copy or not array.dtype.isnative or not flags.writeable:
        # asarray(order="C") keeps 0-d arrays 0-d, which ascontiguousarray does not
        array = np.array(array, own.numpy, order="C", copy=True)
        flags = array.flags
    if flags.c_contiguous and array.size:  # most are such
        lent = CPU.backend.from_host(memoryview(array).cast("B") if own.itemsize >= 4 else bytes_of(array))  # type: ignore[arg-type]
        if lent is not None:
            return make_tensor(spec_for(array.shape, own, CPU, "tensor"), lent)
    strides = None
    if not array.flags.c_contiguous:
        strides = tuple([s // own.itemsize for s in array.strides])
    spec = Spec(array.shape, strides if array.size else None, own, CPU)
    backend = CPU.backend
    memory = _memory(array, spec)
    buffer = backend.from_host(memory)
    if buffer is None:
        contiguous = np.array(array, order="C")
        spec = spec.like()
        buffer = backend.allocate(spec.nbytes, 0)
        if spec.nbytes:
            backend.copy_in(buffer, 0, bytes_of(contiguous))
    return make_tensor(spec, buffer)


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # see below


def _memory(array: np.ndarray[Any, Any], spec: Spec) -> memoryview:
    """The bytes from an array's first element to its last, gaps included."""
    if spec.numel == 0:
        return memoryview(bytearray(0))
    if spec.is_contiguous and array.flags.c_contiguous:
        return bytes_of(array)
    first = (array[(slice(0, 1),) * array.ndim] if array.ndim else array).reshape(-1)
    flat = np.lib.stride_tricks.as_strided(first.view(np.uint8), (spec.nbytes,), (1,))
    return memoryview(flat)  # type: ignore[arg-type]  # NumPy's stubs do not say that arrays are buffers
