"""Parameters made of others by modules, each time they are asked for.

    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

    parametrize.register_parametrization(layer, "weight", Symmetric())

From then on `layer.weight` is what the module makes of the trained one, `layer.parametrizations.weight.original`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import norch

from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter
from ..registry import list_registries, unlisted

_cache: dict[tuple[int, str], norch.Tensor] | None = None
"""What was made of parameters within `cached`."""


@contextmanager
def cached() -> Iterator[None]:
    """Within it each parametrized tensor is made once."""
    global _cache
    before, _cache = _cache, {} if _cache is None else _cache
    try:
        yield
    finally:
        _cache = before


class ParametrizationList(ModuleList):
    """The parametrizations of a tensor, in order, and what they start from: `original`, or `original0`, `original1`.

    unsafe: without a look at shape and dtype.
    """

    def __init__(self, modules: Sequence[Module], original: norch.Tensor, unsafe: bool = False) -> None:
        super().__init__(modules)
        self.unsafe = unsafe
        made: Any = original.detach()
        for module in reversed(modules):
            if hasattr(module, "right_inverse"):
                with norch.no_grad(), suppress(NotImplementedError):  # which then starts from the value itself
                    made = module.right_inverse(made)
        self.is_tensor = isinstance(made, norch.Tensor)
        self.ntensors = 1 if self.is_tensor else len(made)
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        for name, value in zip(names, [made] if self.is_tensor else made):
            if isinstance(original, Parameter):
                # The optimiser may have the parameter already: it stays the same where its shape does.
                if self.is_tensor and value.shape == original.shape and value.dtype is original.dtype:
                    with norch.no_grad():
                        original.copy_(value)
                    self.register_parameter(name, original)
                else:
                    self.register_parameter(name, Parameter(value, original.requires_grad))
            else:
                self.register_buffer(name, value)

    def forward(self) -> norch.Tensor:
        """The tensor."""
        if self.is_tensor:
            out = self[0](self.original)
        else:
            out = self[0](*[getattr(self, f"original{i}") for i in range(self.ntensors)])
        for module in list(self)[1:]:
            out = module(out)
        return out

    def right_inverse(self, value: norch.Tensor) -> None:
        """Gives the originals the values of which the parametrizations make `value`, of the tensor's shape.
        NotImplementedError without.
        """
        with norch.no_grad():
            made: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise NotImplementedError(f"{type(module).__name__} has no right_inverse: it cannot be assigned to")
                made = module.right_inverse(made)
            for i, part in enumerate([made] if self.is_tensor else made):
                getattr(self, "original" if self.is_tensor else f"original{i}").copy_(part)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has parametrizations, or one of `tensor_name`."""
    found = module.__dict__.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return bool(len(found)) if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type:
    """The module's class, without the one that parametrizations put before it."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def _property(name: str) -> property:
    def get(self: Any) -> norch.Tensor:
        made: norch.Tensor
        if _cache is None:
            made = self.parametrizations[name]()
            return made
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def set(self: Any, value: norch.Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, set)


def _parametrized_class(kind: type, properties: dict[str, property]) -> type:
    """A subclass that one module alone is of: properties belong to classes."""
    body = {"__module__": kind.__module__, "__deepcopy__": _deepcopied, "__reduce_ex__": _not_pickled}
    return type(f"Parametrized{kind.__name__}", (kind,), {**body, **properties})


def _deepcopied(self: Any, memo: dict[int, Any]) -> Any:
    kind: Any = type(self).__bases__[0]
    copied = kind.__new__(kind)
    memo[id(self)] = copied
    copied.__dict__.update(copy.deepcopy(unlisted(self.__dict__), memo))
    list_registries(copied)
    properties = {name: value for name, value in vars(type(self)).items() if isinstance(value, property)}
    copied.__class__ = _parametrized_class(kind, properties)
    return copied


def _not_pickled(self: Any, protocol: Any) -> Any:
    raise RuntimeError(f"a parametrized {type(self).__bases__[0].__name__} cannot be pickled: save its state_dict()")


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes `module.tensor_name`, a parameter or buffer, what `parametrization` makes of it. Returns the module.

    A second one is applied to what the first makes. Where it has a `right_inverse`, the tensor starts from that of its
    value, a tensor or several, and can be assigned to. It trains or evaluates from then on as `module` does. Raises
    ValueError for a name that is neither, and, unless `unsafe`, for a parametrization that changes shape or dtype.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        before = getattr(module, tensor_name)
        found = module.parametrizations[tensor_name]
        if not unsafe:
            _check(parametrization(before), before, parametrization)
        found.append(parametrization)
        return module
    value = module.__dict__.get(tensor_name)
    if (tensor_name not in module._parameter_names and tensor_name not in module._buffer_names) or value is None:
        raise ValueError(
            f"register_parametrization(): {type(module).__name__} has no parameter, buffer or parametrized tensor "
            f"named {tensor_name!r}"
        )
    if not unsafe and not hasattr(parametrization, "right_inverse"):
        with norch.no_grad():
            _check(parametrization(value.detach()), value, parametrization)
    made = ParametrizationList([parametrization], value, unsafe)
    if not unsafe and hasattr(parametrization, "right_inverse"):
        with norch.no_grad():
            _check(made(), value, parametrization)
    if not is_parametrized(module):
        module.__class__ = _parametrized_class(type(module), {})
        module.parametrizations = ModuleDict()
    delattr(module, tensor_name)
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


def _check(made: Any, value: norch.Tensor, parametrization: Module) -> None:
    if not isinstance(made, norch.Tensor) or made.shape != value.shape or made.dtype is not value.dtype:
        shown = f"{tuple(made.shape)} {made.dtype}" if isinstance(made, norch.Tensor) else type(made).__name__
        raise ValueError(
            f"register_parametrization(): {type(parametrization).__name__} makes {shown} of {tuple(value.shape)} "
            f"{value.dtype}; pass unsafe=True if it is meant to"
        )


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Undoes it: the tensor `tensor_name` is a parameter (or buffer) again, with the value made, or else the
    original's.

    Returns the module. Raises ValueError where there is none, and for several originals unless `leave_parametrized`.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(
            f"remove_parametrizations(): {type(module).__name__} has no parametrization of {tensor_name!r}"
        )
    found = module.parametrizations[tensor_name]
    original: Any = found.original if found.is_tensor else found.original0
    if leave_parametrized:
        with norch.no_grad():
            value = getattr(module, tensor_name).detach().clone()
        if found.is_tensor and isinstance(original, Parameter) and value.shape == original.shape:
            with norch.no_grad():
                original.copy_(value)
        else:
            original = Parameter(value, original.requires_grad) if isinstance(original, Parameter) else value
    elif not found.is_tensor:
        raise ValueError("leave_parametrized=False needs one original, of which the parametrizations are made")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, original)
    if not len(module.parametrizations):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module
