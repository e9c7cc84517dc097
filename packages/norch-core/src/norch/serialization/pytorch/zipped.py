"""Writing a zip archive as PyTorch does: nothing compressed, and each member aligned so that it can be mapped."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import numpy as np

from ..files import CHUNK
from ..header import ALIGNMENT

Member = tuple[str, bytes | Callable[[], np.ndarray[Any, Any]]]

_ROOT = "archive/"
_ZIP64 = 1 << 31


def write_archive(file: BinaryIO, members: Iterable[Member]) -> None:
    """Members by name: their bytes, or a function that gives them as an array, which is called when they are due."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members:
            data = memoryview(content) if isinstance(content, bytes) else memoryview(content())  # type: ignore[arg-type]
            info = zipfile.ZipInfo(_ROOT + name)
            large = len(data) >= _ZIP64
            head = file.tell() + 30 + len(info.filename) + 4 + (20 if large else 0)
            info.extra = struct.pack("<HH", 0x4246, -head % ALIGNMENT) + b"Z" * (-head % ALIGNMENT)
            info.file_size = len(data)
            with archive.open(info, "w", force_zip64=large) as member:
                for at in range(0, len(data), CHUNK):
                    member.write(data[at : at + CHUNK])
