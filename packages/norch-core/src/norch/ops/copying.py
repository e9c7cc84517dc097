"""Copies: `clone`, `contiguous`, and the write of one tensor into another's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dispatch import run_into, run_one
from .creation import COPY

if TYPE_CHECKING:
    from ..tensor import Tensor


def write(out: Tensor, source: Tensor) -> None:
    """Copies `source` into the memory of `out`, unrecorded."""
    run_into(COPY, out, source, out.spec.dtype, None)


def clone(input: Tensor, *, memory_format: object = None) -> Tensor:
    """A copy in memory of its own, through which gradients flow."""
    out: Tensor = run_one(COPY, input, None, None)
    return out


def contiguous(input: Tensor, memory_format: object = None) -> Tensor:
    """The tensor itself if its elements lie in row-major order without gaps, else a copy of which that is true."""
    if input.spec.is_contiguous:
        return input
    out: Tensor = run_one(COPY, input, None, True)
    return out
