"""The devices, and from a kernel's WGSL to a function that records it."""

import os
import threading
from collections.abc import Sequence
from functools import cache
from math import nan
from struct import Struct, unpack
from typing import Any

import wgpu

from norch.backend import IndexOutOfBounds, Kernel
from norch.errors import DeviceError

from .dtypes import KINDS
from .encoder import BLOCK, Encoder, compiled
from .functions import called
from .memory import Memory, Pool
from .source import WIDTH, Arguments, Numbers, Scalar, Tensor, Walk, header, main

USED = ("shader-int64", "shader-f16", "subgroup")
"""Features that devices are asked for where the adapter has them."""
RECORD = Tensor("record", KINDS["bytes1"], True)
"""The argument that is a device's record: calls do not give it."""
CHECKED = ("gather", "scatter", "scatter_add", "embedding", "cross_entropy")
"""The ops that look for an index out of range."""
APIS, SORTS = ("Vulkan", "Metal", "D3D12"), {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
# What compilers are known to get wrong, and what is right.
PROBE = main("""if (g > 0u) { return; }
    put_o(0u, i32(is_nan(P.x))); put_o(1u, i32(P.x == P.x)); put_o(2u, floor_divide_i32(P.n, 2)); put_o(3u, P.n >> 1u);
    put_o(4u, i32(encode_float16(65526f + f32(P.n)))); put_o(5u, i32(encode_float16(65527f + f32(P.n))));
    put_o(6u, i32(encode_float16(f32(P.n) * -0x1.8p-25f))); put_o(7u, i32(decode_float16(u32(P.n + 8)) * 0x1p24f));""")
PROBED = [1, 0, -4, -4, 0x7BFF, 0x7C00, 5, 1]


class Device:
    """An adapter that is in use. `with device:` holds the lock of all devices and makes sentences of wgpu's errors.

    `record` is what index kernels write, as u32 words: whether an index was out of range, the first such one in two
    words, the dim's size, and the op as a place in CHECKED.
    """

    def __init__(self, adapter: Any, index: int, lock: Any) -> None:
        self.adapter, self.index, self.lock = adapter, index, lock
        self.name = adapter.info["device"] or adapter.info["description"] or adapter.info["vendor"]
        self.features = sorted(f for f in USED if f in adapter.features)
        self.wgpu = adapter.request_device_sync(required_features=self.features, required_limits={})
        self.limits, self.queue, self.pipeline = self.wgpu.limits, self.wgpu.queue, cache(self._pipeline)
        self.encoder, self.pool = Encoder(self), Pool(self)
        self.unchecked, self.record = False, self.pool.take(64)
        self.encoder.write(self.record, 0, memoryview(bytes(64)))

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.lock.release()
        if isinstance(error, wgpu.GPUError):
            raise self.explained(error) from None

    def explained(self, error: wgpu.GPUError) -> RuntimeError:
        """An error of wgpu's as a sentence that names the adapter."""
        said = " ".join(str(error).split())
        lost = f"{self.name} was lost, and with it what its tensors held; others work on ({said})"
        return DeviceError(lost) if "lost" in said else RuntimeError(f"{self.name}: {said}")

    def _pipeline(self, source: str, tensors: int) -> Any:
        try:
            with self:
                compute = {"module": compiled(self.wgpu, source), "entry_point": "main"}
                return self.wgpu.create_compute_pipeline(layout=self.encoder.layout(tensors)[1], compute=compute)
        except RuntimeError as error:
            error.add_note(f"It was to compile:\n{source}")
            raise

    def read(self, memory: Memory, offset: int, data: memoryview) -> None:
        """Device to host. Raises IndexOutOfBounds if a kernel met one."""
        found = memoryview(bytearray(20))
        wanted = [(memory, offset, data)] * bool(data.nbytes) + [(self.record, 0, found)] * self.unchecked
        for fetched in [self.encoder.fetch(*w) for w in wanted]:
            self.encoder.fill(*fetched)
        self.unchecked = False
        is_wrong, index, size, op = unpack("<IqII", found)
        if is_wrong:
            self.encoder.write(self.record, 0, memoryview(bytes(64)))
            raise IndexOutOfBounds(index, size, CHECKED[op])


class Runtime:
    """What the kernels of all devices share."""

    def __init__(self) -> None:
        self.reason: str | None = None
        lock = threading.RLock()
        self.devices: list[Device] = []
        for adapter in self._find():
            try:
                self.devices.append(Device(adapter, len(self.devices), lock))
                self._probe(self.devices[-1])
            except (wgpu.GPUError, RuntimeError, MemoryError) as error:
                self.reason = f"{adapter.info['device']} cannot be used: {error}"
                del self.devices[-1:]
        self.features = set(USED).intersection(*(d.features for d in self.devices))
        self.missing = {"float64": "WGSL has no float64, nor have most GPUs"}
        if "shader-int64" not in self.features:
            self.missing["int64"] = "an adapter has no shader-int64"

    def least(self, limit: str) -> int:
        """The least of the devices' limits of that name."""
        return min(d.limits[limit] for d in self.devices)

    def _find(self) -> list[Any]:
        """The adapters of the one API that has the best of them, of those with NORCH_WEBGPU_ADAPTER in their name."""
        wanted = os.environ.get("NORCH_WEBGPU_ADAPTER", "").lower()
        found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] in APIS]
        found = [a for a in found if any(wanted in str(text).lower() for text in a.info.values())]
        ranks = [(SORTS.get(a.info["adapter_type"], 2), APIS.index(a.info["backend_type"])) for a in found]
        if not found:
            self.reason = f"there is no WebGPU adapter{f' with {wanted!r} in its name' * bool(wanted)}; install the "
            self.reason += "Vulkan driver of your GPU, or one that runs on the CPU: apt install mesa-vulkan-drivers"
        return [adapter for adapter, rank in zip(found, ranks) if rank == min(ranks)]

    def _probe(self, device: Device) -> None:
        """Raises RuntimeError where a device's compiler gets wrong what kernels rely on."""
        numbers = [Scalar("x", KINDS["float32"], float), Scalar("n", KINDS["int32"], int)]
        found, out = memoryview(bytearray(4 * len(PROBED))), device.pool.take(64)
        self.kernel([Tensor("o", KINDS["int32"], True), *numbers], PROBE, 1, {})(out, 0, nan, -7)
        device.read(out, 0, found)
        if (got := found.cast("i").tolist()) != PROBED:
            raise RuntimeError(f"its driver ({device.adapter.info['description']}) computes {got}, right is {PROBED}")

    def write(self, memory: Memory, offset: int, data: memoryview) -> None:
        """Host to device. What is no whole words, and not the end of its piece, goes by way of a piece of its own."""
        size, whole = data.nbytes, memoryview(bytes(data) + bytes(-data.nbytes % 4)) if data.nbytes % 4 else data
        if offset % 4 or (size % 4 and offset + size < memory.nbytes):
            piece = memory.device.pool.take(size)
            memory.device.encoder.write(piece, 0, whole)
            self.move(memory, offset, piece, 0, size)
        elif size:
            memory.device.encoder.write(memory, offset, whole)

    def move(self, out: Memory, out_offset: int, source: Memory, source_offset: int, nbytes: int) -> None:
        """Copies bytes within a device, as words where they are words."""
        size = 4 if (out_offset | source_offset | nbytes) % 4 == 0 else 1
        kind, count = KINDS[f"bytes{size}"], Scalar("count", KINDS["bytes4"], int)
        body = "for (var i = g; i < P.count; i += 262144u) { put_o(i, get_x(i)); }"
        move = self.kernel([Tensor("o", kind, True), Tensor("x", kind), count], main(body), 262144 // WIDTH, {})
        move(out, out_offset // size, source, source_offset // size, nbytes // size)

    def each(self, arguments: Arguments, walk: Walk, body: str, numbers: Numbers, text: str = "") -> Any:
        """A kernel with an invocation for each element of `walk`, whose `body` may return. `text` comes before it."""
        text += main(f"let {walk.index} = g; if (g >= P.{walk.index}_count) {{ return; }}\n{walk.code()}\n{body}")
        return self.kernel(arguments, text, -(-walk.count // WIDTH), {**walk.numbers, **numbers})

    def kernel(self, arguments: Arguments, source: str, groups: int, numbers: Numbers) -> Kernel | None:
        """A function, called as norch's kernels are, that records a kernel on the device of its first argument; None
        where adapters bind fewer tensors, or numbers.

        source: WGSL with an entry point `main`, to which `source.header` of the arguments and numbers is added; it
        keeps to its bounds, which nobody checks. groups: how many workgroups, perhaps with some more behind them.
        """
        constants, name = tuple(numbers.values()), self.devices[0].name
        reports, record = RECORD in arguments, 2 * [*arguments, RECORD].index(RECORD)  # it comes behind tensors only
        if max(groups, *constants, 0) >= 1 << 32:
            raise DeviceError(f"{name} counts elements with 32 bits, here are {max(groups, *constants)}")
        rows = max(-(-groups // self.least("max-compute-workgroups-per-dimension")), 1)
        grid = -(-groups // rows), rows, 1
        ways = [(None, a.kind.size) if isinstance(a, Tensor) else (a.convert, 0) for a in arguments]
        tensors = sum(isinstance(a, Tensor) for a in arguments)
        codes = ["I" if isinstance(a, Tensor) else a.kind.code for a in arguments] + ["I"] * len(constants)
        code = Struct("<" + "".join(codes))
        if code.size > BLOCK or tensors > self.least("max-storage-buffers-per-shader-stage"):
            return None
        if not groups:
            return lambda *args: None
        whole = header(arguments, list(numbers)) + source
        whole += called(whole)
        pipelines = [d.pipeline(whole, tensors) for d in self.devices]

        def call(*args: Any) -> None:
            device, slabs, values = args[0].device, [], []
            given = iter((*args[:record], device.record, 0, *args[record:]) if reports else args)
            for take, size in ways:
                if take:
                    values.append(take(next(given)))
                else:
                    memory = next(given)
                    slabs.append(memory.slab)
                    values.append(memory.start // size + next(given))
            with device:
                device.unchecked |= reports
                pipeline = pipelines[device.index]._internal  # which lives as long as what has it
                device.encoder.call(pipeline, tuple(slabs), code, (*values, *constants), grid)

        return call


def sequence(names: Sequence[str], steps: Sequence[tuple[Any, Sequence[Any]]], scratch: Numbers) -> Any:
    """A function that calls kernels one after another; None where one is None. Each takes some of its arguments, by
    `names`, and of `scratch`, memory of so many bytes: as names, or with how many elements on it starts."""
    if any(kernel is None for kernel, _ in steps):
        return None
    place = {name: 2 * i for i, name in enumerate((*names, *scratch))}
    pairs = [(kernel, [(take, 0) if isinstance(take, str) else take for take in takes]) for kernel, takes in steps]
    calls = [(kernel, [(place[name], start) for name, start in takes]) for kernel, takes in pairs]

    def call(*args: Any) -> None:
        args += tuple([x for nbytes in scratch.values() for x in (args[0].device.pool.take(nbytes), 0)])
        for kernel, takes in calls:
            kernel(*[x for at, start in takes for x in (args[at], args[at + 1] + start)])

    return call
