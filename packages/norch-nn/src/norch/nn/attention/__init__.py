"""Attention beside `functional.scaled_dot_product_attention`: `flex_attention`, and PyTorch's names of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import norch

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(Enum):
    """The kernels of attention that `sdpa_kernel` chooses from; norch's backends choose themselves."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A context, and a decorator, that changes nothing: which kernel computes attention, norch's backends choose.

    backends: a kernel of SDPBackend or several. set_priority: whether their order matters.
    """
    yield


__getattr__ = norch.late_submodules(__name__)
