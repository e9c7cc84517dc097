"""Commands of a device: recorded one after another, submitted about a hundred at a time or when somebody waits.

The functions that every op calls are those of wgpu-native itself: wgpu's own wrappers take several times as long.
"""

from functools import cache, lru_cache
from itertools import count
from struct import Struct
from typing import Any

import wgpu
from wgpu.backends.wgpu_native import GPUShaderModule, ffi, lib
from wgpu.backends.wgpu_native._api import libf

BATCH, FIRST = 128, 8  # commands of a submission, and of the first one after the host has waited: it grows
RING = 1 << 17
BLOCK = 4096  # bytes of a kernel's numbers, at most
USAGE = wgpu.BufferUsage

MAPPED: dict[int, int] = {}  # by its number, what came of a mapping; wgpu's own wait takes a thread, and twice as long
NUMBERS = count()


@ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")
def arrived(status: int, said: Any, number: Any, _: Any) -> None:
    MAPPED[int(ffi.cast("intptr_t", number))] = status


INFO = ffi.new("WGPUBufferMapCallbackInfo *", {"mode": lib.WGPUCallbackMode_AllowProcessEvents, "callback": arrived})


class Encoder:
    """`ring` is uniform memory for the numbers of kernels, which come from `host` right before the commands that read
    them. The caller holds the device's lock."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.step = max(device.limits["min-uniform-buffer-offset-alignment"], 16)
        self.ring = device.wgpu.create_buffer(size=RING + BLOCK, usage=USAGE.UNIFORM | USAGE.COPY_DST)
        self.host = bytearray(RING + BLOCK)
        self.layout, self.group = cache(self._layout), lru_cache(4096)(self._group)
        self.offset = ffi.new("uint32_t[1]")
        self.encoder = self.compute = self.pipeline = None  # compute: the pass, if one is open
        self.count, self.at, self.submitted, self.batch = 0, 0, 0, FIRST
        self.later: list[Any] = []

    def _layout(self, tensors: int) -> tuple[Any, Any]:
        """Of bindings: storage for tensors, then numbers."""
        kinds = [{"type": "storage"}] * tensors + [{"type": "uniform", "has_dynamic_offset": True}]
        entries = [{"binding": i, "visibility": "COMPUTE", "buffer": kind} for i, kind in enumerate(kinds)]
        group = self.device.wgpu.create_bind_group_layout(entries=entries)
        return group, self.device.wgpu.create_pipeline_layout(bind_group_layouts=[group])

    def _group(self, slabs: tuple[Any, ...]) -> Any:
        """The bind group of slabs, and what wgpu-native calls it."""
        buffers = enumerate([(slab.buffer, slab.size) for slab in slabs] + [(self.ring, BLOCK)])
        entries = [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": size}} for i, (b, size) in buffers]
        found = self.device.wgpu.create_bind_group(layout=self.layout(len(slabs))[0], entries=entries)
        return found, found._internal

    def commands(self) -> Any:
        """The command encoder, outside of a pass."""
        if self.encoder is None:
            self.encoder = self.device.wgpu.create_command_encoder()
        if self.compute is not None:
            lib.wgpuComputePassEncoderEnd(self.compute)
            lib.wgpuComputePassEncoderRelease(self.compute)
            self.compute = None
        return self.encoder._internal

    def call(self, pipeline: Any, slabs: tuple[Any, ...], code: Struct, numbers: Any, groups: tuple[int, ...]) -> None:
        """Records a kernel. code: how its numbers are packed."""
        if self.count >= self.batch or self.at > RING:
            self.submit()
        if self.compute is None:
            self.compute, self.pipeline = lib.wgpuCommandEncoderBeginComputePass(self.commands(), ffi.NULL), None
        code.pack_into(self.host, self.at, *numbers)
        if pipeline is not self.pipeline:
            lib.wgpuComputePassEncoderSetPipeline(self.compute, pipeline)
            self.pipeline = pipeline
        self.offset[0] = self.at
        lib.wgpuComputePassEncoderSetBindGroup(self.compute, 0, self.group(slabs)[1], 1, self.offset)
        lib.wgpuComputePassEncoderDispatchWorkgroups(self.compute, *groups)
        self.at += self.step * (-(-code.size // self.step))
        self.count += 1

    def submit(self) -> None:
        """Gives the device what was recorded."""
        if self.encoder is None:
            return
        self.commands()
        encoder, self.encoder, at, self.at, self.count = self.encoder, None, self.at, 0, 0
        commands = encoder.finish()
        if at:
            self.device.queue.write_buffer(self.ring, 0, self.host, 0, at)
        self.device.queue.submit([commands])
        self.submitted, self.batch = self.submitted + 1, min(2 * self.batch, BATCH)

    def write(self, memory: Any, offset: int, data: memoryview) -> None:
        """Host to device, behind what was recorded; start and size are whole words."""
        self.submit()
        self.device.queue.write_buffer(memory.slab.buffer, memory.start + offset, data)

    def fetch(self, memory: Any, offset: int, data: memoryview) -> Any:
        """Has bytes copied to where the host can read them, later."""
        at = memory.start + offset
        start, size = at & -4, (at + data.nbytes + 3 & -4) - (at & -4)
        buffer = self.device.wgpu.create_buffer(size=size, usage=USAGE.COPY_DST | USAGE.MAP_READ)
        lib.wgpuCommandEncoderCopyBufferToBuffer(self.commands(), memory.slab.raw, start, buffer._internal, 0, size)
        return buffer, at - start, data

    def fill(self, buffer: Any, skip: int, data: memoryview) -> None:
        """Waits for what was fetched, and gives it where it shall go."""
        self.submit()
        raw, number, self.batch = buffer._internal, next(NUMBERS), FIRST
        INFO.userdata1 = ffi.cast("void *", number)
        lib.wgpuBufferMapAsync(raw, lib.WGPUMapMode_Read, 0, buffer.size, INFO[0])
        while number not in MAPPED:  # Ctrl-C may leave one that nobody takes
            lib.wgpuDevicePoll(self.device.wgpu._internal, True, ffi.NULL)
        if MAPPED.pop(number) != lib.WGPUMapAsyncStatus_Success:
            raise wgpu.GPUError("memory could not be read back")
        source = ffi.cast("char *", lib.wgpuBufferGetConstMappedRange(raw, 0, buffer.size))
        ffi.memmove(ffi.from_buffer(data), source + skip, data.nbytes)
        lib.wgpuBufferUnmap(raw)

    def wait(self) -> None:
        self.submit()
        lib.wgpuDevicePoll(self.device.wgpu._internal, True, ffi.NULL)
        waiting, self.later, self.batch = self.later, [], FIRST
        for fetched in waiting:
            self.fill(*fetched)


def compiled(device: Any, source: str) -> Any:
    """The module of WGSL without checks of bounds, which wgpu's own wrapper cannot say."""
    wgsl, descriptor = ffi.new("WGPUShaderSourceWGSL *"), ffi.new("WGPUShaderModuleDescriptor *")
    text = ffi.new("char[]", source.encode())
    wgsl.chain.sType, wgsl.code.data, wgsl.code.length = lib.WGPUSType_ShaderSourceWGSL, text, len(text) - 1
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", wgsl)
    return GPUShaderModule("", libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0), device)
