"""Files that PyTorch reads, with `torch.load(path, weights_only=True)`: the pickle and the storages beside it."""

from __future__ import annotations

import struct
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from ...device import Device
from ...dtype import TENSOR_TYPES, ComplexDType, DType, complex32
from ...errors import DTypeError
from ...spec import Size, contiguous_strides
from ...tensor import Storage, Tensor
from ..attributes import saved_attributes
from ..dtypes import DTYPES
from ..memory import Block, blocks
from ..tree import Encoder, is_coalesced, is_pair, layout_name
from .names import parameter_class
from .zipped import Member

_COMPLEX_STORAGES = {
    "complex64": "ComplexFloatStorage", "complex128": "ComplexDoubleStorage",
}  # fmt: skip
_STORAGE_NAMES = {dtype: name.replace("Tensor", "Storage") for name, dtype in TENSOR_TYPES.items()}


def members(obj: Any, encoder: Encoder) -> list[Member]:
    """The members of an archive of a state, which was encoded. Raises DTypeError for NumPy arrays in it."""
    if encoder.arrays:
        raise DTypeError(
            f"save(): {encoder.arrays[0][0]!r} is a NumPy array, which PyTorch does not read with weights_only=True; "
            "save norch.from_numpy(it)"
        )
    memory = blocks(encoder.tensors)
    pickle = Pickle(memory, [tensor for _, tensor in encoder.tensors], encoder.parts)
    pickle.note_kinds(obj)
    pickle.write(obj)
    return [("data.pkl", pickle.done()), *storage_members(memory)]


def storage_members(memory: list[Block]) -> list[Member]:
    """The rest of an archive whose tensors lie on this memory."""
    data: list[Member] = [(f"data/{i}", block.array) for i, block in enumerate(memory)]
    return [("byteorder", sys.byteorder.encode()), *data, ("version", b"3\n")]


