"""Tensors as NumPy arrays, Python numbers and DLPack capsules, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.graph import resolve
from ..device import CPU, Device
from ..dtype import DType, as_dtype, bfloat16
from ..errors import AutogradError, DeviceError, DTypeError, ShapeError
from ..ops.registry import method
from ..spec import Spec
from ..tensor_base import make_tensor

if TYPE_CHECKING:
    from . import Tensor


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
            backend.copy_in(buffer, 0, _bytes(contiguous))
    return make_tensor(spec, buffer)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]  # see below


def _memory(array: np.ndarray[Any, Any], spec: Spec) -> memoryview:
    """The bytes from an array's first element to its last, gaps included."""
    if spec.numel == 0:
        return memoryview(bytearray(0))
    if spec.is_contiguous and array.flags.c_contiguous:
        return _bytes(array)
    first = (array[(slice(0, 1),) * array.ndim] if array.ndim else array).reshape(-1)
    flat = np.lib.stride_tricks.as_strided(first.view(np.uint8), (spec.nbytes,), (1,))
    return memoryview(flat)  # type: ignore[arg-type]  # NumPy's stubs do not say that arrays are buffers


@method()
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """This tensor as an array on the same memory. bfloat16 gives an ml_dtypes array.

    Raises AutogradError for a tensor that requires grad and DeviceError for one that is not on the CPU, unless `force`,
    which detaches and copies.
    """
    if force:
        return numpy(self.detach().cpu())
    if self.node is not None and resolve(self) is not None:
        raise AutogradError("numpy(): the tensor requires grad, which an array cannot; use detach().numpy()")
    spec = self.spec
    if spec.device.type != "cpu":
        raise DeviceError(f"numpy(): the tensor is on {spec.device}; use cpu().numpy()")
    size, dtype = spec.dtype.itemsize, spec.dtype.numpy
    memory = spec.device.backend.host_view(self.buffer)
    if memory is None or spec.numel == 0:
        values = np.empty(spec.shape, dtype)
        if spec.numel:
            source = self.contiguous()
            spec.device.backend.copy_out(source.buffer, source.offset * size, _bytes(values))
        return values
    if spec.is_contiguous:
        return np.ndarray(spec.shape, dtype, memory, self.offset * size)
    return np.ndarray(spec.shape, dtype, memory, self.offset * size, tuple([s * size for s in spec.strides]))


@method()
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    values = numpy(self)
    if dtype is not None and values.dtype != dtype:
        return values.astype(dtype)
    return values.copy() if copy else values


@method()
def item(self: Tensor) -> Any:
    """The only element as a Python number. Raises ShapeError where there is not exactly one."""
    if self.spec.numel != 1:
        raise ShapeError(f"item(): needs exactly one element, the tensor has shape {tuple(self.spec.shape)}")
    return numpy(self.detach().cpu()).item()


@method()
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers; of a 0-d tensor, the number."""
    return numpy(self.detach().cpu()).tolist()


@method()
def __len__(self: Tensor) -> int:
    if not self.spec.ndim:
        raise TypeError("len() of a 0-d tensor")
    return self.spec.shape[0]


@method()
def __iter__(self: Tensor) -> Iterator[Tensor]:
    if not self.spec.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


@method()
def __bool__(self: Tensor) -> bool:
    if self.spec.numel != 1:
        raise ShapeError(
            f"bool(): the truth of a tensor of shape {tuple(self.spec.shape)} is ambiguous; use any() or all()"
        )
    return bool(item(self))


@method()
def __float__(self: Tensor) -> float:
    return float(item(self))


@method()
def __int__(self: Tensor) -> int:
    return int(item(self))


@method()
def __index__(self: Tensor) -> int:
    if self.spec.dtype.is_floating_point or self.spec.numel != 1:
        raise DTypeError(
            f"only an integer tensor of one element can be an index, not {self.spec.dtype} of "
            f"shape {tuple(self.spec.shape)}"
        )
    return int(item(self))


@method()
def __contains__(self: Tensor, value: Any) -> bool:
    return bool((self == value).any())


@method()
def __format__(self: Tensor, spec: str) -> str:
    """A format such as ".4f" applies to the number of a tensor of one element; other tensors take none.

    A 0-d tensor is shown as its number, as in PyTorch.
    """
    if not spec and self.spec.ndim:
        return str(self)
    if self.spec.numel != 1:
        raise DTypeError(f"format(): {spec!r} is for one element, the tensor has shape {tuple(self.spec.shape)}")
    return format(item(self), spec)


@method()
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy of a leaf, its grad included. Raises AutogradError for a result of a recorded op."""
    if id(self) in memo:
        out: Tensor = memo[id(self)]
        return out
    if not self.is_leaf:
        raise AutogradError("deepcopy(): only leaves can be copied; use detach() or clone()")
    values = self.detach().clone()
    copied: Tensor = object.__new__(type(self))
    copied.spec, copied.buffer, copied.offset, copied.node, copied.base = (
        values.spec,
        values.buffer,
        values.offset,
        None,
        None,
    )
    copied._grad = None if self._grad is None else __deepcopy__(self._grad, memo)
    memo[id(self)] = copied
    copied.__dict__.update({k: v for k, v in self.__dict__.items() if k != "_retains"})
    return copied.requires_grad_() if self.requires_grad else copied


@method()
def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    spec = self.spec
    return _rebuild, (type(self), numpy(self.detach().cpu()), spec.dtype, self.requires_grad, spec.device)


def _rebuild(
    kind: type[Tensor], values: np.ndarray[Any, Any], dtype: DType, requires_grad: bool, device: Device = CPU
) -> Tensor:
    made = array_to_tensor(values, dtype, True).to(device)
    out: Tensor = object.__new__(kind)
    out.spec, out.buffer, out.offset, out.node, out.base, out._grad = made.spec, made.buffer, 0, None, None, None
    return out.requires_grad_() if requires_grad else out


@method()
def __dlpack__(self: Tensor, **kwargs: Any) -> Any:
    """A DLPack capsule on this tensor's memory. Raises DTypeError for bfloat16, which NumPy's exporter lacks."""
    if self.spec.dtype is bfloat16:
        raise DTypeError("__dlpack__(): bfloat16 is not supported; convert to float32")
    return numpy(self).__dlpack__(**kwargs)


@method()
def __dlpack_device__(self: Tensor) -> tuple[int, int]:
    if self.spec.device.type != "cpu":
        raise DeviceError(f"__dlpack_device__(): only CPU tensors can be exchanged, this one is on {self.spec.device}")
    return (1, 0)


def from_dlpack(source: Any) -> Tensor:
    """A tensor on the memory of any object with `__dlpack__` on the CPU (NumPy, PyTorch, JAX, …)."""
    if hasattr(source, "__dlpack_device__") and int(source.__dlpack_device__()[0]) != 1:
        raise DeviceError("from_dlpack(): the data are not on the CPU")
    return array_to_tensor(np.from_dlpack(source), None, False)
