"""arange and random."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend import Kernel, Operand
from .philox import KINDS, words
from .views import Array, Factory, as_is, bind, python_number

CHUNK = 1 << 14
"""Blocks made at a time: enough to keep NumPy busy, little enough for the cache."""


def _random(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
    out_operand = operands[0]
    transform = KINDS.get((attrs["kind"], out_operand.dtype.name))
    if transform is None:
        return None
    per_block = 2 if out_operand.dtype.itemsize == 8 and attrs["kind"] != "bits" else 4

    def compute(seed: int, offset: int, out: Array) -> None:
        flat = out.reshape(-1) if out.flags.c_contiguous else np.empty(out.size, out.dtype)
        step = CHUNK * per_block
        for start in range(0, out.size, step):
            part = flat[start : start + step]
            blocks = -(-part.size // per_block)
            part[...] = transform(words(seed, offset, start // per_block, blocks)).reshape(-1)[: part.size]
        if not out.flags.c_contiguous:
            out[...] = flat.reshape(out.shape)

    return bind(compute, operands, as_is)


def _arange(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    dtype, (n,) = operands[0].dtype, operands[0].shape
    count = np.arange(n, dtype=np.float64 if dtype.is_floating_point else np.int64)
    number = python_number(dtype)

    def compute(start: Any, step: Any, out: Array) -> None:
        out[...] = number(start) + count * number(step)

    return bind(compute, operands, as_is)


KERNELS: dict[str, Factory] = {"arange": _arange, "random": _random}
