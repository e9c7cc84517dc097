"""The OpenCL side: one context, a queue and a memory pool for each of its devices, programs by their source."""

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyopencl as cl
from pyopencl.tools import ImmediateAllocator, MemoryPool

from norch.backend import Buffer

from .source import CTYPES, Number

Dims = tuple[int, ...]
CHECKED = ("gather", "scatter", "scatter_add")  # the ops that look for an index out of range
NOTHING = "__kernel void nothing(void) {}"


class Memory(Buffer):
    """Device memory. `memory` is the pyopencl buffer, which goes back to its pool with this object."""

    __slots__ = ("device", "memory")

    def __init__(self, nbytes: int, memory: Any, device: "Device") -> None:
        super().__init__(nbytes)
        self.memory = memory
        self.device = device


class Device:
    """A device with its queue. The queue is in order, so that no kernel has to wait for another.

    `record` is what index kernels write: the last call with a wrong index; of the first one whether there was one, the
    index, the dim's size, and the op as a place in CHECKED.
    """

    def __init__(self, context: cl.Context, device: cl.Device, index: int) -> None:
        self.device, self.index = device, index
        self.queue = cl.CommandQueue(context, device)
        self.pool = MemoryPool(ImmediateAllocator(self.queue))
        self.record = Memory(40, cl.Buffer(context, cl.mem_flags.READ_WRITE, 40), self)
        self.unchecked = False
        cl.enqueue_copy(self.queue, self.record.memory, np.zeros(5, np.int64))

    def check(self) -> None:
        """Raises IndexError if a kernel that is done met an index out of range. Waits for the queue."""
        if not self.unchecked:
            return
        self.unchecked = False
        found = np.empty(5, np.int64)
        cl.enqueue_copy(self.queue, found, self.record.memory)
        _, is_wrong, index, size, op = found.tolist()
        if is_wrong:
            cl.enqueue_copy(self.queue, self.record.memory, np.zeros(5, np.int64))
            raise IndexError(f"{CHECKED[op]}(): index {index} is out of bounds for a dim of size {size} (found late)")


class Runtime:
    """What the kernels of all devices share."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.lock = threading.RLock()
        self.programs: dict[str, cl.Program] = {}
        self.calls = itertools.count(1)
        found = self._find()
        self.devices: list[Device] = []
        if found:
            self.context = cl.Context(found)
            try:
                cl.Program(self.context, NOTHING).build()
                self.devices = [Device(self.context, d, i) for i, d in enumerate(found)]
            except cl.Error as error:  # PoCL knows no processors that are newer than itself
                said = next((line for line in str(error).splitlines() if line.startswith("error")), error)
                self.reason = f"{found[0].platform.version} compiles nothing for {found[0].name}: {said}"
        self.has_double = all(d.double_fp_config for d in found)
        self.real = CTYPES["float64" if self.has_double else "float32"]
        # How many work items work together in a reduction or a scan: a power of two.
        self.width = min([128, *(1 << d.max_work_group_size.bit_length() - 1 for d in found)])

    def _find(self) -> list[cl.Device]:
        """The devices of one platform: of NORCH_OPENCL_PLATFORM, or the first with a GPU, or the first."""
        wanted = os.environ.get("NORCH_OPENCL_PLATFORM", "")
        try:
            platforms = [p for p in cl.get_platforms() if wanted.lower() in p.name.lower() and p.get_devices()]
        except cl.Error:  # PLATFORM_NOT_FOUND_KHR
            platforms = []
        if not platforms:
            self.reason = f"there is no OpenCL device{f' of a platform {wanted!r}' * bool(wanted)}; install the driver "
            self.reason += "of your GPU, or one that runs on the CPU: pip install pyopencl[pocl]"
        return min((p.get_devices() for p in platforms), key=lambda d: not d[0].type & cl.device_type.GPU, default=[])

    def allocate(self, nbytes: int, index: int) -> Memory:
        device = self.devices[index]
        if nbytes > device.device.max_mem_alloc_size:
            raise MemoryError(f"{device.device.name} gives at most {device.device.max_mem_alloc_size} bytes at once")
        try:
            with self.lock:
                return Memory(nbytes, device.pool.allocate(max(nbytes, 1)), device)
        except cl.Error as error:
            raise MemoryError(f"{device.device.name} has no room for {nbytes} bytes: {error}") from None

    def kernel(
        self, source: str, name: str, takes: Sequence[Any], constants: Sequence[Any], items: Dims, group: Dims = ()
    ) -> Callable[..., None]:
        """A function, called as norch's kernels are, that puts a kernel into the queue of its first argument's device.

        `takes` has None for a buffer and its offset, and for a number what makes a NumPy scalar of it.
        """
        if 0 in items:
            return lambda *args: None
        with self.lock:
            if source not in self.programs:
                self.programs[source] = cl.Program(self.context, source).build("-w")
        kernel = cl.Kernel(self.programs[source], name)
        converts: list[Number] = [c for t in takes for c in ([t] if t else [attrgetter("memory"), np.uint64])]
        for i, value in enumerate(constants, len(converts)):
            kernel.set_arg(i, value)
        group = group or (min(self.width, 64), *[1] * (len(items) - 1))
        whole = tuple([-(-n // g) * g for n, g in zip(items, group)])
        lock, set_arg, enqueue = self.lock, kernel.set_arg, cl.enqueue_nd_range_kernel
        numbered = list(enumerate(converts))

        def call(*args: Any) -> None:
            with lock:  # between set_arg and enqueue no other thread may use the kernel
                for (i, convert), value in zip(numbered, args):
                    set_arg(i, convert(value))
                enqueue(args[0].device.queue, kernel, whole, group)

        return call
