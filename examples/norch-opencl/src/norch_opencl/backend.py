"""OpenCLBackend: the contract of norch on OpenCL."""

from collections.abc import Callable

import pyopencl as cl

from norch.backend import BINARY, COMPARISON, REDUCTION, UNARY, Backend, Kernel

from . import elementwise, indexing, matmul, module, random, reduction, sort
from .devices import Memory, Runtime
from .source import Attrs, Operands

FAMILIES: dict[str, Callable[..., Kernel | None]] = {
    **dict.fromkeys((*UNARY, *BINARY, *COMPARISON), elementwise.arithmetic),
    "where": elementwise.where, "fill": elementwise.fill, "copy": elementwise.copy, "arange": elementwise.arange,
    **dict.fromkeys(REDUCTION, reduction.fold), "cumsum": reduction.cumsum, "matmul": matmul.matmul,
    "gather": indexing.gather, "scatter": indexing.scatter, "scatter_add": indexing.scatter, "sort": sort.sort,
    "random": random.random,
}  # fmt: skip


class OpenCLBackend(Backend):
    device_type = "opencl"
    module = module

    def __init__(self) -> None:
        self.run = Runtime()

    @property
    def missing_dtypes(self) -> dict[str, str]:  # type: ignore[override]
        return {} if self.run.has_double else {"float64": "not all devices of its platform have cl_khr_fp64"}

    def device_count(self) -> int:
        return len(self.run.devices)

    def unusable_reason(self) -> str | None:
        return self.run.reason

    def allocate(self, nbytes: int, index: int) -> Memory:
        return self.run.allocate(nbytes, index)

    def copy_in(self, buffer: Memory, offset: int, data: memoryview) -> None:
        if data.nbytes:
            cl.enqueue_copy(buffer.device.queue, buffer.memory, data, dst_offset=offset)

    def copy_out(self, buffer: Memory, offset: int, data: memoryview) -> None:
        if data.nbytes:
            cl.enqueue_copy(buffer.device.queue, data, buffer.memory, src_offset=offset)
        buffer.device.check()

    def copy(self, out: Memory, out_offset: int, source: Memory, source_offset: int, nbytes: int) -> None:
        if not nbytes:
            return
        here, there = out.device.queue, source.device.queue
        ready = [cl.enqueue_marker(there)] if here is not there else None
        where = {"src_offset": source_offset, "dst_offset": out_offset, "byte_count": nbytes}
        done = cl.enqueue_copy(here, out.memory, source.memory, **where, wait_for=ready)
        if ready:  # what is put into the other queue later may write there
            cl.enqueue_barrier(there, wait_for=[done])

    def synchronize(self, index: int) -> None:
        device = self.run.devices[index]
        device.queue.finish()
        device.check()

    def compile(self, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
        make = FAMILIES.get(op)
        if make is None or any(o.dtype.name in self.missing_dtypes and not o.is_scalar for o in operands):
            return None
        return make(self.run, op, operands, attrs)
