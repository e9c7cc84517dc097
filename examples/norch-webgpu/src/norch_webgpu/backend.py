"""WebGPUBackend: the contract of norch on WebGPU."""

from importlib import import_module

from norch.backend import BINARY, COMPARISON, REDUCTION, UNARY, Backend, Kernel

from . import module
from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands
from .memory import Memory
from .optimizer import STEPS
from .rules import COMPOSITE

FAMILIES: dict[str, str] = {
    **dict.fromkeys((*UNARY, *BINARY, *COMPARISON, *COMPOSITE), "elementwise.computed"),
    **dict.fromkeys(("where", "fill", "copy"), "elementwise.moved"),
    "arange": "elementwise.computed",
    "fused": "elementwise.fused",
    "random": "random.random",
    **dict.fromkeys(REDUCTION, "reduction.reduce"),
    "cumsum": "reduction.cumsum",
    "matmul": "matmul.matmul",
    **{f"conv2d{x}": "convolution.convolution" for x in ("", "_input_grad", "_weight_grad")},
    **{f"max_pool2d{x}": "pooling.pool" for x in ("", "_indices", "_grad")},
    **{f"scaled_dot_product_attention{x}": "attention.attention" for x in ("", "_grad")},
    "gather": "indexing.gather",
    "embedding": "indexing.embedding",
    **dict.fromkeys(("scatter", "scatter_add"), "indexing.scatter"),
    "sort": "sort.sort",
    **dict.fromkeys(STEPS, "optimizer.step"),
    **{f"{name}{x}": "norms.softmax" for name in ("softmax", "log_softmax") for x in ("", "_grad")},
    **dict.fromkeys(("layer_norm", "rms_norm"), "norms.norm"),
    **dict.fromkeys(("layer_norm_grad", "rms_norm_grad"), "norms.norm_grad"),
    "cross_entropy_rows": "loss.cross_entropy",
    "cross_entropy_rows_grad": "loss.cross_entropy_grad",
}
"""op: the module and the function that makes its kernels, from a Runtime, the op, operands and attrs."""

INDICES = {
    **dict.fromkeys(("max_pool2d_indices", "argmax", "argmin"), 0),
    **dict.fromkeys(("scatter", "scatter_add", "embedding", "sort"), 1),
    **{"gather": 2, "cross_entropy_rows": 3, "cross_entropy_rows_grad": 4},
}
"""Which operand holds indices. An int64 one is read and written as two words, on any adapter."""


class WebGPUBackend(Backend):
    device_type = "webgpu"
    module = module

    def __init__(self) -> None:
        self.run = Runtime()
        self.missing_dtypes = self.run.missing

    def device_count(self) -> int:
        return len(self.run.devices)

    def unusable_reason(self) -> str | None:
        return self.run.reason

    def allocate(self, nbytes: int, index: int) -> Memory:
        return self.run.devices[index].pool.take(nbytes)

    def copy_in(self, buffer: Memory, offset: int, data: memoryview) -> None:
        with buffer.device:
            self.run.write(buffer, offset, data.cast("B"))

    def copy_out(self, buffer: Memory, offset: int, data: memoryview) -> None:
        with buffer.device:
            buffer.device.read(buffer, offset, data)

    def copy_out_later(self, buffer: Memory, offset: int, data: memoryview) -> None:
        with buffer.device:
            encoder = buffer.device.encoder
            encoder.later += [encoder.fetch(buffer, offset, data)] if data.nbytes else []

    def copy(self, out: Memory, out_offset: int, source: Memory, source_offset: int, nbytes: int) -> None:
        if out.device is source.device:
            self.run.move(out, out_offset, source, source_offset, nbytes)
        else:
            self.copy_out(source, source_offset, data := memoryview(bytearray(nbytes)))
            self.copy_in(out, out_offset, data)

    def synchronize(self, index: int) -> None:
        with self.run.devices[index]:
            self.run.devices[index].synchronize()

    def compile(self, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
        moves = op in ("fill", "where") or (op == "copy" and operands[0].dtype is operands[1].dtype)
        tensors = {o.dtype.name for i, o in enumerate(operands) if not o.is_scalar and i != INDICES.get(op)}
        if moves:
            tensors.discard("int64")  # as two words
        if op not in FAMILIES or tensors & self.missing_dtypes.keys() or not tensors <= KINDS.keys():
            return None
        family, _, name = FAMILIES[op].partition(".")
        return getattr(import_module(f".{family}", __package__), name)(self.run, op, operands, attrs)
