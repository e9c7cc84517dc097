"""What `norch.cuda` offers beside what every device has: streams, events, graphs, memory, pinned host memory.

Arguments that mean the same in every function:

    device: an index, a device of type "cuda", or a `device` context of one; the current one unless given. Raises
        DeviceError where there is none.
"""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

import norch

from . import _ext, libraries
from .graphed import make_graphed_callables
from .monitoring import (
    clock_rate,
    device_memory_used,
    list_gpu_processes,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from .stream import (
    CUDAGraph,
    Event,
    ExternalStream,
    Stream,
    current_stream,
    default_stream,
    device_index,
    get_stream_from_external,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    set_stream,
    stream,
)

__all__ = [
    "CUDAGraph",
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "allocated_size",
    "can_device_access_peer",
    "clock_rate",
    "cudart",
    "current_stream",
    "default_stream",
    "device",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_stream_from_external",
    "get_sync_debug_mode",
    "graph",
    "graph_pool_handle",
    "init",
    "ipc_collect",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "memory_usage",
    "nccl_version",
    "pin_memory",
    "power_draw",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_device",
    "set_per_process_memory_fraction",
    "set_stream",
    "set_sync_debug_mode",
    "stream",
    "temperature",
    "uses",
    "utilization",
    "versions",
    "wait_for_handle",
]

DeviceLike = norch.device | str | int | None


def set_device(device: DeviceLike) -> None:
    """Makes a device the one that "cuda" without an index means, in this thread."""
    _ext.set_current_device(device_index(device))


class device:
    """Within this context "cuda" without an index means `device`."""

    __slots__ = ("_before", "idx")

    def __init__(self, device: DeviceLike) -> None:
        self.idx = device_index(device)
        """The index of the device."""

    def __enter__(self) -> None:
        self._before = _ext.current_device()
        _ext.set_current_device(self.idx)

    def __exit__(self, *error: object) -> None:
        _ext.set_current_device(self._before)


class device_of(device):
    """Within this context "cuda" without an index means the device of `obj`, a tensor; of one elsewhere as before."""

    __slots__ = ()

    def __init__(self, obj: norch.Tensor) -> None:
        super().__init__(obj.device if obj.device.type == "cuda" else None)


def init() -> None:
    """Does nothing: the device was set up when it was first asked for."""


def is_initialized() -> bool:
    """True: what asks a device's own module has set it up."""
    return True


@cache
def _properties(index: int) -> dict[str, Any]:
    """What the driver says of a device, which takes it a millisecond."""
    found: dict[str, Any] = _ext.properties(index)
    return found


def get_device_properties(device: DeviceLike = None) -> SimpleNamespace:
    """`name`, `major`, `minor`, `multi_processor_count`, `total_memory`, `L2_cache_size`, `warp_size` and others of a
    device by PyTorch's names, in bytes and kHz."""
    return SimpleNamespace(**_properties(device_index(device)))


def get_device_name(device: DeviceLike = None) -> str:
    """Such as "NVIDIA H200"."""
    name: str = _properties(device_index(device))["name"]
    return name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The compute capability: (9, 0) for Hopper."""
    found = _properties(device_index(device))
    return found["major"], found["minor"]


def is_tf32_supported() -> bool:
    """Whether the current device has tensor cores for tf32: those of compute capability 8.0 and later do."""
    return get_device_capability() >= (8, 0)


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether a device can read the memory of `peer_device`, another one."""
    found: bool = _ext.can_access_peer(device_index(device), device_index(peer_device))
    return found


def cudart() -> SimpleNamespace:
    """What scripts call of CUDA's runtime: `cudaProfilerStart`, `cudaProfilerStop`, which begin and end what NVIDIA's
    profilers record, and `cudaMemGetInfo(device)`. The first two return 0."""
    return SimpleNamespace(
        cudaProfilerStart=lambda: _ext.profile(True),
        cudaProfilerStop=lambda: _ext.profile(False),
        cudaMemGetInfo=mem_get_info,
    )


def nccl_version() -> tuple[int, int, int]:
    """NCCL's, such as (2, 27, 7). Raises RuntimeError where there is none."""
    found: int = _ext.nccl_version()
    return found // 10000, found // 100 % 100, found % 100


def get_sync_debug_mode() -> int:
    """0: nothing is said of what waits for the device."""
    return 0


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Takes a `debug_mode` of "default" or 0. Raises NotImplementedError for others: nothing tells what waits."""
    if debug_mode not in (0, "default"):
        raise norch.LackingError(
            f"norch has no set_sync_debug_mode({debug_mode!r}); norch.profiler.profile shows what took its time"
        )


def versions() -> dict[str, str]:
    """The versions of CUDA that the kernels were built with and that the driver supports, and of cuDNN where it is."""
    runtime, driver = (f"{v // 1000}.{v % 1000 // 10}" for v in _ext.cuda_version())
    found, cudnn = {"runtime": runtime, "driver": driver}, _ext.cudnn_version()
    return found | {"cudnn": f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}"} if cudnn else found


def uses() -> str:
    """What libraries the kernels use, and what is not there, for `norch info`."""
    found = versions()
    parts = [f"CUDA {found['runtime']}", f"driver {found['driver']}"]
    lacking = []
    for name, library in libraries.USED.items():
        if name in found or (name != "cudnn" and libraries.is_there(name)):
            parts.append(f"{library.title} {found.get(name, '')}".rstrip())
        else:
            why = f" {_ext.why_no_cudnn()}" if name == "cudnn" else f" `pip install {library.package}` has it"
            lacking.append(f"; without {library.title} ({library.purpose}):{why}")
    return ", ".join(parts) + "".join(lacking)


def memory_stats(device: DeviceLike = None) -> dict[str, int]:
    """Bytes in use and taken from CUDA, now and at most; how many blocks were given out, and how many CUDA gave; how
    often the cache was given back for want of room, and how often in vain. Those of PyTorch's names that scripts log
    stand for the same numbers.
    """
    stats: dict[str, int] = _ext.memory_stats(device_index(device))
    for kind, counted in (("allocated", "allocated"), ("active", "allocated"), ("reserved", "reserved")):
        stats[f"{kind}_bytes.all.current"] = stats[f"{counted}_bytes"]
        stats[f"{kind}_bytes.all.peak"] = stats[f"peak_{counted}_bytes"]
    return stats | {"num_alloc_retries": stats["retries"], "num_ooms": stats["out_of_memory_errors"]}


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Bytes that CUDA has free on a device, and how many there are in all. What norch keeps for reuse is not free."""
    free, total = _ext.mem_get_info(device_index(device))
    return free, total


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """How much of a device's memory this process may take, 0 to 1, from now on: more is an OutOfMemoryError.

    What was taken before is kept. Raises ValueError for another fraction.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction(): expected a fraction from 0 to 1, got {fraction}")
    _ext.limit_memory(device_index(device), float(fraction))


def allocated_size(nbytes: int) -> int:
    """What `memory_stats` counts for a tensor of `nbytes` in a new block: an eighth of a doubling, or 2 MiB.

    It is what runtime/allocator.cpp rounds to; a block that is used again may be larger.
    """
    if nbytes <= 2048:
        return max(-(-nbytes // 256), 1) * 256
    step = min(1 << ((nbytes - 1).bit_length() - 4), 2 << 20)
    return -(-nbytes // step) * step


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes in use by tensors and kernels."""
    return memory_stats(device)["allocated_bytes"]


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes in use since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device)["peak_allocated_bytes"]


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from CUDA: those in use and those kept for later."""
    return memory_stats(device)["reserved_bytes"]


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes taken from CUDA since the start, or since `reset_peak_memory_stats()`."""
    return memory_stats(device)["peak_reserved_bytes"]


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Counts the `max_memory_…` from now on."""
    _ext.reset_peak_memory_stats(device_index(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Counts blocks, retries and failures from now on."""
    _ext.reset_memory_counts(device_index(device))


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved
reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats
StreamContext = stream


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """`memory_stats` as text, a line each; of `abbreviated` those in bytes only. For people to read."""
    index = device_index(device)
    stats: dict[str, int] = _ext.memory_stats(index)
    lines = [f"memory of cuda:{index}, {get_device_name(index)}"]
    for name, value in stats.items():
        if name.endswith("_bytes"):
            lines.append(f"{name.removesuffix('_bytes').replace('_', ' '):>24}  {value / 2**20:14,.1f} MiB")
        elif not abbreviated:
            lines.append(f"{name.replace('_', ' '):>24}  {value:12,}")
    return "\n".join(lines)


