"""Tensors as NumPy arrays, Python numbers and pickles, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from struct import unpack_from
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.graph import is_recording, resolve
from ..device import CPU, Device
from ..dispatch.arguments import describe
from ..dispatch.failure import allocate_for, copy_out
from ..dtype import DType
from ..errors import AutogradError, DeviceError, DTypeError, MetaError, ShapeError
from ..memory_formats import strided
from ..observing import TRANSFER, observable
from ..ops.from_data import array_to_tensor, bytes_of
from ..ops.registry import method
from ..spec import Spec
from ..tensor_base import make_tensor

if TYPE_CHECKING:
    from . import Tensor


@method()
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray[Any, Any]:
    """This tensor as an array on the same memory. bfloat16 and float8 give an ml_dtypes array.

    Raises AutogradError for a tensor that requires grad while gradients are recorded, and DeviceError for one that is
    not on the CPU, unless `force`, which detaches and copies; NotImplementedError for one that stands for others.
    """
    if self.left_to is not None:
        name = type(self).__name__
        raise NotImplementedError(f"numpy(): a {name} stands for other tensors; its class should define numpy()")
    if force:
        return _on_host(self)
    if self.node is not None and is_recording() and resolve(self) is not None:
        raise AutogradError("numpy(): the tensor requires grad, which an array cannot; use detach().numpy()")
    spec = self.spec
    if spec.device is not CPU:
        if self.is_meta:
            raise MetaError("numpy")
        if spec.device.type != "cpu":
            raise DeviceError(f"numpy(): the tensor is on {spec.device}; use cpu().numpy()")
    size, dtype = spec.dtype.itemsize, spec.dtype.numpy
    memory = spec.device.backend.host_view(self.buffer)
    if memory is None or spec.numel == 0:
        values = np.empty(spec.shape, dtype)
        if spec.numel:
            source = self.contiguous()
            spec.device.backend.copy_out(source.buffer, source.offset * size, bytes_of(values))
        return values
    if spec.is_contiguous:
        return np.ndarray(spec.shape, dtype, memory, self.offset * size)
    return np.ndarray(spec.shape, dtype, memory, self.offset * size, tuple([s * size for s in spec.strides]))


@observable(TRANSFER, "to_host")
def _on_host(self: Tensor) -> np.ndarray[Any, Any]:
    """The values as an array, copied where the host cannot address them."""
    spec = self.spec
    if spec.device.type == "cpu" or type(spec) is not Spec or self.is_meta or not spec.numel:
        return numpy(self.detach().cpu())
    source = self if spec.is_contiguous else self.detach().contiguous()
    values = np.empty(spec.shape, spec.dtype.numpy)
    copy_out(spec.device, source.buffer, source.offset * spec.dtype.itemsize, bytes_of(values))
    return values


@method()
def __array__(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    values = numpy(self)
    if dtype is not None and values.dtype != dtype:
        return values.astype(dtype)
    return values.copy() if copy else values


@method()
def __array_wrap__(self: Tensor, array: np.ndarray[Any, Any], context: Any = None, return_scalar: bool = False) -> Any:
    """What NumPy's functions of this tensor return of the array that they have computed: a tensor on its memory, where
    norch has its dtype."""
    try:
        return array_to_tensor(array, None, False)
    except DTypeError:
        return array


@method(check=False)
@observable(TRANSFER)
def item(self: Tensor) -> Any:
    """The only element as a Python number. Raises ShapeError where there is not exactly one.

    MetaError for a tensor on "meta".
    """
    if self.spec.numel != 1:
        raise ShapeError(f"item(): needs exactly one element, the tensor has shape {tuple(self.spec.shape)}")
    if self.left_to is not None:
        return self.left_to("item", (self,), {})
    spec = self.spec
    code = _STRUCT_CODES.get(spec.dtype.name)
    if code is not None and spec.device is CPU:
        memory = CPU.backend.host_view(self.buffer)
        if memory is not None:
            return unpack_from(code, memory, self.offset * spec.dtype.itemsize)[0]
    if self.is_meta:
        raise MetaError("item")
    if code is not None and type(spec) is Spec:
        size = spec.dtype.itemsize
        data = bytearray(size)
        copy_out(spec.device, self.buffer, self.offset * size, memoryview(data))
        return unpack_from(code, data)[0]
    return _on_host(self).item()


_STRUCT_CODES = {
    "bool": "?", "uint8": "B", "int8": "b", "int16": "=h", "int32": "=i", "int64": "=q", "float16": "=e",
    "float32": "=f", "float64": "=d", "uint16": "=H", "uint32": "=I", "uint64": "=Q",
}  # fmt: skip
"""How `struct` reads a dtype."""


_FEW = 1000
"""Up to so many elements a list is made of memory itself, which starts sooner than an array."""

_MEMORY_CODES = frozenset("?bBhHiIlLqQfd")


@observable(TRANSFER, "to_host")
def _listed(self: Tensor) -> Any:
    """The elements of a contiguous tensor on the CPU; None where their memory or dtype says no numbers."""
    spec = self.spec
    code: Any = spec.dtype.numpy.char
    memory = CPU.backend.host_view(self.buffer)
    if memory is None or code not in _MEMORY_CODES:
        return None
    size = spec.dtype.itemsize
    here = memory[self.offset * size : (self.offset + spec.numel) * size]
    if spec.ndim == 1:
        return here.cast(code).tolist()
    return here.cast(code, spec.shape).tolist() if spec.ndim else here.cast(code)[0]


@method()
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers; of a 0-d tensor, the number.

    Raises MetaError for a tensor on "meta".
    """
    spec = self.spec
    if spec.device is CPU and spec.is_contiguous and 0 < spec.numel <= _FEW and type(spec) is Spec:
        found = _listed(self)
        if found is not None:
            return found
    if self.is_meta:
        raise MetaError("tolist")
    return _on_host(self).tolist()


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
def __reversed__(self: Tensor) -> Tensor:
    return self.flip(0) if self.spec.ndim else self


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
    found: Any = self == value
    if found is False:
        raise DTypeError(f"__contains__(): expected a number or a tensor, got {describe(value)}")
    return bool(found.any())


