"""The devices, and from a kernel's WGSL to a function that records it."""

import itertools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any

import wgpu

from norch.backend import Operand
from norch.dtype import int8, int32
from norch.errors import DeviceError

from .encoder import BLOCK, Encoder, shader_module
from .functions import called
from .memory import Memory, Pool
from .source import Scalar, Tensor, header

USED = ("shader-int64", "shader-f16", "subgroup")
"""Features that devices are asked for where the adapter has them."""
CHECKED = ("gather", "scatter", "scatter_add", "cross_entropy")
"""The ops that look for an index out of range."""


class Device:
    """An adapter that is in use, with its queue, memory and pipelines.

    `record` is what index kernels write, as u32 words: the last call with a wrong index; of the first one whether there
    was one, the index in two words, the dim's size, and the op as a place in CHECKED.
    """

    def __init__(self, adapter: Any, index: int) -> None:
        self.adapter, self.index = adapter, index
        self.name = adapter.info["device"] or adapter.info["description"] or adapter.info["vendor"]
        self.features = {f for f in USED if f in adapter.features}
        self.wgpu = adapter.request_device_sync(required_features=sorted(self.features), required_limits={})
        self.limits: Mapping[str, int] = self.wgpu.limits
        self.queue = self.wgpu.queue
        self.pipelines: dict[tuple[str, int], Any] = {}
        self.encoder = Encoder(self)
        most = min(self.limits["max-storage-buffer-binding-size"], self.limits["max-buffer-size"], 2**32 - 256)
        self.pool = Pool(self, most & -256)
        self.lost: str | None = None
        self.unchecked = False
        self.record = self.pool.take(64)
        self.encoder.write(self.record, 0, memoryview(bytes(64)))

    def raise_if_lost(self) -> None:
        if self.lost:
            raise RuntimeError(f"{self.name} was lost: {self.lost}")

    def pipeline(self, source: str, tensors: int, trusted: bool) -> Any:
        """The compiled kernel. Raises RuntimeError naming the adapter where its compiler refuses it."""
        found = self.pipelines.get((source, tensors))
        if found is None:
            try:
                module = shader_module(self.wgpu, source, trusted)
                compute = {"module": module, "entry_point": "main"}
                found = self.wgpu.create_compute_pipeline(layout=self.encoder.layout(tensors)[1], compute=compute)
            except wgpu.GPUError as error:
                raise RuntimeError(f"{self.name} does not compile a kernel: {error}\n{source}") from None
            self.pipelines[source, tensors] = found
        return found

    def read(self, memory: Memory, offset: int, data: memoryview) -> None:
        """Device to host. Raises IndexError if a kernel met an index out of range."""
        pieces = [(memory, offset, data)] if data.nbytes else []
        found = memoryview(bytearray(24)) if self.unchecked else None
        if found:
            pieces.append((self.record, 0, found))
        if pieces:
            self.encoder.read(pieces)
        if found:
            self.unchecked = False
            _, is_wrong, low, high, size, op = found.cast("I").tolist()
            if is_wrong:
                self.encoder.write(self.record, 0, memoryview(bytes(64)))
                index = (high << 32 | low) - (high >> 31 << 64)
                raise IndexError(
                    f"{CHECKED[op]}(): index {index} is out of bounds for a dim of size {size} (found late)"
                )

    def synchronize(self) -> None:
        self.read(self.record, 0, memoryview(b"")) if self.unchecked else self.encoder.wait()


