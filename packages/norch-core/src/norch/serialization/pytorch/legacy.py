"""What torch.save wrote before 1.6: pickles in a row (a magic number, the version, the system, the object, the keys of
its storages), then each storage, its number of elements before it."""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO

from ...dispatch.failure import allocate_for
from ...dtype import DType
from ...spec import Spec
from ...tensor_base import make_tensor
from ..tree import as_pair
from .machine import Machine
from .tensors import StorageType, as_storage, byteswapped, device_at

if TYPE_CHECKING:
    from ...tensor import Tensor
    from ..files import File
    from ..location import Locations

MAGIC = 0x1950A86A20F9469CFC6C


class _Rest:
    """What pickletools reads from: it never asks a file for more than is there."""

    def __init__(self, raw: BinaryIO, left: int) -> None:
        self._raw, self._left = raw, left
        self.taken: list[bytes] = []

    def read(self, count: int) -> bytes:
        return self._take(self._raw.read(max(min(count, self._left), 0)))

    def readline(self) -> bytes:
        return self._take(self._raw.readline(min(self._left, 1 << 16)))

    def _take(self, data: bytes) -> bytes:
        self._left -= len(data)
        self.taken.append(data)
        return data


def load(file: File, locations: Locations, run: Callable[[bytes, Callable[[Any], Tensor]], Any]) -> Any:
    """The object. `run(pickle, storages)` gives that of one pickle."""
    raw = io.BufferedReader(file.raw) if isinstance(file.raw, io.RawIOBase) else file.raw
    raw.seek(file.start)
    at = 0

    def next_pickle() -> bytes:
        nonlocal at
        rest = _Rest(raw, file.size - at)
        try:
            for _ in pickletools.genops(rest):  # type: ignore[arg-type]
                pass
        except Exception as error:
            raise file.fail(f"is cut off or damaged: {str(error)[:200]}") from None
        data = b"".join(rest.taken)
        at += len(data)
        return data

    try:
        magic, version, system = (_plain(file, next_pickle()) for _ in range(3))
        if magic != MAGIC or version != 1001 or not isinstance(system, dict):
            raise file.fail(f"is a PyTorch file of another version ({version!r:.20}) than norch reads")
        pickle, keys = next_pickle(), _plain(file, next_pickle())
    finally:
        if isinstance(raw, io.BufferedReader) and raw is not file.raw:
            raw.detach()
    if not isinstance(keys, list) or not all(type(key) is str for key in keys) or len(set(keys)) != len(keys):
        raise file.fail("is damaged: it has no list of storages")
    storages = _Storages(file, locations, keys, at, system.get("little_endian") is False)
    found = run(pickle, storages.load)
    storages.fill()
    return found


def _plain(file: File, data: bytes) -> Any:
    """A pickle of numbers and text alone."""
    return Machine(_Nothing(), file.fail).run(data)


class _Nothing:
    """The names of a pickle that has none."""

    def find(self, machine: Machine, *args: Any) -> Any:
        raise ValueError("it has a name where numbers should be")

    call = build = persistent = find


class _Storages:
    """The storages behind the pickles. They are made when the object asks for them, and filled at the end: only then
    is it known how long each is."""

    def __init__(self, file: File, locations: Locations, keys: list[str], at: int, swapped: bool) -> None:
        self._file, self._locations, self._keys, self._at, self._swapped = file, locations, keys, at, swapped
        self._known = set(keys)
        self._left = file.size - at
        self._found: dict[str, Tensor] = {}
        self._parts: dict[str, int] = {}

    def load(self, key: Any) -> Any:
        tag, kind, name, location, count, view = key
        if tag != "storage" or not isinstance(kind, StorageType) or type(name) is not str or type(location) is not str:
            raise ValueError("it refers to something that is no storage")
        if type(count) is not int or count < 0 or name not in self._known:
            raise ValueError("a storage is not in the file")
        whole = self._found.get(name)
        if whole is None:
            self._parts[name] = kind.parts
            self._left -= 8 + count * kind.parts * kind.dtype.itemsize
            if self._left < 0:
                raise ValueError("the storages take more than the file")
            whole = self._found[name] = self._make(kind.dtype, name, location, count * kind.parts)
        if view is None:
            return as_storage(whole) if kind.parts == 1 else as_pair(whole.view(-1, kind.parts))
        label, offset, size = view
        if type(label) is not str or type(offset) is not int or type(size) is not int:
            raise ValueError("a view of a storage has no size")
        if kind.parts != self._parts[name] or not 0 <= offset <= offset + size <= whole.spec.numel // kind.parts:
            raise ValueError("a view reaches beyond its storage")
        flat = make_tensor(whole.spec.like((size * kind.parts,)), whole.buffer, whole.offset + offset * kind.parts)
        return flat if kind.parts == 1 else as_pair(flat.view(-1, kind.parts))

    def _make(self, dtype: DType, name: str, location: str, count: int) -> Tensor:
        saved = device_at(location)
        device = self._locations.device(saved, f"storage {name}")
        spec = Spec((count,), None, dtype, device)
        return self._locations.finish(make_tensor(spec, allocate_for(spec)), saved, f"storage {name}")

    def fill(self) -> None:
        file, at = self._file, self._at
        for name in self._keys:
            if name not in self._found:
                raise file.fail(f"is damaged: nothing lies on its storage {name!r:.40}")
            target = self._found[name]
            spec = target.spec
            count = int.from_bytes(file.bytes(at, 8), "little") if at + 8 <= file.size else -1
            if count * self._parts[name] != spec.numel or at + 8 + spec.nbytes > file.size:
                raise file.fail(f"is cut off or damaged at storage {name!r:.40}")
            what = f"storage {name!r}"
            if self._swapped:
                target.copy_(byteswapped(file, what, at + 8, tuple(spec.shape), spec.dtype, None))
            else:
                file.fill(target, what, at + 8)
            at += 8 + spec.nbytes
        if file.owned and at != file.size:
            raise file.fail(f"is damaged: {file.size - at} bytes follow its last storage")
        if not file.owned:
            file.seek(at)
