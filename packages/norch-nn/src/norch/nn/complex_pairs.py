"""Parameters and buffers of complex numbers. What a Module registers is the real tensor of their parts, of shape
(..., 2), which optimisers, `state_dict` and `to` treat as any other; its attribute is the pair of it.
"""

from __future__ import annotations

from typing import Any

import norch


class PairAttribute:
    """A data descriptor of a Module's class: the tensor of that name as a pair, in instances that were given one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: type) -> Any:
        if module is None:
            return self
        if self.name not in module.__dict__:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        value = module.__dict__[self.name]
        return norch.view_as_complex(value) if value is not None and is_pair(module, self.name) else value

    def __set__(self, module: Any, value: Any) -> None:
        mark(module, self.name, False)  # what registers a pair writes past this
        module.__dict__[self.name] = value

    def __delete__(self, module: Any) -> None:
        del module.__dict__[self.name]


def make_complex(root: Any) -> None:
    """Gives the floating parameters and buffers of a module, and of those below it, imaginary parts of 0. Parameters
    stay the same objects."""
    done: dict[int, Any] = {}

    def with_zeros(tensor: Any) -> Any:
        return norch.stack([tensor, norch.zeros_like(tensor)], -1)

    for module in root.modules():
        for name in (*module._parameter_names, *module._buffer_names):
            tensor = module.__dict__[name]
            if tensor is None or is_pair(module, name) or not tensor.is_floating_point():
                continue
            if id(tensor) not in done:
                grad, tensor.grad = tensor.grad, None
                parts = with_zeros(tensor.detach())
                done[id(tensor)] = tensor if name in module._parameter_names else parts
                if done[id(tensor)] is tensor:
                    tensor.data = parts
                    tensor.grad = None if grad is None else with_zeros(grad)
            module.__dict__[name] = done[id(tensor)]
            mark(module, name)


def is_pair(module: Any, name: str) -> bool:
    return name in module.__dict__.get("_pair_names", ())


def tensor_of(value: Any) -> Any:
    """The tensor of the parts of a ComplexPair; anything else as it is, without importing what those are."""
    is_complex = hasattr(type(value), "_norch_function") and norch.is_complex(value)
    return norch.view_as_real(value) if is_complex else value


def mark(module: Any, name: str, wanted: bool = True) -> None:
    """Makes the attribute `name` the pair of the tensor that is registered under it, or no longer."""
    if not wanted:
        module.__dict__.get("_pair_names", {}).pop(name, None)
        return
    module.__dict__.setdefault("_pair_names", {})[name] = True
    cls = type(module)
    if not isinstance(cls.__dict__.get(name), PairAttribute):
        setattr(cls, name, PairAttribute(name))
