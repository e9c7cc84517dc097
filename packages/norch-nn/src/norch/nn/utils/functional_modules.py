"""Modules without state, which are called with their parameters: of the package functorch, whose programs name them.

`norch.func.functional_call` is what newer programs use.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import norch

from ..module import Module
from .stateless import functional_call, stack_module_state

Tensors = tuple[norch.Tensor, ...]


class FunctionalModule(Module):
    """A module called with its parameters in front: `functional(params, *args)`."""

    def __init__(self, stateless_model: Module, param_names: Sequence[str], names_map: Any = None) -> None:
        super().__init__()
        self.__dict__["stateless_model"] = stateless_model  # which is no part of it, and has nothing to be trained
        self.param_names = tuple(param_names)

    def forward(self, params: Sequence[norch.Tensor], *args: Any, **kwargs: Any) -> Any:
        """What the model gives with `params`, in the order of `param_names`, in place of its parameters."""
        return functional_call(self.stateless_model, _named(self.param_names, params), args, kwargs)


class FunctionalModuleWithBuffers(Module):
    """A module called with its parameters and buffers in front: `functional(params, buffers, *args)`."""

    def __init__(
        self,
        stateless_model: Module,
        param_names: Sequence[str],
        buffer_names: Sequence[str],
        param_names_map: Any = None,
        buffer_names_map: Any = None,
    ) -> None:
        super().__init__()
        self.__dict__["stateless_model"] = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(
        self, params: Sequence[norch.Tensor], buffers: Sequence[norch.Tensor], *args: Any, **kwargs: Any
    ) -> Any:
        """What the model gives with these, in the order of the names, in place of its parameters and buffers."""
        given = _named(self.param_names, params) | _named(self.buffer_names, buffers)
        return functional_call(self.stateless_model, given, args, kwargs)


def _named(names: Sequence[str], tensors: Sequence[norch.Tensor]) -> dict[str, norch.Tensor]:
    if len(names) != len(tensors):
        raise ValueError(f"a functional module has {len(names)} of these tensors, got {len(tensors)}")
    return dict(zip(names, tensors, strict=True))


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, Tensors]:
    """A module without state, and the parameters to call it with: `functional(params, *args)`.

    They are copies of the model's; with `disable_autograd_tracking` none requires grad. Raises RuntimeError for a model
    with buffers, which `make_functional_with_buffers` takes.
    """
    buffers = [name for name, _ in model.named_buffers()]
    if buffers:
        raise RuntimeError(f"make_functional(): the model has buffers ({buffers[0]}): use make_functional_with_buffers")
    own = copy.deepcopy(model)
    names, params = _tensors(own.named_parameters(), disable_autograd_tracking)
    return FunctionalModule(own, names), params


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """A module without state, and the parameters and buffers to call it with: `functional(params, buffers, *args)`.

    They are copies of the model's; with `disable_autograd_tracking` none requires grad.
    """
    own = copy.deepcopy(model)
    names, params = _tensors(own.named_parameters(), disable_autograd_tracking)
    buffer_names, buffers = _tensors(own.named_buffers(), False)
    return FunctionalModuleWithBuffers(own, names, buffer_names), params, buffers


def _tensors(named: Any, untracked: bool) -> tuple[tuple[str, ...], Any]:
    found = dict(named)
    return tuple(found), tuple([t.detach() if untracked else t for t in found.values()])


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, Tensors, Tensors]:
    """A module without state, and the models' parameters and buffers stacked along a new dim 0, for `vmap`.

    Raises ValueError as `stack_module_state`.
    """
    params, buffers = stack_module_state(models)
    functional = FunctionalModuleWithBuffers(copy.deepcopy(models[0]), tuple(params), tuple(buffers))
    return functional, tuple(params.values()), tuple(buffers.values())
