"""CudaBackend: the contract of norch on the CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from norch.backend import Backend, Fed, Kernel, Operand, Place, allows_tf32, get_switch

from . import _ext, libraries, module

_SUMS = ("matmul.float16_sums", "matmul.bfloat16_sums", "matmul.float16_accumulation")
"""The switches of `norch.backends.cuda.matmul`: off at first."""
_CUDNN = (("cudnn.enabled", True), ("cudnn.deterministic", True), ("cudnn.benchmark", False))
"""The switches of `norch.backends.cudnn`, and what they are at first."""


class CudaBackend(Backend):
    device_type = "cuda"
    kept = frozenset({"scaled_dot_product_attention_sums", "fused"})
    channels_last = frozenset(
        {
            "cat",
            "conv2d",
            "conv2d_input_grad",
            "conv2d_weight_grad",
            "conv3d",
            "conv3d_input_grad",
            "conv3d_weight_grad",
            "max_pool2d",
            "max_pool2d_grad",
            "sum_pool2d",
            "sum_pool2d_grad",
        }
    )
    module = module
    allocate = staticmethod(_ext.allocate)
    copy_in = staticmethod(_ext.copy_in)
    copy_out = staticmethod(_ext.copy_out)
    copy_out_later = staticmethod(_ext.copy_out_later)
    copy = staticmethod(_ext.copy)

    def __init__(self) -> None:
        _ext.set_library_finder(libraries.find)

    def device_count(self) -> int:
        count: int = _ext.device_count()
        return count

    def unusable_reason(self) -> str | None:
        reason: str = _ext.unusable_reason()
        return reason or None

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
        if op.startswith("linalg_") and not self.has_linalg():
            return None
        kind = "conv" if op.startswith("conv") else "rnn" if op.startswith("recurrence") else "matmul"
        _ext.set_precision(allows_tf32(kind), *[bool(get_switch(name)) for name in _SUMS])
        _ext.set_cudnn(*[bool(get_switch(name, default)) for name, default in _CUDNN])
        kernel: Kernel | None = _ext.compile(op, operands, attrs)
        return kernel

    @staticmethod
    def has_linalg() -> bool:
        """Whether cuSOLVER is there."""
        found: bool = _ext.has_linalg()
        return found

    def advice(self, op: str) -> str | None:
        return "pip install norch-cuda[linalg]" if op.startswith("linalg_") else None

    def allocating(self, kernel: Kernel, nbytes: int, index: int) -> Callable[..., Any]:
        found: Callable[..., Any] | None = _ext.allocating(kernel, nbytes, index)
        return super().allocating(kernel, nbytes, index) if found is None else found

    def scratch_bytes(self, kernel: Kernel) -> int:
        """What a kernel of `compile` takes from the allocator while it runs, where that may be as much as a tensor."""
        nbytes: int = _ext.scratch_bytes(kernel)
        return nbytes

    def program(
        self,
        calls: Sequence[tuple[Kernel, tuple[Any, ...]]],
        scratch: int,
        bound: Sequence[Any | None],
        index: int,
    ) -> Callable[[Sequence[Any], Sequence[float]], None] | None:
        run: Callable[[Sequence[Any], Sequence[float]], None] | None
        run = _ext.graph_program(calls, scratch, bound, index, Place, Fed)
        return run

    def synchronize(self, index: int) -> None:
        _ext.synchronize(index)

    def record_stream(self, buffer: Any, stream: Any) -> None:
        if not isinstance(stream, module.Stream):
            raise TypeError(f"record_stream(): expected a norch.cuda.Stream, got {type(stream).__name__}")
        _ext.record_stream(buffer, stream._native)

    def current_device(self) -> int:
        """The index that the device "cuda" without one means."""
        index: int = _ext.current_device()
        return index

    def data_ptr(self, buffer: Any) -> int:
        address: int = buffer.data_ptr
        return address

    def adopt(self, address: int, nbytes: int, index: int, owner: Any) -> Any:
        return _ext.adopt(address, nbytes, index, owner)
