"""Device memory: pieces of large buffers. A piece goes back to its pool with the object that holds it."""

from bisect import bisect
from collections import deque
from typing import Any

import wgpu

from norch.backend import Buffer
from norch.errors import DeviceError

from .encoder import USAGE

GRAIN = 256  # pieces begin at multiples of it, and have that size at least
SLAB = 16 << 20


class Slab:
    """A buffer of the device, bound as a whole. `free` has its (start, size) that no piece holds, in order."""

    def __init__(self, device: Any, size: int) -> None:
        usage = USAGE.STORAGE | USAGE.COPY_SRC | USAGE.COPY_DST
        self.buffer: Any = device.wgpu.create_buffer(size=size, usage=usage)
        self.raw, self.size, self.free = self.buffer._internal, size, [(0, size)]


class Memory(Buffer):
    """`nbytes` from byte `start` of a slab, of a device."""

    __slots__ = ("device", "size", "slab", "start")

    def __init__(self, device: Any, nbytes: int, slab: Slab, start: int, size: int) -> None:
        super().__init__(nbytes)
        self.device, self.slab, self.start, self.size = device, slab, start, size

    def __del__(self) -> None:
        self.device.pool.freed.append((self.slab, self.start, self.size))


class Pool:
    """The memory of a device. What is freed may be handed out again at once: commands run in their order.

    `freed` is filled by Memory.__del__, which the collector may run at any moment, inside of `take` too.
    """

    def __init__(self, device: Any) -> None:
        most = min(device.limits["max-storage-buffer-binding-size"], device.limits["max-buffer-size"], (1 << 32) - 1)
        self.device, self.most = device, most // GRAIN * GRAIN  # bytes of the largest slab
        self.slabs: list[Slab] = []
        self.freed: deque[tuple[Slab, int, int]] = deque()
        self.used = self.peak = 0

    def take(self, nbytes: int) -> Memory:
        """Raises MemoryError where there is no room, or where a piece is larger than the adapter can bind."""
        size = max(nbytes + GRAIN - 1, GRAIN) & -GRAIN
        with self.device:
            self.collect()
            found = self._find(size) or self._grow(size, nbytes)
            self.used += size
            self.peak = max(self.peak, self.used)
            return Memory(self.device, nbytes, *found, size)

    def collect(self) -> None:
        """Puts what was freed with its neighbours."""
        while self.freed:
            slab, start, size = self.freed.popleft()
            self.used -= size
            free, at = slab.free, bisect(slab.free, (start,))
            if at < len(free) and free[at][0] == start + size:
                size += free.pop(at)[1]
            if at and sum(free[at - 1]) == start:
                start, size = free[at - 1][0], start + size - free.pop(at - 1)[0]
                at -= 1
            free.insert(at, (start, size))

    def reserved(self) -> int:
        return sum(slab.size for slab in self.slabs)

    def _find(self, size: int) -> tuple[Slab, int] | None:
        """The first range that is large enough."""
        for slab in self.slabs:
            for at, (start, room) in enumerate(slab.free):
                if room >= size:
                    slab.free[at : at + 1] = [(start + size, room - size)] if room > size else []
                    return slab, start
        return None

    def _grow(self, size: int, nbytes: int) -> tuple[Slab, int]:
        """A piece of a new slab, as large as is wanted or just as is asked for."""
        if size > self.most:
            raise MemoryError(f"{self.device.name} binds at most {self.most} bytes at once, a tensor has {nbytes}")
        for attempt in (max(size, SLAB, self.reserved() // 2 // GRAIN * GRAIN), size):
            try:
                self.slabs.append(Slab(self.device, min(self.most, attempt)))
                return self._find(size) or self._grow(size, nbytes)
            except wgpu.GPUError as error:
                if isinstance(said := self.device.explained(error), DeviceError):
                    raise said from None
                self.release()
        held = f"{self.used} are in use, {self.reserved()} reserved"
        raise MemoryError(f"{self.device.name} has no room for {nbytes} bytes ({held}): {said}")

    def release(self) -> None:
        """Gives slabs of which nothing is in use back to the device."""
        with self.device:
            self.collect()
            self.slabs = [slab for slab in self.slabs if slab.free != [(0, slab.size)]]
            self.device.encoder.group.cache_clear()
