"""What `norch.cpu` offers beside what every device has."""

from __future__ import annotations

from .native import chosen, native

__all__ = [
    "allocated_size",
    "copy_bandwidth",
    "empty_cache",
    "fma_peak",
    "has_tiles",
    "instruction_set",
    "memory_stats",
    "reset_peak_memory_stats",
    "tile_peak",
]


def memory_stats() -> dict[str, int]:
    """Bytes in use and the most there have been, bytes kept to be used again, and how often the cache had a block."""
    stats: dict[str, int] = native.memory_stats()
    return stats


def allocated_size(nbytes: int) -> int:
    """What `memory_stats` counts for a tensor of `nbytes`: the size class that it falls into, an eighth of a doubling.

    It is what runtime/allocator.cpp rounds to.
    """
    if nbytes <= 512:
        return max(-(-nbytes // 64), 1) * 64
    step = 1 << ((nbytes - 1).bit_length() - 4)
    return -(-nbytes // step) * step


def reset_peak_memory_stats() -> None:
    """Counts `peak_allocated_bytes` from now on."""
    native.reset_peak_memory_stats()


def empty_cache() -> None:
    """Returns the memory that is kept for later tensors to the system."""
    native.empty_cache()


def instruction_set() -> str:
    """The build of the kernels in use: "baseline", "avx2" or "avx512"; "native" is one to develop with."""
    return chosen


def has_tiles() -> bool:
    """Whether products of 16-bit floats, and of float32 at `set_float32_matmul_precision("high")`, are computed in the
    processor's tile registers (AMX). The environment variable NORCH_CPU_TILES=0 leaves them alone."""
    found: bool = native.has_tiles()
    return found


def tile_peak(threads: int) -> float:
    """Bfloat16 operations per second that `threads` threads reach, measured now: in tile registers (AMX), else by dot
    products of pairs (AVX512-BF16), which the environment variable NORCH_CPU_DPBF16=0 leaves alone; 0 without both."""
    rate: float = native.tile_peak(threads)
    return rate


def fma_peak(threads: int) -> float:
    """Float32 operations per second that `threads` threads reach here, measured now; a multiply-add counts as two."""
    rate: float = native.fma_peak(threads)
    return rate


def copy_bandwidth(nbytes: int, threads: int) -> float:
    """Bytes read and written per second when `threads` threads copy `nbytes` here, measured now."""
    rate: float = native.copy_bandwidth(nbytes, threads)
    return rate
