"""Commands of a device: recorded one after another, submitted about a hundred at a time or when somebody waits.

The functions that every op calls are those of wgpu-native itself: wgpu's own wrappers take several times as long.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import wgpu
from wgpu.backends.wgpu_native import GPUShaderModule, ffi, lib
from wgpu.backends.wgpu_native._api import libf

if TYPE_CHECKING:
    from .devices import Device
    from .memory import Memory, Slab

BATCH = 128  # commands of a submission
RING = 1 << 17
BLOCK = 4096  # bytes of a kernel's numbers, at most

begin, end = lib.wgpuCommandEncoderBeginComputePass, lib.wgpuComputePassEncoderEnd
set_pipeline, dispatch = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderDispatchWorkgroups
set_group, copy_buffer = lib.wgpuComputePassEncoderSetBindGroup, lib.wgpuCommandEncoderCopyBufferToBuffer


class Encoder:
    """`ring` is uniform memory for the numbers of the recorded kernels, and for small uploads. The host writes them
    into `host`, which is uploaded right before the commands that read it. The caller holds the runtime's lock."""

    def __init__(self, device: "Device") -> None:
        self.device, usage = device, wgpu.BufferUsage
        self.step = max(device.limits["min-uniform-buffer-offset-alignment"], 16)
        self.ring = device.wgpu.create_buffer(size=RING + BLOCK, usage=usage.UNIFORM | usage.COPY_DST | usage.COPY_SRC)
        self.host = bytearray(RING + BLOCK)
        self.layouts: dict[int, tuple[Any, Any]] = {}
        self.groups: dict[tuple[Slab, ...], Any] = {}
        self.offset = ffi.new("uint32_t[1]")
        self.encoder: Any = None
        self.compute: Any = None  # the compute pass, None between passes
        self.pipeline: Any = None
        self.count = self.at = self.submitted = 0
        self.idle: list[Any] = []  # buffers for what comes back, and those that wait for it
        self.later: list[Any] = []
        self.map_info = ffi.new("WGPUBufferMapCallbackInfo *")
        self.map_info.mode, self.map_info.callback = lib.WGPUCallbackMode_AllowProcessEvents, _mapped

    def layout(self, tensors: int) -> tuple[Any, Any]:
        """Of a kernel's bindings: storage for its tensors, then its numbers."""
        if tensors not in self.layouts:
            kinds = [{"type": "storage"}] * tensors + [{"type": "uniform", "has_dynamic_offset": True}]
            stage = wgpu.ShaderStage.COMPUTE
            entries = [{"binding": i, "visibility": stage, "buffer": kind} for i, kind in enumerate(kinds)]
            group = self.device.wgpu.create_bind_group_layout(entries=entries)
            self.layouts[tensors] = group, self.device.wgpu.create_pipeline_layout(bind_group_layouts=[group])
        return self.layouts[tensors]

    def group(self, slabs: "tuple[Slab, ...]") -> Any:
        """The bind group of slabs, made when they are first used together."""
        if len(self.groups) > 4096:
            self.groups.clear()
        buffers = [(slab.buffer, slab.size) for slab in slabs] + [(self.ring, BLOCK)]
        resources = [{"buffer": buffer, "offset": 0, "size": size} for buffer, size in buffers]
        entries = [{"binding": i, "resource": resource} for i, resource in enumerate(resources)]
        found = self.device.wgpu.create_bind_group(layout=self.layout(len(slabs))[0], entries=entries)
        self.groups[slabs] = found, found._internal
        return self.groups[slabs]

    def forget(self, slabs: "Sequence[Slab]") -> None:
        """Lets go of slabs that are given back."""
        self.groups = {key: group for key, group in self.groups.items() if not any(s in slabs for s in key)}

    def commands(self) -> Any:
        """The command encoder, outside of a pass."""
        if self.encoder is None:
            self.encoder = self.device.wgpu.create_command_encoder()
        if self.compute is not None:
            end(self.compute)
            lib.wgpuComputePassEncoderRelease(self.compute)
            self.compute = None
        return self.encoder._internal

    def call(self, pipeline: Any, slabs: "tuple[Slab, ...]", pack: Any, numbers: Any, groups: tuple[int, ...]) -> None:
        """Records a kernel. pack: writes its numbers into a bytearray at a place."""
        if self.count >= BATCH or self.at > RING:
            self.submit()
        if self.compute is None:
            self.compute, self.pipeline = begin(self.commands(), ffi.NULL), None
        at, compute = self.at, self.compute
        pack(self.host, at, *numbers)
        if pipeline is not self.pipeline:
            set_pipeline(compute, pipeline)
            self.pipeline = pipeline
        self.offset[0] = at
        set_group(compute, 0, (self.groups.get(slabs) or self.group(slabs))[1], 1, self.offset)
        dispatch(compute, *groups)
        self.at = at + self.step * (-(-pack.__self__.size // self.step))
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
        self.submitted += 1

    def write(self, memory: "Memory", offset: int, data: memoryview) -> None:
        """Host to device; start and size are whole words. What is small comes between the commands."""
        start, size = memory.start + offset, data.nbytes
        if size > 4096 or self.encoder is None:
            self.submit()
            self.device.queue.write_buffer(memory.slab.buffer, start, data)
            return
        if self.at + size > RING:
            self.submit()
        at, commands = self.at, self.commands()
        self.host[at : at + size] = data
        copy_buffer(commands, self.ring._internal, at, memory.slab.raw, start, size)
        self.at = at + self.step * (-(-size // self.step))

    def fetch(self, pieces: "Sequence[tuple[Memory, int, memoryview]]") -> Any:
        """Has pieces of memory (an offset in bytes, where its bytes shall go) copied to where the host can read."""
        spans, total = [], 0
        for memory, offset, data in pieces:
            at = memory.start + offset
            start, size = at & -4, (at + data.nbytes + 3 & -4) - (at & -4)
            spans.append((memory.slab.raw, start, total, size, at - start, data))
            total += size
        buffer = next((b for b in self.idle if b.size >= total), None)
        if buffer:
            self.idle.remove(buffer)
        else:
            usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
            buffer = self.device.wgpu.create_buffer(size=max(total, 1 << 16), usage=usage)
        commands = self.commands()
        for raw, start, to, size, _, _ in spans:
            copy_buffer(commands, raw, start, buffer._internal, to, size)
        return buffer, total, spans

    def fill(self, fetched: Any) -> None:
        """Waits for what was fetched, and gives it where it shall go."""
        buffer, total, spans = fetched
        self.submit()
        handle = ffi.new_handle(found := [])
        self.map_info.userdata1 = handle
        lib.wgpuBufferMapAsync(buffer._internal, lib.WGPUMapMode_Read, 0, total, self.map_info[0])
        while not found:
            lib.wgpuDevicePoll(self.device.wgpu._internal, True, ffi.NULL)
        if found[0] != lib.WGPUMapAsyncStatus_Success:
            raise wgpu.GPUError("memory could not be read back")
        source = ffi.cast("char *", lib.wgpuBufferGetConstMappedRange(buffer._internal, 0, total))
        for _, _, at, _, skip, data in spans:
            ffi.memmove(ffi.from_buffer(data), source + at + skip, data.nbytes)
        lib.wgpuBufferUnmap(buffer._internal)
        if buffer.size <= 1 << 26:
            self.idle = [*self.idle[-3:], buffer]

    def wait(self) -> None:
        self.submit()
        lib.wgpuDevicePoll(self.device.wgpu._internal, True, ffi.NULL)
        waiting, self.later = self.later, []
        for fetched in waiting:
            self.fill(fetched)


@ffi.callback("void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)")
def _mapped(status: int, message: Any, found: Any, unused: Any) -> None:
    ffi.from_handle(found).append(status)


def shader_module(device: Any, source: str, trusted: bool) -> Any:
    """The module of WGSL, compiled without checks of bounds if it is trusted, which wgpu's own wrapper cannot say."""
    if not trusted:
        return device.create_shader_module(code=source)
    wgsl, descriptor = ffi.new("WGPUShaderSourceWGSL *"), ffi.new("WGPUShaderModuleDescriptor *")
    text = ffi.new("char[]", source.encode())
    wgsl.chain.sType, wgsl.code.data, wgsl.code.length = lib.WGPUSType_ShaderSourceWGSL, text, len(text) - 1
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", wgsl)
    return GPUShaderModule("", libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0), device)
