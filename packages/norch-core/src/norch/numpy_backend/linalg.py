"""matmul."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backend import Kernel, Operand
from .reduction import is_half
from .views import Array, Factory, bind


def _matmul_half(a: Array, b: Array, out: Array) -> None:
    out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32))


def _matmul(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel | None:
    dtype = operands[0].dtype
    if dtype.name == "bool":
        return None
    return bind(_matmul_half if is_half(dtype) else np.matmul, operands)


KERNELS: dict[str, Factory] = {"matmul": _matmul}
