"""CpuBackend: the contract of norch on the native kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from norch.backend import Backend, Fed, Kernel, Operand, Place, get_float32_matmul_precision

from . import module
from .native import native
from .threads import default_threads

# How many bfloat16 numbers stand for a factor of float32 where the processor has tile registers; 0: it stays as it is.
FLOAT32_PARTS = {"highest": 0, "high": 2, "medium": 1}


class CpuBackend(Backend):
    device_type = "cpu"
    kept = frozenset({"fused"})
    channels_last = frozenset(
        {
            "cat",
            "conv2d",
            "conv2d_input_grad",
            "conv2d_weight_grad",
            "max_pool2d",
            "max_pool2d_grad",
            "pad_edges",
            "sum_pool2d",
            "sum_pool2d_grad",
        }
    )
    module = module
    allocate = staticmethod(native.allocate)
    from_host = staticmethod(native.from_host)

    def __init__(self) -> None:
        native.set_num_threads(default_threads())

    def device_count(self) -> int:
        return 1

    def copy_in(self, buffer: Any, offset: int, data: memoryview) -> None:
        if data.nbytes:
            memoryview(buffer)[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, buffer: Any, offset: int, data: memoryview) -> None:
        if data.nbytes:
            data.cast("B")[:] = memoryview(buffer)[offset : offset + data.nbytes]

    def copy(self, out: Any, out_offset: int, source: Any, source_offset: int, nbytes: int) -> None:
        memoryview(out)[out_offset : out_offset + nbytes] = memoryview(source)[source_offset : source_offset + nbytes]

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        native.set_float32_parts(FLOAT32_PARTS[get_float32_matmul_precision()])
        kernel: Kernel | None = native.compile(op, operands, attrs)
        return kernel

    def allocating(self, kernel: Kernel, nbytes: int, index: int) -> Callable[..., Any]:
        found: Callable[..., Any] | None = native.allocating(kernel, nbytes, index)
        return super().allocating(kernel, nbytes, index) if found is None else found

    def scratch_bytes(self, kernel: Kernel) -> int:
        """What a kernel of `compile` takes from the allocator while it runs, where that may be as much as a tensor."""
        nbytes: int = native.scratch_bytes(kernel)
        return nbytes

    def program(
        self,
        calls: Sequence[tuple[Kernel, tuple[Any, ...]]],
        scratch: int,
        bound: Sequence[Any | None],
        index: int,
    ) -> Callable[[Sequence[Any], Sequence[float]], None] | None:
        run: Callable[[Sequence[Any], Sequence[float]], None] | None
        run = native.program(calls, scratch, len(bound), index, Place, Fed)
        return run

    def num_threads(self) -> int:
        count: int = native.num_threads()
        return count

    def set_num_threads(self, count: int) -> None:
        native.set_num_threads(count)

    def set_flush_denormal(self, mode: bool) -> bool:
        can: bool = native.set_flush_denormal(mode)
        return can

    def data_ptr(self, buffer: Any) -> int:
        address: int = buffer.data_ptr
        return address

    def host_view(self, buffer: Any) -> memoryview:
        return memoryview(buffer)
