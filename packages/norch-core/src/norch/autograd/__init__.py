"""Automatic differentiation: the graph, the backward pass and the modes that govern recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..submodules import late_submodules
from ..tensor_base import TensorBase
from . import garbage as garbage
from .engine import backward, grad, queue_callback
from .graph import Node
from .lines import record_lines
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
    from . import functional
    from .anomaly import detect_anomaly, is_anomaly_enabled, set_detect_anomaly
    from .function import Function
    from .growth import note_step

__all__ = [
    "Function",
    "Node",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "inference_mode",
    "is_anomaly_enabled",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "note_step",
    "queue_callback",
    "record_lines",
    "set_detect_anomaly",
    "set_grad_enabled",
]


def _is_checkpoint_valid() -> bool:
    """True: a checkpoint may be within any backward pass."""
    return True


class _Engine:
    """What PyTorch's scripts use of its engine."""

    queue_callback = staticmethod(queue_callback)


class _VariableMeta(type):
    """Every tensor is a Variable."""

    _execution_engine = _Engine()

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, TensorBase)


class Variable(metaclass=_VariableMeta):
    """PyTorch's old form of a tensor, by which old scripts know one: `isinstance(x, Variable)`.

    Called it gives a leaf on the memory of the tensor `data`, which requires grad as is said. volatile: ignored.
    """

    def __new__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        return data.detach().requires_grad_(requires_grad)


_LATER = {
    "Function": "function",
    "_disable_profiler": "..profiler.session",
    "_profiler_enabled": "..profiler.session",
    "_unsafe_preserve_version_counter": "versions",
    "detect_anomaly": "anomaly",
    "gradcheck": "..testing.gradcheck",
    "gradgradcheck": "..testing.gradcheck",
    "is_anomaly_enabled": "anomaly",
    "note_step": "growth",
    "set_detect_anomaly": "anomaly",
    "set_multithreading_enabled": "mode",
}


_submodule = late_submodules(__name__)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("anomaly", "functional"):
        return import_module(f"norch.autograd.{name}")
    if name in _LATER:
        module = _LATER[name]
        return getattr(import_module(module if module.startswith(".") else f".{module}", "norch.autograd"), name)
    return _submodule(name)