class Pickle:
    """A pickle of protocol 2 that names PyTorch's classes, which need not be installed."""

    def __init__(self, memory: list[Block], tensors: list[Tensor], parts: dict[int, Any] | None = None) -> None:
        self._parts = parts or {}
        self._out: list[bytes] = [b"\x80\x02"]
        self._places: dict[int, tuple[int, Block, Any]] = {}
        for i, block in enumerate(memory):
            for view in block.views:
                self._places[id(tensors[view[0]])] = (i, block, view)
        self._memo: dict[Any, int] = {}
        self._mixed: set[int] = set()
        self._begun: set[int] = set()
        self._parameter = parameter_class()
        self._kinds: dict[type, Callable[[Any], None]] = {
            int: self._int, float: self._float, str: self._text, bytes: self._bytes, bytearray: self._bytearray,
            complex: self._complex, list: self._list, tuple: self._tuple, set: self._set, dict: self._dict,
            OrderedDict: self._ordered, Counter: self._counter, Size: self._size, DType: self._dtype,
            Device: self._device, ComplexDType: self._dtype,
        }  # fmt: skip

    def note_kinds(self, obj: Any) -> None:
        """Looks for memory that has complex numbers as well as tensors of their parts on it: PyTorch reads that as
        bytes."""
        kinds: dict[int, set[bool]] = {}

        def look(value: Any) -> None:
            if id(value) in self._parts:
                look(self._parts[id(value)][1])
            elif isinstance(value, Tensor) or is_pair(value):
                parts = getattr(value, "pair", value)
                kinds.setdefault(self._places[id(parts)][0], set()).add(parts is not value)
                if parts is value and id(value) not in self._begun:
                    self._begun.add(id(value))
                    look(saved_attributes(value))
            elif isinstance(value, dict):
                for each in (*value.values(), getattr(value, "_metadata", None)):
                    look(each)
            elif isinstance(value, list | tuple):
                for each in value:
                    look(each)

        look(obj)
        self._begun.clear()
        self._mixed = {number for number, found in kinds.items() if len(found) > 1}

    def done(self) -> bytes:
        return b"".join([*self._out, b"."])

    def write(self, value: Any) -> None:
        if value is None or value is True or value is False:
            self._out.append(b"N" if value is None else b"\x88" if value else b"\x89")
        elif id(value) in self._parts:
            self._storage_or_sparse(value)
        elif isinstance(value, Tensor):
            self._tensor(value)
        elif is_pair(value):
            self._pair(value)
        elif type(value) in self._kinds:
            self._kinds[type(value)](value)
        else:
            raise DTypeError(
                f"save(): PyTorch reads no {type(value).__name__} with weights_only=True; save a list, a number or a "
                "tensor in its place"
            )

    # --- Numbers and text -----------------------------------------------------------------------------------------

    def _int(self, value: int) -> None:
        if -(2**31) <= value < 2**31:
            self._out.append(b"J" + struct.pack("<i", value))
            return
        data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(data) > 255:
            raise DTypeError(f"save(): PyTorch reads no int of {value.bit_length()} bits; save it as text")
        self._out.append(b"\x8a" + bytes([len(data)]) + data)

    def _float(self, value: float) -> None:
        self._out.append(b"G" + struct.pack(">d", value))

    def _text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        self._out.append(b"X" + struct.pack("<I", len(data)) + data)

    def _complex(self, value: complex) -> None:
        self._call("__builtin__", "complex", value.real, value.imag)

    def _bytes(self, value: bytes) -> None:
        self._call("_codecs", "encode", value.decode("latin1"), "latin1")

    def _bytearray(self, value: bytearray) -> None:
        self._call("__builtin__", "bytearray", bytes(value))

    # --- Containers -----------------------------------------------------------------------------------------------

    def _all(self, values: Any, last: bytes) -> None:
        self._out.append(b"(")
        for value in values:
            self.write(value)
        self._out.append(last)

    def _list(self, value: list[Any]) -> None:
        self._out.append(b"]")
        self._all(value, b"e")

    def _tuple(self, value: tuple[Any, ...]) -> None:
        self._all(value, b"t")

    def _dict(self, value: dict[Any, Any]) -> None:
        self._out.append(b"}")
        self._items(value)

    def _items(self, value: dict[Any, Any]) -> None:
        self._all([part for item in value.items() for part in item], b"u")

    def _ordered(self, value: OrderedDict[Any, Any]) -> None:
        self._call("collections", "OrderedDict")
        self._items(value)
        if hasattr(value, "_metadata"):
            self._dict({"_metadata": value._metadata})
            self._out.append(b"b")

    def _counter(self, value: Counter[Any]) -> None:
        self._call("collections", "Counter", dict(value))

    def _set(self, value: set[Any]) -> None:
        self._call("__builtin__", "set", list(value))

    # --- PyTorch's ------------------------------------------------------------------------------------------------

    def _size(self, value: Size) -> None:
        self._call("torch", "Size", tuple(value))

    def _device(self, value: Device) -> None:
        self._call("torch", "device", *([value.type] if value.type == "cpu" else [value.type, value.index]))

    def _dtype(self, value: DType | ComplexDType) -> None:
        self._global("torch", value.name)

    def _global(self, module: str, name: str) -> None:
        self._out.append(f"c{module}\n{name}\n".encode())

    def _call(self, module: str, name: str, *args: Any) -> None:
        self._global(module, name)
        self._all(args, b"tR")

    def _tensor(self, value: Tensor) -> None:
        if self._known(id(value)):
            return
        if id(value) in self._begun:
            raise DTypeError("save(): an attribute of a tensor holds that tensor, which PyTorch cannot read")
        self._begun.add(id(value))
        is_parameter, own = type(value) is self._parameter, saved_attributes(value)
        if is_parameter:
            self._global("torch._utils", "_rebuild_parameter_with_state" if own else "_rebuild_parameter")
            self._out.append(b"(")
        elif own:
            self._global("torch._tensor", "_rebuild_from_type_v2")
            self._out.append(b"(")
        key, block, (_, shape, strides, offset) = self._places[id(value)]
        dtype = DTYPES[block.dtype]
        storage = None if key in self._mixed else _STORAGE_NAMES.get(dtype)  # to PyTorch, newer dtypes lie on bytes
        place = offset, tuple(shape), tuple(strides or contiguous_strides(shape))
        self._global("torch._utils", _rebuilder(storage))
        if own and not is_parameter:
            self._global("torch", "Tensor")
        self._on_storage(key, block, dtype, storage, place, value.requires_grad and not is_parameter)
        if is_parameter or not own:
            self._out.append(b"R")
        if is_parameter:
            self.write(value.requires_grad)
            self.write(OrderedDict())
        if own:
            self.write(own)
        if is_parameter or own:
            self._out.append(b"tR")
        self._remember(id(value))

    def _storage_or_sparse(self, value: Any) -> None:
        if isinstance(value, Storage):
            key, block, _ = self._places[id(self._parts[id(value)][1][0])]
            dtype = DTYPES[block.dtype]
            self._storage(key, block, dtype, None if key in self._mixed else _STORAGE_NAMES.get(dtype))
            return
        if self._known(id(value)):
            return
        self._global("torch._utils", "_rebuild_sparse_tensor")
        self._out.append(b"(")
        self._call("torch.serialization", "_get_layout", f"torch.{layout_name(value)}")
        coalesced = is_coalesced(value)
        self._tuple((*self._parts[id(value)][1], value.shape, *(() if coalesced is None else (coalesced,))))
        self._out.append(b"tR")
        self._remember(id(value))

    def _pair(self, value: Any) -> None:
        """Complex numbers, to PyTorch elements of two parts each."""
        parts = value.pair
        if self._known(("pair", id(parts))):
            return
        key, block, (_, shape, strides, offset) = self._places[id(parts)]
        *steps, last = strides or contiguous_strides(shape)
        dtype = value.dtype
        if dtype is complex32 or last != 1 or offset % 2 or any(step % 2 for step in steps):
            raise DTypeError(
                f"save(): PyTorch reads no complex numbers of {parts.dtype} with strides {parts.stride()}; save a "
                "contiguous() of them, in complex64 or complex128"
            )
        storage = None if key in self._mixed else _COMPLEX_STORAGES[dtype.name]
        place = offset // 2, tuple(shape)[:-1], tuple([step // 2 for step in steps])
        self._global("torch._utils", _rebuilder(storage))
        self._on_storage(key, block, dtype, storage, place, value.requires_grad)
        self._out.append(b"R")
        self._remember(("pair", id(parts)))

    def _known(self, key: Any) -> bool:
        """Writes what was written before."""
        known = self._memo.get(key)
        if known is not None:
            self._out.append(b"j" + struct.pack("<I", known))
        return known is not None

    def _remember(self, key: Any) -> None:
        self._memo[key] = len(self._memo)
        self._out.append(b"r" + struct.pack("<I", self._memo[key]))

    def _on_storage(
        self, key: int, block: Block, dtype: Any, storage: str | None, place: tuple[Any, ...], requires_grad: bool
    ) -> None:
        """The arguments of `_rebuilder(storage)` for a tensor at a place of a block, on a storage of a dtype, or of
        bytes where `storage` is None. Of its hooks there are none.
        """
        self._out.append(b"(")
        self._storage(key, block, dtype, storage)
        for part in place:
            self.write(part)
        self.write(requires_grad)
        self.write(OrderedDict())
        if storage is None:
            self._dtype(dtype)
        self._out.append(b"t")

    def _storage(self, key: int, block: Block, dtype: Any, storage: str | None) -> None:
        self._out.append(b"(")
        self._text("storage")
        self._global(*("torch.storage", "UntypedStorage") if storage is None else ("torch", storage))
        self._text(str(key))
        self._text(str(block.device) if block.device.type == "cuda" else "cpu")
        nbytes = _numel(block.shape) * DTYPES[block.dtype].itemsize
        self._int(nbytes if storage is None else nbytes // dtype.itemsize)
        self._out.append(b"tQ")


def _rebuilder(storage: str | None) -> str:
    return "_rebuild_tensor_v3" if storage is None else "_rebuild_tensor_v2"


def _numel(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count
