"""WebGPUBackend: the contract of norch on WebGPU."""

from importlib import import_module

from norch.backend import BINARY, COMPARISON, REDUCTION, UNARY, Backend, Kernel

from . import module
from .devices import Runtime
from .dtypes import Attrs, Operands
from .memory import Memory
from .optimizer import STEPS

FAMILIES: dict[str, str] = {
    **dict.fromkeys((*UNARY, *BINARY), "elementwise.arithmetic"), **dict.fromkeys(COMPARISON, "elementwise.comparison"),
    **{op: f"elementwise.{op}" for op in ("where", "fill", "copy", "arange")},
    **dict.fromkeys(REDUCTION, "reduction.reduce"), "cumsum": "reduction.cumsum", "matmul": "matmul.matmul",
    "gather": "indexing.gather", "scatter": "indexing.scatter", "scatter_add": "indexing.scatter", "sort": "sort.sort",
    "embedding": "indexing.embedding", **dict.fromkeys(STEPS, "optimizer.step"),
    **dict.fromkeys(("softmax", "log_softmax", "softmax_grad", "log_softmax_grad"), "norms.softmax"),
    **dict.fromkeys(("layer_norm", "rms_norm"), "norms.norm"),
    **dict.fromkeys(("layer_norm_grad", "rms_norm_grad"), "norms.norm_grad"),
    "random": "random.random", "fused": "fused.fused",
}  # fmt: skip
"""op: the module and the function that makes its kernels, from a Runtime, the op, operands and attrs."""

INDICES = {
    "gather": 2, "scatter": 1, "scatter_add": 1, "embedding": 1, "sort": 1, "argmax": 0, "argmin": 0,
}  # fmt: skip
"""Which operand holds indices. An int64 one is read and written as two words, on any adapter."""


class WebGPUBackend(Backend):
    device_type = "webgpu"
    module = module

    def __init__(self) -> None:
        self.run = Runtime()

    def device_count(self) -> int:
        return len(self.run.devices)

    def unusable_reason(self) -> str | None:
        return self.run.reason

    def allocate(self, nbytes: int, index: int) -> Memory:
        return self.run.devices[index].pool.take(nbytes)

    def copy_in(self, buffer: Memory, offset: int, data: memoryview) -> None:
        self.run.write(buffer, offset, data.cast("B"))

    def copy_out(self, buffer: Memory, offset: int, data: memoryview) -> None:
        with self.run.lock:
            buffer.device.read(buffer, offset, data)

    def copy(self, out: Memory, out_offset: int, source: Memory, source_offset: int, nbytes: int) -> None:
        if out.device is source.device:
            self.run.move(out, out_offset, source, source_offset, nbytes)
        elif nbytes:
            data = memoryview(bytearray(nbytes))
            self.copy_out(source, source_offset, data)
            self.copy_in(out, out_offset, data)

    def synchronize(self, index: int) -> None:
        with self.run.lock:
            self.run.devices[index].synchronize()

    def compile(self, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
        computed = [o for i, o in enumerate(operands) if not o.is_scalar and i != INDICES.get(op)]
        if op not in FAMILIES or not self.run.has(computed):
            return None
        family, _, name = FAMILIES[op].partition(".")
        try:
            make = getattr(import_module(f".{family}", __package__), name)
        except ModuleNotFoundError:
            return None
        return make(self.run, op, operands, attrs)
