"""The device "meta": shapes, dtypes and strides without memory. Every op is inferred and recorded there, none computed.

It is a backend like any other, whose buffers hold no bytes and whose kernels do nothing, so that no op asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import MetaError
from .contract import Backend, Buffer, Kernel, Operand


def _nothing(*args: Any) -> None:
    """The kernel of every op."""


class MetaBackend(Backend):
    device_type = "meta"

    def device_count(self) -> int:
        return 1

    def allocate(self, nbytes: int, index: int) -> Buffer:
        return Buffer(nbytes)

    def copy_in(self, buffer: Buffer, offset: int, data: memoryview) -> None:
        return None

    def copy_out(self, buffer: Buffer, offset: int, data: memoryview) -> None:
        if data.nbytes:
            raise MetaError("copy_out")

    def copy(self, out: Buffer, out_offset: int, source: Buffer, source_offset: int, nbytes: int) -> None:
        return None

    def compile(self, op: str, operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
        return _nothing


BACKEND = MetaBackend()
