"""Automatic differentiation: the graph, the backward pass and the modes that govern recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine import backward, grad
from .graph import Node
from .mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

if TYPE_CHECKING:
    from ..testing.gradcheck import gradcheck, gradgradcheck
    from .function import Function

__all__ = [
    "Function",
    "Node",
    "backward",
    "enable_grad",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]


def __getattr__(name: str) -> Any:
    if name in ("gradcheck", "gradgradcheck"):
        from ..testing import gradcheck as checks

        return getattr(checks, name)
    if name == "Function":
        from .function import Function

        return Function
    raise AttributeError(f"module 'norch.autograd' has no attribute {name!r}")
