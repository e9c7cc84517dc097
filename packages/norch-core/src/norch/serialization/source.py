"""A safetensors file: its header, checked, and its tensors, read or mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..device import CPU, Device
from ..dtype import DType, float32
from ..errors import DTypeError, EmptyFileError
from . import header
from .dtypes import DTYPES, numpy_dtype
from .files import File, memory
from .tree import as_pair

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .header import Entry

PYTORCH_HEADS = (b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
"""How what torch.save writes begins: a zip archive, and before 1.6 the pickle of a number."""
_MAGIC: tuple[tuple[bytes | tuple[bytes, ...], str], ...] = (
    (PYTORCH_HEADS, "is a checkpoint of PyTorch, whose tensors norch.load reads"),
    (
        (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "is a pickle, but none that torch.save wrote; if you trust it, pickle.load reads it, and runs what it says",
    ),
    (b"\x93NUMPY", "is a NumPy array; use norch.from_numpy(numpy.load(path))"),
    (b"\x89HDF\r\n", "is an HDF5 file; open it with h5py and pass its arrays to norch.tensor"),
    (b"{", "is JSON text; where it is the index of a model in parts, load each of the files that it names"),
    (b"GGUF", "is a GGUF file, whose tensors norch.load reads"),
    (b"\x1f\x8b", "is compressed with gzip; unpack it first"),
    (b"version ", "is the pointer that git-lfs leaves in place of a file; fetch the file with: git lfs pull"),
    ((b"<!DOCTYP", b"<!doctyp", b"<html"), "is a web page, not the file it should be; download it again"),
)


class Source:
    """A file to read tensors from. Raises CheckpointError, naming `op`, for one that is damaged or something else.

    A path must hold the tensors and nothing else. A file object is read from where it stands, and stands behind the
    tensors when all have been read in order.
    """

    def __init__(self, file: Any, op: str) -> None:
        self.op = op
        self.file = file if isinstance(file, File) else File(file, op)
        self.name, self.mappable, self.fail = self.file.name, self.file.mappable, self.file.fail
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> None:
        head, size = self.file.head, self.file.size
        length = int.from_bytes(head[:8], "little")
        if head[8:9] != b"{":
            for magic, what in _MAGIC:
                if head.startswith(magic):
                    raise self.fail(what)
        if size > 262 and self.file.bytes(257, 5) == b"ustar":
            raise self.fail(
                "is a tar archive; where it is a checkpoint of PyTorch before 0.2, save it again with PyTorch"
            )
        if size == 0:
            raise EmptyFileError(*self.fail("is empty: no checkpoint").args)
        if size < 8:
            raise self.fail(f"is only {size} bytes long: no checkpoint")
        if length > header.MAX_HEADER:
            raise self.fail(
                f"is not a safetensors file, or damaged: its header would take {length:,} bytes, the limit is "
                f"{header.MAX_HEADER:,}"
            )
        if length > size - 8:
            raise self.fail(
                f"is cut off, or not a safetensors file: its header takes {length:,} bytes, but {size - 8:,} follow"
            )
        self.raw = self.file.bytes(8, length)
        self._data = 8 + length
        self.entries, self.metadata = header.parse(self.raw, size - 8 - length, self.file.owned, self.fail)

    # --- Tensors --------------------------------------------------------------------------------------------------

    def checked(self, name: str) -> Entry:
        """The entry of a tensor that norch has a dtype for. Raises DTypeError where it has none."""
        entry = self.entries[name]
        kind = entry.dtype
        if kind not in DTYPES and kind != "C64":
            advice = "; load_safetensors(path, dtype=...) converts it" if kind.startswith("F8_") else ""
            raise DTypeError(
                f"{self.op}(): {self.name}: tensor {name!r} is {kind}, which norch has no dtype for; it has "
                f"{', '.join(DTYPES)}{advice}"
            )
        return entry

    def read(self, name: str, device: Device, checksum: str | None = None) -> Tensor:
        """A tensor's values in memory of their own on `device`. With `checksum` they are compared with it."""
        entry = self.checked(name)
        at = self._data + entry.begin
        shape, dtype = _parts(entry)
        found = self.file.tensor(f"tensor {name!r}", at, shape, dtype, device, checksum)
        return as_pair(found) if entry.dtype == "C64" else found

    def read_array(self, name: str, checksum: str | None = None) -> np.ndarray[Any, Any]:
        """A tensor's values as an array of its own. Raises DTypeError where NumPy has no such dtype."""
        entry = self.entries[name]
        dtype = numpy_dtype(entry.dtype)
        if dtype is None:
            raise DTypeError(f"{self.op}(): {self.name}: tensor {name!r} is {entry.dtype}, which NumPy lacks")
        data = np.empty(entry.nbytes, np.uint8)
        self.file.data(memory(data), f"tensor {name!r}", self._data + entry.begin, entry.dtype == "BOOL", checksum)
        return data.view(dtype).reshape(entry.shape)

    def map(self, name: str) -> Tensor:
        """A tensor on the mapped file where that can be; else it is read."""
        entry = self.checked(name)
        at = self._data + entry.begin
        shape, dtype = _parts(entry)
        found = self.file.map(f"tensor {name!r}", at, shape, dtype)
        if found is None:
            return self.read(name, CPU)
        return as_pair(found) if entry.dtype == "C64" else found

    def finish(self) -> None:
        """Leaves a file object behind the last tensor."""
        if not self.file.owned:
            self.file.seek(self._data + max((e.end for e in self.entries.values()), default=0))

    def close(self) -> None:
        """Closes the file. Tensors on its mapping keep that alive."""
        self.file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _parts(entry: Entry) -> tuple[tuple[int, ...], DType]:
    """The shape and dtype of a tensor, of complex numbers those of their parts."""
    return ((*entry.shape, 2), float32) if entry.dtype == "C64" else (entry.shape, DTYPES[entry.dtype])
