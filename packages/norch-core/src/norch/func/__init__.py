"""Functions of functions: derivatives and maps over batches, under the names of `torch.func`. `norch.func`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..submodules import late_submodules
from .mapping import vmap
from .transforms import (
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "value_and_grad",
    "vjp",
    "vmap",
]


_OF_MODULES = {
    **dict.fromkeys(("functional_call", "replace_all_batch_norm_modules_", "stack_module_state"), "stateless"),
    **dict.fromkeys(("FunctionalModule", "FunctionalModuleWithBuffers", "make_functional"), "functional_modules"),
    **dict.fromkeys(("combine_state_for_ensemble", "make_functional_with_buffers"), "functional_modules"),
}
"""Functions of modules, the later ones the package functorch's, by the module of norch.nn.utils that has them."""


_submodule = late_submodules(__name__)


def __getattr__(name: str) -> Any:
    """What is about modules, which norch-nn has."""
    if name in _OF_MODULES:
        try:
            return getattr(import_module(f"norch.nn.utils.{_OF_MODULES[name]}"), name)
        except ModuleNotFoundError:
            raise AttributeError(f"norch.func.{name} comes with norch-nn: pip install norch-nn") from None
    return _submodule(name)
