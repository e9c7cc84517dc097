"""WebGPUBackend: the contract of norch on WebGPU."""

from importlib import import_module

from norch.backend import BINARY, COMPARISON, REDUCTION, UNARY, Backend, Kernel

from . import module
from .devices import Runtime
from .dtypes import KINDS, Attrs, Operands
from .elementwise import COMPOSITE
from .memory import Memory
from .optimizer import STEPS

FAMILIES = {
    "attention.attention": ["scaled_dot_product_attention", "scaled_dot_product_attention_grad"],
    "convolution.convolution": ["conv2d", "conv2d_input_grad", "conv2d_weight_grad"],
    "elementwise.elementwise": [*UNARY, *BINARY, *COMPARISON, *COMPOSITE, "arange", "where", "fill", "copy", "fused"],
    "indexing.gather": ["gather", "embedding"],
    "indexing.scatter": ["scatter", "scatter_add"],
    "indexing.sort": ["sort"],
    "norms.cross_entropy": ["cross_entropy_rows", "cross_entropy_rows_grad"],
    "norms.norm": ["layer_norm", "rms_norm"],
    "norms.norm_grad": ["layer_norm_grad", "rms_norm_grad"],
    "norms.softmax": ["softmax", "softmax_grad", "log_softmax", "log_softmax_grad"],
    "optimizer.step": [*STEPS],
    "pooling.pool": ["max_pool2d", "max_pool2d_indices", "max_pool2d_grad"],
    "products.matmul": ["matmul"],
    "random.random": ["random"],
    "reduction.cumsum": ["cumsum"],
    "reduction.reduce": REDUCTION,
}
"""By the module and the function that makes kernels, from a Runtime, the op, operands and attrs: the ops."""
MAKERS = {op: maker for maker, ops in FAMILIES.items() for op in ops}

INDICES = {
    **dict.fromkeys(("max_pool2d_indices", "argmax", "argmin"), 0),
    **dict.fromkeys(("scatter", "scatter_add", "embedding", "sort"), 1),
    "gather": 2,
    "cross_entropy_rows": 3,
    "cross_entropy_rows_grad": 4,
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
        with (device := self.run.devices[index]):
            device.encoder.wait()
            device.read(device.record, 0, memoryview(b""))

    def compile(self, op: str, operands: Operands, attrs: Attrs) -> Kernel | None:
        moves = op in ("fill", "where") or (op == "copy" and operands[0].dtype is operands[1].dtype)
        tensors = {o.dtype.name for i, o in enumerate(operands) if not o.is_scalar and i != INDICES.get(op)}
        if moves:
            tensors.discard("int64")  # as two words
        if op not in MAKERS or tensors & self.missing_dtypes.keys() or not tensors <= KINDS.keys():
            return None
        family, _, name = MAKERS[op].partition(".")
        return getattr(import_module(f".{family}", __package__), name)(self.run, op, operands, attrs)
