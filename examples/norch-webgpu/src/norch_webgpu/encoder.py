"""Commands of a device: recorded one after another, submitted about a hundred at a time or when somebody waits.

The functions that every op calls are those of wgpu-native itself: wgpu's own wrappers take several times as long.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import wgpu
from wgpu.backends.wgpu_native import ffi, lib
from wgpu.backends.wgpu_native._api import libf

if TYPE_CHECKING:
    from .devices import Device
    from .memory import Memory, Slab

BATCH = 128
RING = 1 << 17
BLOCK = 4096
"""Bytes of a kernel's numbers, at most."""

begin, end = lib.wgpuCommandEncoderBeginComputePass, lib.wgpuComputePassEncoderEnd
set_pipeline, dispatch = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderDispatchWorkgroups
set_group, copy_buffer = lib.wgpuComputePassEncoderSetBindGroup, lib.wgpuCommandEncoderCopyBufferToBuffer


class Encoder:
    """`ring` is uniform memory for the numbers of the recorded kernels, and for small uploads. The host writes them
    into `host`, which is uploaded right before the commands that read it."""

    def __init__(self, device: "Device") -> None:
        usage = wgpu.BufferUsage
        self.device = device
        self.step = max(device.limits["min-uniform-buffer-offset-alignment"], 16)
        self.ring = device.wgpu.create_buffer(size=RING + BLOCK, usage=usage.UNIFORM | usage.COPY_DST | usage.COPY_SRC)
        self.host = bytearray(RING + BLOCK)
        self.layouts: dict[int, tuple[Any, Any]] = {}
        self.groups: dict[tuple[Slab, ...], Any] = {}
        self.offset = ffi.new("uint32_t[1]")
        self.encoder: Any = None
        self.compute: Any = None  # the compute pass, NULL between passes
        self.readback: Any = None
        self.count = self.at = self.submitted = 0
        self.pipeline: Any = None
        self.map_info = ffi.new("WGPUBufferMapCallbackInfo *")
        self.map_info.mode, self.map_info.callback = lib.WGPUCallbackMode_AllowProcessEvents, _mapped

    def layout(self, tensors: int) -> tuple[Any, Any]:
        """Of a kernel's bindings: storage for its tensors, then its numbers."""
        if tensors not in self.layouts:
            storage, numbers = {"type": "storage"}, {"type": "uniform", "has_dynamic_offset": True}
            entries = [
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": storage if i < tensors else numbers}
                for i in range(tensors + 1)
            ]
            group = self.device.wgpu.create_bind_group_layout(entries=entries)
            whole = self.device.wgpu.create_pipeline_layout(bind_group_layouts=[group])
            self.layouts[tensors] = group, whole
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
        for key in [key for key in self.groups if any(slab in slabs for slab in key)]:
            del self.groups[key]

    def open(self) -> Any:
        """The compute pass, begun if need be."""
        if self.encoder is None:
            self.device.raise_if_lost()
            self.encoder = self.device.wgpu.create_command_encoder()
        self.compute = begin(self.encoder._internal, ffi.NULL)
        self.pipeline = None
        return self.compute

    def close(self) -> Any:
        """Ends the pass, for commands that are none of it; the encoder."""
        if self.compute is not None:
            end(self.compute)
            lib.wgpuComputePassEncoderRelease(self.compute)
            self.compute = None
        elif self.encoder is None:
            self.device.raise_if_lost()
            self.encoder = self.device.wgpu.create_command_encoder()
        return self.encoder._internal

    def call(self, pipeline: Any, slabs: "tuple[Slab, ...]", pack: Any, numbers: Any, groups: tuple[int, ...]) -> None:
        """Records a kernel. pack: writes its numbers into a bytearray at a place. The caller holds the lock."""
        if self.count >= BATCH or self.at > RING:
            self.submit()
        at, compute = self.at, self.compute
        if compute is None:
            compute = self.open()
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
        self.close()
        encoder, self.encoder = self.encoder, None
        at, self.at, self.count = self.at, 0, 0
        commands = encoder.finish()
        if at:
            self.device.queue.write_buffer(self.ring, 0, self.host, 0, at + 3 & -4)
        self.device.queue.submit([commands])
        self.submitted += 1

    def write(self, memory: "Memory", offset: int, data: memoryview) -> None:
        """Host to device; start and size are whole words."""
        start, size = memory.start + offset, data.nbytes
        if size > 4096 or self.encoder is None:
            self.submit()
            self.device.queue.write_buffer(memory.slab.buffer, start, data)
            return
        if self.at + size > RING:
            self.submit()
        at = self.at
        self.host[at : at + size] = data
        copy_buffer(self.close(), self.ring._internal, at, memory.slab.raw, start, size)
        self.at = at + self.step * (-(-size // self.step))

    def read(self, pieces: "Sequence[tuple[Memory, int, memoryview]]") -> None:
        """Device to host, and waits: each piece is memory, an offset in bytes, and where its bytes go."""
        spans, total = [], 0
        for memory, offset, data in pieces:
            start = memory.start + offset & -4
            size = (memory.start + offset + data.nbytes + 3 & -4) - start
            spans.append((memory.slab, start, size, total, memory.start + offset - start, data))
            total += size
        if self.readback is None or self.readback.size < total:
            usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.MAP_READ
            self.readback = None
            self.readback = self.device.wgpu.create_buffer(size=max(total, 1 << 16), usage=usage)
        raw, encoder = self.readback._internal, self.close()
        for slab, start, size, at, _, _ in spans:
            copy_buffer(encoder, slab.raw, start, raw, at, size)
        self.submit()
        state = ffi.new_handle(found := [])
        self.map_info.userdata1 = state
        lib.wgpuBufferMapAsync(raw, lib.WGPUMapMode_Read, 0, total, self.map_info[0])
        while not found:
            lib.wgpuDevicePoll(self.device.wgpu._internal, 1, ffi.NULL)
        if found[0] != lib.WGPUMapAsyncStatus_Success:
            self.device.raise_if_lost()
            raise RuntimeError(f"{self.device.name} did not give its memory back to be read")
        pointer = lib.wgpuBufferGetConstMappedRange(raw, 0, total)
        for _, _, _, at, skip, data in spans:
            ffi.memmove(ffi.from_buffer(data), ffi.cast("char *", pointer) + at + skip, data.nbytes)
        lib.wgpuBufferUnmap(raw)
        if self.readback.size > 1 << 26:
            self.readback = None

    def wait(self) -> None:
        self.submit()
        lib.wgpuDevicePoll(self.device.wgpu._internal, 1, ffi.NULL)


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
    made = libf.wgpuDeviceCreateShaderModuleTrusted(device._internal, descriptor, 0)
    return wgpu.backends.wgpu_native.GPUShaderModule("", made, device)
