"""Functions of functions: derivatives and maps over batches, under the names of `torch.func`. `norch.func`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..submodules import late_submodules
from .mapping import vmap
from .transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, value_and_grad, vjp

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]


_submodule = late_submodules(__name__)


def __getattr__(name: str) -> Any:
    """What is about modules, which norch-nn has."""
    if name in ("functional_call", "stack_module_state"):
        try:
            return getattr(import_module("norch.nn.utils.stateless"), name)
        except ModuleNotFoundError:
            raise AttributeError(f"norch.func.{name} comes with norch-nn: pip install norch-nn") from None
    return _submodule(name)