def ipc_collect() -> None:
    """Does nothing: no memory of a device is shared between processes."""


def empty_cache(device: DeviceLike = None) -> None:
    """Waits for the device and returns the memory that is kept for later tensors to CUDA."""
    _ext.empty_cache(device_index(device))


def wait_for_handle(handle: int, device: DeviceLike = None) -> None:
    """Has the current stream of a device wait for what another library's cudaStream_t `handle` was given so far."""
    _ext.wait_for_handle(handle, device_index(device))


def pin_memory(tensor: norch.Tensor) -> norch.Tensor:
    """A copy of a CPU tensor, of any shape, in page-locked memory, contiguous. `.to("cuda")` of it does not wait; it
    must not be changed before the copy is done (`norch.cuda.synchronize()`, an `Event`). Raises DeviceError for a
    tensor elsewhere."""
    source = tensor.detach().contiguous()
    if source.device.type != "cpu":
        raise norch.DeviceError(f"pin_memory(): the tensor is on {source.device}, not on the CPU")
    if not source.numel():
        return source
    memory = memoryview(_ext.PinnedBytes(source.numel() * source.dtype.itemsize))
    pinned = norch.frombuffer(memory, dtype=source.dtype).reshape(source.shape)
    pinned.copy_(source)
    return pinned
