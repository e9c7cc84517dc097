"""Objects from one process to another through memory that both have: tensors and arrays travel as bytes.

A mailbox is an open file without a name, in memory where the system has such (`memfd_create`). Whatever kills a
process, nothing is left behind: the system frees it with the last process that has it open.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import struct
import tempfile
import time
from multiprocessing import reduction
from typing import Any

import norch

from .worker import STARTING, Doing

_MAX_BYTES = 1 << 29  # bytes of a buffer, and about as many a call: systems move up to 2 GiB
_MAX_BUFFERS = 256  # buffers a call: those systems that we know take up to 1024


class File:
    """An open file that can be sent to a process that is being started, and lives as long as one has it."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            if hasattr(os, "memfd_create"):
                fd = os.memfd_create("norch-loader", os.MFD_CLOEXEC)
            else:
                with tempfile.TemporaryFile() as file:
                    fd = os.dup(file.fileno())
        self.fd = fd

    def __reduce__(self) -> Any:
        return _reopen, (reduction.DupFd(self.fd),)

    def __del__(self) -> None:
        try:
            os.close(self.fd)
        except (AttributeError, OSError):
            pass


def _reopen(handle: Any) -> File:
    return File(handle.detach())


class _Pickler(pickle.Pickler):
    """Takes tensors apart into their bytes, which norch's own way of pickling would copy once more."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is norch.Tensor:
            if not obj.is_leaf:
                raise norch.AutogradError(
                    "a worker process cannot send a tensor that requires grad and is the result of an op, since its "
                    "graph stays behind; use detach()"
                )
            return _tensor, (obj.detach().cpu().contiguous().numpy(), obj.requires_grad)
        return NotImplemented


def _tensor(values: Any, requires_grad: bool) -> norch.Tensor:
    return norch.as_tensor(values).requires_grad_(requires_grad)


def write(file: File, obj: Any) -> tuple[int, int]:
    """Puts an object into a mailbox. Returns what `read` needs: the bytes of its pickle, and its number of buffers."""
    stream = io.BytesIO()
    buffers: list[pickle.PickleBuffer] = []
    _Pickler(stream, 5, buffer_callback=buffers.append).dump(obj)
    views = [buffer.raw() for buffer in buffers]
    head = stream.getbuffer()
    table = struct.pack(f"<{len(views)}Q", *[v.nbytes for v in views])
    _move(os.writev, file, [head, memoryview(table), *views])
    return head.nbytes, len(views)


def read(file: File, stream: int, count: int) -> Any:
    """Takes an object out of a mailbox, into memory of its own."""
    head, table = bytearray(stream), bytearray(8 * count)
    _move(os.readv, file, [memoryview(head), memoryview(table)])
    # In memory that norch allocated, which keeps large blocks for the next batch.
    sizes = struct.unpack(f"<{count}Q", table)
    buffers: list[Any] = [norch.empty(n, dtype=norch.uint8, device="cpu").numpy() for n in sizes]
    _move(os.readv, file, [memoryview(b) for b in buffers], stream + len(table))
    return pickle.loads(head, buffers=buffers)


def _move(call: Any, file: File, views: list[memoryview], at: int = 0) -> None:
    """Writes or reads all bytes of the views, one after another, at a place of the file."""
    os.lseek(file.fd, at, os.SEEK_SET)
    parts = [v[i : i + _MAX_BYTES] for v in views for i in range(0, v.nbytes, _MAX_BYTES)]
    while parts:
        some, total = [], 0
        for part in parts[:_MAX_BUFFERS]:
            some.append(part)
            total += part.nbytes
            if total >= _MAX_BYTES:
                break
        done = call(file.fd, some)
        if not done:
            raise EOFError("the mailbox of a DataLoader worker is shorter than the worker said")
        parts = _after(parts, done)


def _after(parts: list[memoryview], done: int) -> list[memoryview]:
    for at, part in enumerate(parts):
        if done < part.nbytes:
            return [part[done:], *parts[at + 1 :]]
        done -= part.nbytes
    return []


class Board:
    """Where a worker process writes what it is doing, for the loader to read even when the process is no more."""

    _FORMAT = struct.Struct("<qqqd")

    def __init__(self, file: File | None = None) -> None:
        self.file = File() if file is None else file
        if file is None:
            os.ftruncate(self.file.fd, self._FORMAT.size)
        self._map = mmap.mmap(self.file.fd, self._FORMAT.size)
        if file is None:
            self.write(STARTING)

    def write(self, phase: int, batch: int = -1, place: int = 0) -> None:
        self._FORMAT.pack_into(self._map, 0, phase, batch, place, time.monotonic())

    def read(self) -> Doing:
        return Doing(*self._FORMAT.unpack_from(self._map, 0))

    def __reduce__(self) -> Any:
        return Board, (self.file,)