@method()
def __format__(self: Tensor, spec: str) -> str:
    """A format such as ".4f" applies to the number of a tensor of one element; other tensors take none.

    A 0-d tensor is shown as its number, as in PyTorch. Raises DTypeError for a format of other tensors.
    """
    if not spec and (self.spec.ndim or self.is_meta):
        return str(self)
    if self.spec.numel != 1:
        raise DTypeError(f"format(): {spec!r} is for one element, the tensor has shape {tuple(self.spec.shape)}")
    return format(item(self), spec)


@method()
def __deepcopy__(self: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy of a leaf, its grad included. Of all that is copied at once, what shares memory does so in the copy.

    Raises AutogradError for a result of a recorded op, NotImplementedError for a tensor that stands for others whose
    `clone` is of another class.
    """
    if id(self) in memo:
        out: Tensor = memo[id(self)]
        return out
    if hasattr(memo, "copy_of"):  # norch.fits copies a model without its memory
        return memo.copy_of(self)  # type: ignore[no-any-return]
    if not self.is_leaf:
        raise AutogradError("deepcopy(): only leaves can be copied; use detach() or clone()")
    if self.left_to is not None:
        values = self.detach().clone()
        if type(values) is not type(self):
            raise NotImplementedError(f"deepcopy(): clone() of a {type(self).__name__} gave a {type(values).__name__}")
        memo[id(self)] = values
        values.__dict__.update(copy.deepcopy(attributes(self), memo))
        values._grad = copy.deepcopy(self._grad, memo)
        return values.requires_grad_() if self.requires_grad else values
    copied: Tensor = make_tensor(self.spec, _copied_memory(self, memo), self.offset, kind=type(self))
    copied._grad = copy.deepcopy(self._grad, memo)
    memo[id(self)] = copied
    copied.__dict__.update(attributes(self))
    return copied.requires_grad_() if self.requires_grad else copied


def _copied_memory(tensor: Tensor, memo: dict[int, Any]) -> Any:
    """A copy of the tensor's whole memory, one for all that is on it."""
    old = tensor.buffer
    copied = memo.get(id(old))
    if copied is None:
        copied = memo[id(old)] = allocate_for(tensor.spec, old.nbytes)
        tensor.spec.device.backend.copy(copied, 0, old, 0, old.nbytes)
    return copied


@method()
def __copy__(self: Tensor) -> Tensor:
    """Another tensor on the same memory, a leaf that requires grad where this one does."""
    if self.left_to is not None or self.layout is not strided:
        rebuild, args, *_ = self.__reduce_ex__(4)
        out: Tensor = rebuild(*args)
    else:
        out = make_tensor(self.spec, self.buffer, self.offset, kind=type(self))
    out.__dict__.update(attributes(self))
    return out.requires_grad_() if self.requires_grad else out


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What was put on a tensor, beside what autograd keeps there."""
    return {k: v for k, v in tensor.__dict__.items() if k not in ("_leaf", "_retains")}


@method()
def __reduce_ex__(self: Tensor, protocol: Any) -> Any:
    spec, state = self.spec, attributes(self) or None
    if self.left_to is not None:
        made = type(self), tuple(spec.shape), spec.strides, self.offset, None, spec.dtype, None, spec.device
        return self._make_wrapper_subclass, (*made, False, self.requires_grad), state
    if self.is_meta:
        return _rebuild_meta, (type(self), tuple(spec.shape), spec.strides, spec.dtype, self.requires_grad), state
    return _rebuild, (type(self), numpy(self.detach().cpu()), spec.dtype, self.requires_grad, spec.device), state


def _rebuild_meta(
    kind: type[Tensor], shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, requires_grad: bool
) -> Tensor:
    spec = Spec(shape, strides, dtype, Device("meta"))
    out = make_tensor(spec, allocate_for(spec), kind=kind)
    return out.requires_grad_() if requires_grad else out


def _rebuild(
    kind: type[Tensor], values: np.ndarray[Any, Any], dtype: DType, requires_grad: bool, device: Device = CPU
) -> Tensor:
    out: Tensor = array_to_tensor(values, dtype, True).to(device).as_subclass(kind)
    return out.requires_grad_() if requires_grad else out
