"""An open file of weights, of any format: its bytes read into memory on a device, or mapped."""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..device import CPU, Device
from ..dispatch.failure import allocate_for
from ..dtype import DType, bool_
from ..errors import CheckpointError, DTypeError
from ..spec import Shape, Spec
from ..tensor_base import make_tensor

if TYPE_CHECKING:
    from ..tensor import Tensor

CHUNK = 1 << 20
"""How much is read or written at once: what stays in the processor's cache for its checksum."""


class File:
    """A path, or a binary file from where it stands. Its errors are CheckpointError and name `op` and the file.

    head: its first bytes. size: how many there are. mappable: whether `map` can map.
    """

    def __init__(self, file: Any, op: str) -> None:
        self.op = op
        self.raw, self.owned = _open(file, op)
        self.mappable = isinstance(self.raw, io.FileIO) and self.owned
        self.name = os.fsdecode(file) if isinstance(file, str | os.PathLike) else str(getattr(file, "name", "the file"))
        self._mapping: memoryview | None = None
        try:
            self.start = 0 if self.owned else self.raw.tell()
            self.size = self.raw.seek(0, os.SEEK_END) - self.start
            self.head = self.bytes(0, min(self.size, 16))
        except BaseException:
            self.close()
            raise

    def fail(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self.op}(): {self.name}{' ' if what.startswith('is ') else ': '}{what}")

    def seek(self, at: int) -> None:
        self.raw.seek(self.start + at)

    def bytes(self, at: int, count: int) -> bytes:
        data = bytearray(count)
        self.read_into(memoryview(data), at)
        return bytes(data)

    def read_into(self, view: memoryview, at: int, look: Callable[[memoryview], object] | None = None) -> None:
        """Fills `view` with the bytes from `at` on; `look` sees them, piece by piece."""
        self.seek(at)
        for begin in range(0, len(view), CHUNK):
            piece = view[begin : begin + CHUNK]
            self._fill(piece)
            if look is not None:
                look(piece)

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            if hasattr(self.raw, "readinto"):
                got = self.raw.readinto(view[at:]) or 0
            else:
                piece = self.raw.read(len(view) - at)
                got = len(piece)
                view[at : at + got] = piece
            if got == 0:
                raise self.fail(f"ended {len(view) - at} bytes too early while it was read")
            at += got

    def view(self) -> memoryview:
        """All bytes: mapped where that can be, else read."""
        whole = self._whole()
        return memoryview(self.bytes(0, self.size)) if whole is None else whole[self.start :]

    # --- Tensors --------------------------------------------------------------------------------------------------

    def tensor(
        self, what: str, at: int, shape: Shape, dtype: DType, device: Device, checksum: str | None = None
    ) -> Tensor:
        """Bytes of the file, little-endian, in memory of their own on `device`. With `checksum` they are compared.

        what: the name that errors have for them.
        """
        spec = Spec(shape, None, dtype, device)
        out = make_tensor(spec, allocate_for(spec))
        self.fill(out, what, at, checksum)
        return out

    def fill(self, tensor: Tensor, what: str, at: int, checksum: str | None = None) -> None:
        """Reads into a contiguous tensor."""
        spec, backend = tensor.spec, tensor.spec.device.backend
        if tensor.is_meta:
            return
        view = backend.host_view(tensor.buffer) if spec.nbytes else None
        begin = tensor.offset * spec.dtype.itemsize
        if view is None:
            data = np.empty(spec.nbytes, np.uint8)
            self.data(memory(data), what, at, spec.dtype is bool_, checksum)
            if spec.nbytes:
                backend.copy_in(tensor.buffer, begin, memory(data))
        else:
            self.data(view[begin : begin + spec.nbytes], what, at, spec.dtype is bool_, checksum)

    def data(self, view: memoryview, what: str, at: int, bools: bool = False, checksum: str | None = None) -> None:
        """Fills `view` from `at` on, and compares with `checksum`, the CRC-32 in hexadecimal."""
        found, bad = 0, False

        def look(piece: memoryview) -> None:
            nonlocal found, bad
            if checksum is not None:
                found = zlib.crc32(piece, found)
            if bools:
                bad = bad or _not_bools(piece)

        self.read_into(view, at, look)
        if checksum is not None and f"{found:08x}" != checksum:
            raise self.fail(f"{what} is damaged: its bytes have checksum {found:08x}, they were saved with {checksum}")
        if bad:
            raise self._not_bool(what)

    def _not_bool(self, what: str) -> CheckpointError:
        return self.fail(f"{what} is BOOL, but holds bytes other than 0 and 1")

    def map(self, what: str, at: int, shape: Shape, dtype: DType, alignment: int = 0) -> Tensor | None:
        """A tensor on the mapped file: read when it is used, copied page by page where it is written to.

        None where that cannot be: it is empty, does not lie at a multiple of `alignment` (the size of an element where
        it is 0), or the file system does not map.
        """
        spec = Spec(shape, None, dtype, CPU)
        start = self.start + at
        whole = self._whole() if spec.nbytes and start % (alignment or dtype.itemsize) == 0 else None
        if whole is None:
            return None
        view = whole[start : start + spec.nbytes]
        if dtype is bool_ and any(_not_bools(view[i : i + CHUNK]) for i in range(0, len(view), CHUNK)):
            raise self._not_bool(what)
        buffer = CPU.backend.from_host(view)
        return None if buffer is None else make_tensor(spec, buffer)

    def _whole(self) -> memoryview | None:
        if self._mapping is None and self.mappable:
            import mmap

            try:
                self._mapping = memoryview(mmap.mmap(self.raw.fileno(), 0, access=mmap.ACCESS_COPY))
            except OSError:
                return None
        return self._mapping

    # --- Closing --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the file. Tensors on its mapping keep that alive."""
        self._mapping = None
        if self.owned:
            self.raw.close()

    def __enter__(self) -> File:
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
    if not (hasattr(file, "seek") and hasattr(file, "seekable") and file.seekable()):
        return io.BytesIO(file.read()), True
    return file, False


def memory(array: np.ndarray[Any, Any]) -> memoryview:
    return memoryview(array)  # type: ignore[arg-type]  # NumPy's stubs do not say that arrays are buffers


def _not_bools(view: memoryview) -> bool:
    return bool(np.frombuffer(view, np.uint8).max() > 1)
