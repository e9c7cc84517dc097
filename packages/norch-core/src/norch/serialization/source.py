"""An open safetensors file: its header, checked, and the bytes of its tensors, read or mapped."""

from __future__ import annotations

import io
import os
import stat
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..device import CPU, Device
from ..dispatch.failure import allocate_on
from ..errors import CheckpointError, DTypeError
from ..spec import Spec
from ..tensor_base import make_tensor
from . import header
from .dtypes import DTYPES, numpy_dtype

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .header import Entry

CHUNK = 1 << 20
"""How much is read or written at once: what stays in the processor's cache for its checksum."""

_PYTORCH = (
    "norch reads no pickles, because they can run code. Convert it where PyTorch is installed: "
    "safetensors.torch.save_file(torch.load(path, weights_only=True), 'weights.safetensors'), and read that with "
    "norch.load_safetensors"
)
_MAGIC: tuple[tuple[bytes | tuple[bytes, ...], str], ...] = (
    (b"PK\x03\x04", f"is a zip archive, as torch.save writes them; {_PYTORCH}"),
    (b"\x80\x02", f"is a pickle, as torch.save used to write them; {_PYTORCH}"),
    ((b"\x80\x03", b"\x80\x04", b"\x80\x05"), f"is a pickle; {_PYTORCH}"),
    (b"\x93NUMPY", "is a NumPy array; use norch.from_numpy(numpy.load(path))"),
    (b"\x89HDF\r\n", "is an HDF5 file; open it with h5py and pass its arrays to norch.tensor"),
    (b"{", "is JSON text; where it is the index of a model in parts, load each of the files that it names"),
    (b"GGUF", "is a GGUF file, which norch does not read"),
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
        self._file, self._owned = _open(file, op)
        self.mappable = isinstance(self._file, io.FileIO) and self._owned
        self.name = os.fsdecode(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "the file"))
        self._mapping: memoryview | None = None
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> None:
        self._start = 0 if self._owned else self._file.tell()
        size = self._file.seek(0, os.SEEK_END) - self._start
        self._file.seek(self._start)
        head = self._exactly(min(size, 16))
        length = int.from_bytes(head[:8], "little")
        if head[8:9] != b"{":
            for magic, what in _MAGIC:
                if head.startswith(magic):
                    raise self.fail(what)
        if size < 8:
            raise self.fail(f"is {'empty' if size == 0 else f'only {size} bytes long'}: no checkpoint")
        if length > header.MAX_HEADER:
            raise self.fail(
                f"is not a safetensors file, or damaged: its header would take {length:,} bytes, the limit is "
                f"{header.MAX_HEADER:,}"
            )
        if length > size - 8:
            raise self.fail(
                f"is cut off, or not a safetensors file: its header takes {length:,} bytes, but {size - 8:,} follow"
            )
        self._file.seek(self._start + 8)
        self.raw = self._exactly(length)
        self._data = self._start + 8 + length
        self.entries, self.metadata = header.parse(self.raw, size - 8 - length, self._owned, self.fail)

    def fail(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.op}(): {self.name}{' ' if what.startswith('is ') else ': '}{what}")

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        self._fill(memoryview(data))
        return bytes(data)

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            if hasattr(self._file, "readinto"):
                got = self._file.readinto(view[at:]) or 0
            else:
                piece = self._file.read(len(view) - at)
                got = len(piece)
                view[at : at + got] = piece
            if got == 0:
                raise self.fail(f"ended {len(view) - at} bytes too early while it was read")
            at += got

    # --- Tensors --------------------------------------------------------------------------------------------------

    def checked(self, name: str) -> Entry:
        """The entry of a tensor that norch has a dtype for. Raises DTypeError where it has none."""
        entry = self.entries[name]
        kind = entry.dtype
        if kind not in DTYPES:
            advice = "; load_safetensors(path, dtype=...) converts it" if kind.startswith("F8_") else ""
            raise DTypeError(
                f"{self.op}(): {self.name}: tensor {name!r} is {kind}, which norch has no dtype for; it has "
                f"{', '.join(DTYPES)}{advice}"
            )
        return entry

    def read(self, name: str, device: Device, checksum: str | None = None) -> Tensor:
        """A tensor's values in memory of their own on `device`. With `checksum` they are compared with it."""
        entry = self.checked(name)
        spec = Spec(entry.shape, None, DTYPES[entry.dtype], device)
        buffer, backend = allocate_on(device, spec.nbytes), device.backend
        view = backend.host_view(buffer) if spec.nbytes else None
        if view is None:
            view = _view(self._bytes_of(name, checksum))
            if spec.nbytes:
                backend.copy_in(buffer, 0, view)
        else:
            self._read_into(view[: spec.nbytes], name, checksum)
        return make_tensor(spec, buffer)

    def read_array(self, name: str, checksum: str | None = None) -> np.ndarray[Any, Any]:
        """A tensor's values as an array of its own. Raises DTypeError where NumPy has no such dtype."""
        entry = self.entries[name]
        dtype = numpy_dtype(entry.dtype)
        if dtype is None:
            raise DTypeError(f"{self.op}(): {self.name}: tensor {name!r} is {entry.dtype}, which NumPy lacks")
        return self._bytes_of(name, checksum).view(dtype).reshape(entry.shape)

    def _bytes_of(self, name: str, checksum: str | None) -> np.ndarray[Any, Any]:
        data = np.empty(self.entries[name].nbytes, np.uint8)
        self._read_into(_view(data), name, checksum)
        return data

    def _read_into(self, view: memoryview, name: str, checksum: str | None) -> None:
        entry = self.entries[name]
        self._file.seek(self._data + entry.begin)
        found, bad = 0, False
        for at in range(0, len(view), CHUNK):
            piece = view[at : at + CHUNK]
            self._fill(piece)
            if checksum is not None:
                found = zlib.crc32(piece, found)
            if entry.dtype == "BOOL":
                bad = bad or _not_bools(piece)
        if checksum is not None and f"{found:08x}" != checksum:
            raise self.fail(
                f"tensor {name!r} is damaged: its bytes have checksum {found:08x}, they were saved with {checksum}"
            )
        if bad:
            raise self._not_bool(name)

    def _not_bool(self, name: str) -> CheckpointError:
        return self.fail(f"tensor {name!r} is BOOL, but holds bytes other than 0 and 1")

    def map(self, name: str) -> Tensor:
        """A tensor on the mapped file: read when it is used, copied page by page where it is written to."""
        entry = self.checked(name)
        dtype = DTYPES[entry.dtype]
        spec = Spec(entry.shape, None, dtype, CPU)
        start = self._data + entry.begin
        whole = self._whole() if spec.nbytes and start % dtype.itemsize == 0 else None
        if whole is None:
            return self.read(name, CPU)
        view = whole[start : start + entry.nbytes]
        if entry.dtype == "BOOL" and any(_not_bools(view[at : at + CHUNK]) for at in range(0, len(view), CHUNK)):
            raise self._not_bool(name)
        buffer = CPU.backend.from_host(view)
        return self.read(name, CPU) if buffer is None else make_tensor(spec, buffer)

    def _whole(self) -> memoryview | None:
        """The mapped file; None on a file system that cannot map."""
        if self._mapping is None:
            import mmap

            try:
                self._mapping = memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_COPY))
            except OSError:
                return None
        return self._mapping

    def finish(self) -> None:
        """Leaves a file object behind the last tensor."""
        if not self._owned:
            self._file.seek(self._data + max((e.end for e in self.entries.values()), default=0))

    # --- Closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the file. Tensors on its mapping keep that alive."""
        self._mapping = None
        if self._owned:
            self._file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _open(file: Any, op: str) -> tuple[BinaryIO, bool]:
    if isinstance(file, str | os.PathLike):
        opened = open(file, "rb", buffering=0)  # noqa: SIM115
        if stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            return opened, True
        with opened:
            if not stat.S_ISFIFO(os.fstat(opened.fileno()).st_mode):
                raise CheckpointError(f"{op}(): {os.fsdecode(file)} is not a regular file")
            return io.BytesIO(opened.read()), True
    if not hasattr(file, "read"):
        raise DTypeError(f"{op}(): expected a path or a binary file, got {type(file).__name__}")
    if isinstance(file, io.TextIOBase):
        raise DTypeError(f"{op}(): the file is open as text; open it with mode 'rb'")
    if not (hasattr(file, "seek") and file.seekable()):
        return io.BytesIO(file.read()), True
    return file, False


def _view(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array)  # type: ignore[arg-type]  # NumPy's stubs do not say that arrays are buffers


def _not_bools(view: memoryview) -> bool:
    return bool(np.frombuffer(view, np.uint8).max() > 1)
