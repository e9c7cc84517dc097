"""The zip archives that torch.save and torch.jit.save write: a pickle, and a member for each storage."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ...device import CPU
from ...dtype import DType
from ..files import File
from ..tree import as_pair
from .tensors import StorageType, as_storage, byteswapped, device_at

if TYPE_CHECKING:
    from ...tensor import Tensor
    from ..location import Locations


MAX_TEXT = 1 << 26
"""How much of a compressed member is read."""


class Member(NamedTuple):
    """A file of the archive: where its bytes are, their CRC-32 (0 where the writer left it out), how they are kept."""

    at: int
    size: int
    crc: int
    method: int


class Archive:
    """A zip archive. Raises CheckpointError for one that is damaged, or that would take more memory than its file."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.members = self._members()
        names = [name for name in self.members if name.endswith("/data.pkl") or name == "data.pkl"]
        if len(names) != 1:
            raise file.fail("is a zip archive, but not one that PyTorch wrote: it has no data.pkl")
        self._root = names[0].removesuffix("data.pkl")
        self.is_script = any(name.startswith(f"{self._root}code/") for name in self.members)

    def _members(self) -> dict[str, Member]:
        file = self.file
        try:
            file.raw.seek(0 if file.owned else file.start)
            listed = zipfile.ZipFile(file.raw).infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
            raise file.fail(f"is cut off, or a damaged zip archive: {error}") from None
        found: dict[str, Member] = {}
        end = 0
        for info in sorted(listed, key=lambda info: info.header_offset):
            name, head = info.filename, info.header_offset - file.start
            if name in found:
                raise file.fail(f"is damaged: {name!r:.80} comes twice in it")
            if head < end or head + 30 > file.size:
                raise file.fail(f"is damaged: {name!r:.80} overlaps what is before it, or lies outside of the file")
            local = file.bytes(head, 30)
            at = head + 30 + int.from_bytes(local[26:28], "little") + int.from_bytes(local[28:30], "little")
            end = at + info.compress_size
            if local[:4] != b"PK\3\4" or end > file.size:
                raise file.fail(f"is damaged: {name!r:.80} is not where it should be")
            if info.flag_bits & 1:
                raise file.fail("is encrypted; unpack it, and zip it again without a password")
            if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
                raise file.fail(f"is damaged: {name!r:.80} has two sizes")
            found[name] = Member(at, info.compress_size, info.CRC, info.compress_type)
        return found

    def has(self, name: str) -> bool:
        return self._root + name in self.members

    def member(self, name: str) -> Member:
        found = self.members.get(self._root + name)
        if found is None:
            raise self.file.fail(f"is damaged: it has no {name!r:.80}")
        if found.method != zipfile.ZIP_STORED:
            raise self.file.fail(
                f"is compressed by another program than PyTorch ({name!r:.80}); unpack it, and zip it with zip -0"
            )
        return found

    def bytes(self, name: str) -> bytes:
        member = self.member(name)
        data = self.file.bytes(member.at, member.size)
        if member.crc and zlib.crc32(data) != member.crc:
            raise self.file.fail(f"is damaged: {name} does not have the checksum that it was saved with")
        return data

    def text(self, name: str) -> str:
        """A member that may be compressed."""
        member = self.members[self._root + name]
        data = self.file.bytes(member.at, member.size)
        try:
            if member.method != zipfile.ZIP_STORED:
                data = zlib.decompressobj(-15).decompress(data, MAX_TEXT)
            return data.decode("utf-8")
        except (zlib.error, UnicodeDecodeError) as error:
            raise self.file.fail(f"is damaged: {name}: {error}") from None


class Storages:
    """The storages of an archive, each read when it is first asked for."""

    def __init__(self, archive: Archive, locations: Locations, mapped: bool) -> None:
        self._archive, self._locations, self._mapped = archive, locations, mapped
        self._swapped = archive.has("byteorder") and archive.bytes("byteorder").strip() == b"big"
        self._found: dict[str, Tensor] = {}

    def load(self, key: Any) -> Any:
        """The storage that a pickle asks for, as a flat tensor, or a flat pair. ValueError for what is no such key."""
        tag, kind, name, location, count = key
        if tag != "storage" or not isinstance(kind, StorageType) or type(name) is not str or type(location) is not str:
            raise ValueError("it refers to something that is no storage")
        if type(count) is not int or count < 0:
            raise ValueError("a storage has no size")
        if name not in self._found:
            self._found[name] = self._read(kind.dtype, name, location, count * kind.parts)
        found = self._found[name]
        return as_storage(found) if kind.parts == 1 else as_pair(found.view(-1, 2))

    def _read(self, dtype: DType, name: str, location: str, count: int) -> Tensor:
        file, member = self._archive.file, self._archive.member(f"data/{name}")
        if count * dtype.itemsize > member.size:
            raise ValueError(f"storage {name!r:.40} of {count} {dtype.name} has {member.size} bytes")
        saved = device_at(location)
        device = self._locations.device(saved, f"storage {name}")
        what, shape, found = f"storage {name!r}", (count,), None
        if self._mapped and device is CPU and not self._swapped:
            found = file.map(what, member.at, shape, dtype, 8)
        if found is None:
            checksum = f"{member.crc:08x}" if member.crc and member.size == count * dtype.itemsize else None
            if self._swapped:
                found = byteswapped(file, what, member.at, shape, dtype, checksum).to(device)
            else:
                found = file.tensor(what, member.at, shape, dtype, device, checksum)
        return self._locations.finish(found, saved, what)
