"""What the author of a backend imports. A whole plug-in, whose entry point in group `norch` is `mychip = "mychip"`:

from norch.backend import Backend, Buffer, hookimpl

class MyChip(Backend):
    device_type = "mychip"
    def device_count(self): ...
    def allocate(self, nbytes, index): ...
    def copy_in(self, buffer, offset, data): ...
    def copy_out(self, buffer, offset, data): ...
    def copy(self, out, out_offset, source, source_offset, nbytes): ...
    def compile(self, op, operands, attrs): ...

@hookimpl
def norch_backend():
    return MyChip()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..device import set_registry
from ..dtype import DType
from ..errors import BackendError, DeviceError, OutOfMemoryError
from ..settings import allows_tf32, get_float32_matmul_precision, get_switch
from .contract import (
    BINARY,
    COMPARISON,
    CONTRACT,
    IN_PLACE,
    PRIMITIVES,
    REDUCTION,
    UNARY,
    Backend,
    Buffer,
    Fed,
    IndexOutOfBounds,
    Kernel,
    Operand,
    Place,
    feeders,
    unseen,
)

if TYPE_CHECKING:
    from ..plugins.hooks import hookimpl
    from .fused import parse_steps
    from .registry import register

__all__ = [
    "BINARY",
    "COMPARISON",
    "CONTRACT",
    "IN_PLACE",
    "PRIMITIVES",
    "REDUCTION",
    "UNARY",
    "Backend",
    "BackendError",
    "Buffer",
    "DType",
    "DeviceError",
    "Fed",
    "IndexOutOfBounds",
    "Kernel",
    "Operand",
    "OutOfMemoryError",
    "Place",
    "allows_tf32",
    "feeders",
    "get_float32_matmul_precision",
    "get_switch",
    "hookimpl",
    "parse_steps",
    "register",
    "unseen",
]


def __getattr__(name: str) -> Any:
    # pluggy, the registry and what few need are loaded when they are needed, not by `import norch`.
    if name == "hookimpl":
        from ..plugins.hooks import hookimpl

        return hookimpl
    if name == "register":
        return _registry().register
    if name == "parse_steps":
        from .fused import parse_steps

        return parse_steps
    raise AttributeError(f"module 'norch.backend' has no attribute {name!r}")


def _registry() -> Any:
    from . import registry

    return registry


set_registry(_registry)
