"""GGUF files, as llama.cpp has them: quantised tensors become float32, by the package gguf, or stay blocks.

The header is read here: that package makes objects of each of its numbers, which a tokenizer has by the hundred
thousand.
"""

from __future__ import annotations

import struct
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device import CPU
from ..dtype import DType, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from ..errors import DTypeError
from ..ops.creation import empty_spec
from ..ops.from_data import array_to_tensor
from ..spec import Spec
from .files import File, memory

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .location import Locations

_PLAIN: dict[int, DType] = {
    0: float32, 1: float16, 24: int8, 25: int16, 26: int32, 27: int64, 28: float64, 30: bfloat16,
}  # fmt: skip
"""The types of elements that are not quantised."""
_KEPT = {2: 18, 8: 34}
"""Q4_0 and Q8_0, which norch computes with: the bytes of a block of 32."""
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""The types of metadata, and the bytes of one."""
_STRING, _ARRAY, _UINT32 = 8, 9, 4
_MAX_DIMS = 8


class _Entry(NamedTuple):
    name: str
    shape: tuple[int, ...]
    kind: int
    begin: int


class _Header:
    """Walks through the bytes in front of the tensors. struct.error says that they end too early."""

    def __init__(self, file: File) -> None:
        self._view, self.at, self._fail = file.view(), 4, file.fail
        version = self._number("<I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            what = "big-endian" if swapped in (2, 3) else f"of version {version}"
            raise file.fail(f"is a GGUF file that is {what}; norch reads little-endian ones of version 2 and 3")
        tensors, pairs = self._number("<Q"), self._number("<Q")
        alignment = 32
        for _ in range(pairs):
            alignment = self._pair() or alignment
        found = [self._tensor() for _ in range(tensors)]
        start = self.at + -self.at % alignment
        self.entries = [entry._replace(begin=start + entry.begin) for entry in found]

    def _number(self, form: str) -> int:
        value: int = struct.unpack_from(form, self._view, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _skip(self, size: int) -> int:
        at = self.at
        self.at += size
        if self.at > len(self._view):
            raise struct.error("the file ends within its header")
        return at

    def _text(self) -> bytes:
        size = self._number("<Q")
        at = self._skip(size)
        return bytes(self._view[at : at + size])

    def _pair(self) -> int:
        """Skips a piece of metadata; what it says of the alignment, else 0."""
        key, kind = self._text(), self._number("<I")
        if key == b"general.alignment":
            alignment = self._number("<I") if kind == _UINT32 else 0
            if alignment == 0 or alignment & (alignment - 1) or alignment > 1 << 20:
                raise ValueError(f"an alignment of {alignment}")
            return alignment
        count = 1
        if kind == _ARRAY:
            kind, count = self._number("<I"), self._number("<Q")
        if kind == _STRING:
            for _ in range(count):
                self._skip(self._number("<Q"))
        elif kind in _SIZES:
            self._skip(_SIZES[kind] * count)
        else:
            raise ValueError(f"metadata of type {kind}")
        return 0

    def _tensor(self) -> _Entry:
        name = self._text().decode("utf-8")
        dims = self._number("<I")
        if dims > _MAX_DIMS:
            raise ValueError(f"tensor {name!r:.80} has {dims} dims")
        shape = tuple([self._number("<Q") for _ in range(dims)])[::-1]
        return _Entry(name, shape, self._number("<I"), self._number("<Q"))


def load(file: File, locations: Locations, mapped: bool, dequantize: bool) -> dict[str, Tensor]:
    """The tensors, by name. ImportError where some are to be dequantised without the package gguf."""
    try:
        entries = _Header(file).entries
    except (struct.error, ValueError, OverflowError) as error:
        raise file.fail(f"is a GGUF file that is cut off or damaged: {error}") from None
    found, end = {}, 0
    for entry in sorted(entries, key=lambda entry: entry.begin):
        name, what = entry.name, f"tensor {entry.name!r:.80}"
        if name in found:
            raise file.fail(f"is damaged: {what} comes twice in it")
        kept = _KEPT.get(entry.kind, 0) if not dequantize else 0
        block, size = (32, kept) if kept else _block(file, entry)
        row = entry.shape[-1] if entry.shape else 1
        if max(entry.shape, default=0) >= 2**48 or row % block:
            raise file.fail(f"is damaged: {what} cannot have shape {entry.shape}")
        nbytes = prod(entry.shape) // block * size
        if entry.begin < end or entry.begin + nbytes > file.size:
            raise file.fail(f"is cut off or damaged: {what} overlaps another, or reaches beyond the end")
        end = entry.begin + nbytes
        device, dtype, shape = locations.device(CPU, name), _PLAIN.get(entry.kind), entry.shape
        if kept:
            dtype, shape = uint8, (*shape[:-1], row // block * size)
        tensor = None
        if device.type == "meta":
            tensor = empty_spec(Spec(shape, None, dtype or float32, device))
        elif dtype is None:
            tensor = _dequantised(file, entry, row // block * size, nbytes).to(device)
        elif mapped and device is CPU:
            tensor = file.map(what, entry.begin, shape, dtype)
        if tensor is None:
            tensor = file.tensor(what, entry.begin, shape, dtype or float32, device)
        found[name] = locations.finish(tensor, CPU, name)
    return {entry.name: found[entry.name] for entry in entries}


def _block(file: File, entry: _Entry) -> tuple[int, int]:
    """The elements and the bytes of a block."""
    if entry.kind in _PLAIN:
        return 1, _PLAIN[entry.kind].itemsize
    gguf = _package(file)
    try:
        block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(entry.kind)]
    except (ValueError, KeyError):
        raise file.fail(
            f"holds tensor {entry.name!r:.80} of type {entry.kind}, which the package gguf does not know; a newer one "
            "may: pip install -U gguf"
        ) from None
    return int(block), int(size)


def _package(file: File) -> Any:
    try:
        import gguf
    except ImportError:
        raise ImportError(
            f"{file.op}(): {file.name} holds quantised tensors, for which the package gguf is needed: "
            "pip install norch-core[gguf]"
        ) from None
    return gguf


def _dequantised(file: File, entry: _Entry, row: int, nbytes: int) -> Tensor:
    gguf = _package(file)
    data = np.empty(nbytes, np.uint8)
    file.data(memory(data), entry.name, entry.begin)
    kind = gguf.GGMLQuantizationType(entry.kind)
    try:
        with np.errstate(all="ignore"):
            values = gguf.quants.dequantize(data.reshape(*entry.shape[:-1], row), kind)
    except NotImplementedError:
        raise DTypeError(
            f"{file.op}(): {file.name} holds tensor {entry.name!r:.80} of type {kind.name}, which the package gguf "
            "does not dequantise; convert the file with llama-quantize, to Q8_0 or F16"
        ) from None
    out: Tensor = array_to_tensor(np.ascontiguousarray(values, np.float32).reshape(entry.shape), None, False)
    return out
