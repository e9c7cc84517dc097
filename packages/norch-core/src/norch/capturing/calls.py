"""What a recording is made of: calls of bound kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..backend.contract import Kernel, Operand
    from ..device import Device


class Call(NamedTuple):
    """A kernel call of a recorded step.

    op, operands, attrs: what `Backend.compile` was asked, `kernel` what it returned.
    arguments: as the kernel takes them, with Place(i) for buffers and Fed(i) for numbers that change between runs.
    line: where the step called the op, such as "train.py:12". own: whether the backend's `compile` made the kernel.
    """

    op: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    kernel: Kernel
    arguments: tuple[Any, ...]
    device: Device
    line: str
    own: bool = True
