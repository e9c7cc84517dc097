"""Device memory: pieces of large buffers. A piece goes back to its pool with the object that holds it."""

from bisect import insort
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

import wgpu

from norch.backend import Buffer

from .encoder import USAGE

if TYPE_CHECKING:
    from .devices import Device

GRAIN = 256  # pieces begin at multiples of it, and have that size at least
SLAB = 16 << 20


class Slab:
    """A buffer of the device, bound as a whole. `free` has its (start, size) that no piece holds, in order."""

    def __init__(self, device: "Device", size: int) -> None:
        usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST
        self.buffer: Any = device.wgpu.create_buffer(size=size, usage=usage)
        self.raw, self.size, self.free = self.buffer._internal, size, [(0, size)]


class Memory(Buffer):
    """`nbytes` from byte `start` of a slab, of a device."""

    __slots__ = ("device", "size", "slab", "start")

    def __init__(self, device: "Device", nbytes: int, slab: Slab, start: int, size: int) -> None:
        super().__init__(nbytes)
        self.device, self.slab, self.start, self.size = device, slab, start, size

    def __del__(self) -> None:
        self.device.pool.freed.append((self.slab, self.start, self.size))


class Pool:
    """The memory of a device. Commands run in the order in which they are given, so what is freed may be handed out
    again at once: whatever still reads it runs before whatever the next holder does.

    `freed` is filled by Memory.__del__, which the collector may run at any moment, inside of `take` too.
    """

    def __init__(self, device: "Device") -> None:
        most = min(device.limits["max-storage-buffer-binding-size"], device.limits["max-buffer-size"], (1 << 32) - 1)
        self.device, self.most = device, most // GRAIN * GRAIN  # bytes of the largest slab
        self.slabs: list[Slab] = []
        self.freed: deque[tuple[Slab, int, int]] = deque()
        self.bins: dict[int, list[tuple[Slab, int]]] = defaultdict(list)
        self.used = self.peak = 0

    def take(self, nbytes: int) -> Memory:
        """Raises MemoryError where there is no room, or where a piece is larger than the adapter can bind."""
        size = max(nbytes + GRAIN - 1, GRAIN) & -GRAIN
        if size > 64 * GRAIN:  # few sizes, so that more of them come again
            grain = 1 << size.bit_length() - 4
            size = min(size + grain - 1 & -grain, max(self.most, size))
        with self.device.lock:
            self.collect()
            waiting = self.bins.get(size)
            found = waiting.pop() if waiting else self._find(size) or self._carve(size, nbytes)
            self.used += size
            if self.used > self.peak:
                self.peak = self.used
            return Memory(self.device, nbytes, *found, size)

    def collect(self) -> None:
        while self.freed:
            slab, start, size = self.freed.popleft()
            self.bins[size].append((slab, start))
            self.used -= size

    def reserved(self) -> int:
        return sum(slab.size for slab in self.slabs)

    def _carve(self, size: int, nbytes: int) -> tuple[Slab, int]:
        """A piece of what lies about, or of a new slab, as large as is wanted or just as is asked for."""
        said: Any = None
        for attempt in (max(size, SLAB, self.reserved() // 2 // GRAIN * GRAIN), size):
            self._merge()
            found = self._find(size)
            if found:
                return found
            if size > self.most:
                raise MemoryError(f"{self.device.name} binds at most {self.most} bytes at once, a tensor has {nbytes}")
            try:
                self.slabs.append(Slab(self.device, min(self.most, attempt)))
                return self._find(size) or self._carve(size, nbytes)
            except wgpu.GPUOutOfMemoryError as error:
                said = self.device.explained(error)
                self.release()
        held = f"{self.used} are in use, {self.reserved()} reserved"
        raise MemoryError(f"{self.device.name} has no room for {nbytes} bytes ({held}): {said}")

    def _find(self, size: int) -> tuple[Slab, int] | None:
        """The smallest free range that is large enough."""
        ranges = [(room, i, start) for i, slab in enumerate(self.slabs) for start, room in slab.free if room >= size]
        if not ranges:
            return None
        room, i, start = min(ranges)
        free = self.slabs[i].free
        free.remove((start, room))
        if room > size:
            insort(free, (start + size, room - size))
        return self.slabs[i], start

    def _merge(self) -> None:
        """Gives what waits in bins back to its slabs."""
        for size, pieces in self.bins.items():
            for slab, start in pieces:
                slab.free.append((start, size))
        self.bins.clear()
        for slab in self.slabs:
            merged: list[tuple[int, int]] = []
            for start, size in sorted(slab.free):
                if merged and sum(merged[-1]) == start:
                    start, size = merged[-1][0], merged.pop()[1] + size
                merged.append((start, size))
            slab.free = merged

    def release(self) -> None:
        """Gives slabs of which nothing is in use back to the device."""
        with self.device.lock:
            self.collect()
            self._merge()
            self.slabs = [slab for slab in self.slabs if slab.free != [(0, slab.size)]]
            self.device.encoder.groups.clear()