class Runtime:
    """What the kernels of all devices share."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.lock = threading.RLock()
        self.movers: dict[tuple[int, int], Any] = {}
        self.calls = itertools.count(1)
        self.devices = [Device(adapter, i) for i, adapter in enumerate(self._find())]
        self.features = set(USED).intersection(*(d.features for d in self.devices))
        limits = [d.limits for d in self.devices]
        self.most_tensors = min((n["max-storage-buffers-per-shader-stage"] for n in limits), default=8)
        self.most_groups = min((n["max-compute-workgroups-per-dimension"] for n in limits), default=65535)

    def _find(self) -> list[Any]:
        """The adapters of the one API that has the best of them: GPUs of their own before others, processors last.

        NORCH_WEBGPU_ADAPTER takes those with it in their name.
        """
        wanted = os.environ.get("NORCH_WEBGPU_ADAPTER", "").lower()
        logging.getLogger("wgpu").setLevel(logging.CRITICAL)
        kinds = ["DiscreteGPU", "IntegratedGPU", "unknown", "CPU"]
        found = []
        for adapter in wgpu.gpu.enumerate_adapters_sync():
            info = adapter.info
            names = f"{info['device']} {info['description']} {info['vendor']}".lower()
            if info["backend_type"] in ("Vulkan", "Metal", "D3D12") and wanted in names:
                found.append(
                    (kinds.index(info["adapter_type"] if info["adapter_type"] in kinds else "unknown"), adapter)
                )
        if not found:
            self.reason = f"there is no WebGPU adapter{f' with {wanted!r} in its name' * bool(wanted)}; install the "
            self.reason += "Vulkan driver of your GPU, or one that runs on the CPU: apt install mesa-vulkan-drivers"
            return []
        best, first = min(found, key=lambda f: f[0])
        api = first.info["backend_type"]
        return [a for k, a in found if k == best and a.info["backend_type"] == api]

    @property
    def missing(self) -> dict[str, str]:
        """The dtypes that some device has not, and why."""
        found = {"float64": "WGSL has no float64, nor have most GPUs"}
        if "shader-int64" not in self.features:
            found["int64"] = "an adapter has no shader-int64"
        return found

    def write(self, memory: Memory, offset: int, data: memoryview) -> None:
        """Host to device. What is no whole words, and not the end of its piece, goes by way of a piece of its own."""
        size, whole = data.nbytes, data
        if not size:
            return
        if size % 4:
            whole = memoryview(bytearray(size + 3 & -4))
            whole[:size] = data
        with self.lock:
            if offset % 4 or (size % 4 and offset + size < memory.nbytes):
                piece = memory.device.pool.take(size)
                memory.device.encoder.write(piece, 0, whole)
                self.move(memory, offset, piece, 0, size)
            else:
                memory.device.encoder.write(memory, offset, whole)

    def move(self, out: Memory, out_offset: int, source: Memory, source_offset: int, nbytes: int) -> None:
        """Copies bytes within a device, as words where they are words."""
        size = 4 if (out_offset | source_offset | nbytes) % 4 == 0 else 1
        if nbytes:
            self._mover(size, nbytes // size)(out, out_offset // size, source, source_offset // size)

    def _mover(self, size: int, count: int) -> Any:
        if (size, count) not in self.movers:
            from .elementwise import moved

            operand = Operand(int32 if size == 4 else int8, (count,), (1,))
            self.movers[size, count] = moved(self, "copy", (operand, operand), {})
        return self.movers[size, count]

    def kernel(
        self,
        arguments: Sequence[Tensor | Scalar],
        source: str,
        groups: Sequence[int] | int,
        numbers: Mapping[str, int] | None = None,
        trusted: bool = False,
    ) -> Callable[..., None] | None:
        """A function, called as norch's kernels are, that records a kernel on the device of its first argument.

        arguments: what the function takes, a buffer and an offset for a Tensor and a number for a Scalar. source: WGSL
        with an entry point `main`, to which `source.header` of the arguments and numbers is added. groups: how many
        workgroups, as one number (spread over two dims if need be) or three. trusted: the kernel checks its own
        bounds, so that the compiler need not. None where it has more tensors than adapters bind.
        """
        numbers = numbers or {}
        if max(numbers.values(), default=0) >= 1 << 32:
            raise DeviceError(f"{self.devices[0].name} counts elements with 32 bits, here are {max(numbers.values())}")
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        groups = self.spread(groups) if isinstance(groups, int) else tuple(groups)
        if len(tensors) > self.most_tensors:
            return None
        if max(groups) > self.most_groups:
            raise DeviceError(
                f"{self.devices[0].name} starts at most {self.most_groups} workgroups a dim, not {groups}"
            )
        if 0 in groups:
            return lambda *args: None
        whole = header(arguments, list(numbers)) + source
        whole += called(whole)
        code = Struct(
            "<" + "".join("I" if isinstance(a, Tensor) else a.kind.code for a in arguments) + "I" * len(numbers)
        )
        if code.size > BLOCK:
            raise DeviceError(f"a kernel has {code.size} bytes of numbers, of at most {BLOCK}")
        pipelines = [d.pipeline(whole, len(tensors), trusted)._internal for d in self.devices]
        pack, constants, lock = code.pack_into, tuple(numbers.values()), self.lock
        takes: list[Any] = [None if isinstance(a, Tensor) else a.convert for a in arguments]
        sizes = [0 if isinstance(a, Scalar) else a.kind.size for a in arguments]

        def call(*args: Any) -> None:
            device, slabs, values, at = args[0].device, [], [], 0
            for take, size in zip(takes, sizes):
                if take is None:
                    memory = args[at]
                    slabs.append(memory.slab)
                    values.append(memory.start // size + args[at + 1])
                    at += 2
                else:
                    values.append(take(args[at]))
                    at += 1
            values += constants
            with lock:
                device.encoder.call(pipelines[device.index], tuple(slabs), pack, values, groups)

        return call

    def spread(self, count: int) -> tuple[int, ...]:
        """`count` workgroups over two dims, the last row perhaps in part beyond them."""
        rows = -(-count // self.most_groups)
        return (-(-count // rows), rows, 1) if count else (0, 1, 1)
