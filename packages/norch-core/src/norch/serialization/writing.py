"""Writing a safetensors file: the data first, then the header before them, which holds what the data came to."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from ..errors import CheckpointError, DTypeError
from . import header
from .atomic import replace
from .files import CHUNK
from .header import Entry

BLANK = "00000000"

Head = Callable[[dict[str, Entry], dict[str, str]], bytes]
"""The header of entries whose bytes have these checksums; always of one length."""


def write_file(
    f: Any,
    op: str,
    layout: dict[str, tuple[str, tuple[int, ...]]],
    head: Head,
    data: Callable[[str], np.ndarray[Any, Any]],
) -> None:
    """Writes tensors of these dtypes and shapes to a path, in one step, or to a binary file where it stands.

    `data(name)` gives the bytes of one; they are asked for one after the other.
    """
    entries = header.arrange(layout)

    write_to(f, op, lambda file: _write(file, op, entries, head, data))


def write_to(f: Any, op: str, write_seekable: Callable[[BinaryIO], object]) -> None:
    """Has a function write to a path, in one step, or to a binary file where it stands."""

    def write(file: BinaryIO) -> None:
        if hasattr(file, "seekable") and file.seekable():
            write_seekable(file)
        else:
            whole = io.BytesIO()
            write_seekable(whole)
            _write_all(file, whole.getbuffer())

    if isinstance(f, str | os.PathLike):
        replace(f, write)
    elif not hasattr(f, "write"):
        raise DTypeError(f"{op}(): expected a path or a binary file, got {type(f).__name__}")
    elif isinstance(f, io.TextIOBase):
        raise DTypeError(f"{op}(): the file is open as text; open it with mode 'wb'")
    else:
        write(f)
        if hasattr(f, "flush"):
            f.flush()


def _write(
    file: BinaryIO, op: str, entries: dict[str, Entry], head: Head, data: Callable[[str], np.ndarray[Any, Any]]
) -> None:
    start = file.tell()
    checksums = dict.fromkeys(entries, BLANK)
    size = len(head(entries, checksums))
    if size > header.MAX_HEADER:
        raise CheckpointError(
            f"{op}(): the names and the structure take {size:,} bytes, the limit of the format is "
            f"{header.MAX_HEADER:,}; keep long lists, strings and bytes as tensors"
        )
    file.seek(start + size)
    block = memoryview(bytearray(CHUNK))  # copied first, so that the checksum is of what is written, come what may
    for name in entries:
        view = memoryview(data(name))  # type: ignore[arg-type]  # NumPy's stubs do not say that arrays are buffers
        checksum = 0
        for at in range(0, len(view), CHUNK):
            piece = block[: min(CHUNK, len(view) - at)]
            piece[:] = view[at : at + CHUNK]
            checksum = zlib.crc32(piece, checksum)
            _write_all(file, piece)
        checksums[name] = f"{checksum:08x}"
    end = file.tell()
    file.seek(start)
    _write_all(file, memoryview(head(entries, checksums)))
    file.seek(end)


def _write_all(file: BinaryIO, view: memoryview) -> None:
    while view:
        written = file.write(view)
        view = view[len(view) if written is None else written :]
