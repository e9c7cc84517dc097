"""Moving a module's tensors to another device or dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import norch

if TYPE_CHECKING:
    from .module import Module


def convert(module: Module, function: Callable[[norch.Tensor], norch.Tensor]) -> None:
    """Gives each parameter the values, and each buffer the tensor, that `function` makes of it."""
    for parameter in module.parameters():
        grad = parameter.grad
        parameter.grad = None
        parameter.data = function(parameter.data)
        if grad is not None:
            parameter.grad = function(grad.detach())
    for part in module.modules():
        for name in part._buffer_names:
            if part.__dict__[name] is not None:
                part.__dict__[name] = function(part.__dict__[name])


def destination(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[norch.Device | None, norch.DType | None]:
    """The device and the dtype that the arguments of `Module.to` ask for; None to leave as it is."""
    device, dtype = None, None
    for value in (*args, kwargs.get("device"), kwargs.get("dtype")):
        if isinstance(value, norch.DType):
            dtype = value
        elif isinstance(value, str | norch.Device):
            device = norch.Device(value)
        elif isinstance(value, norch.Tensor):
            device, dtype = value.device, value.dtype
        elif value is not None and not isinstance(value, bool):
            raise norch.DTypeError(f"Module.to(): expected a device, a dtype or a tensor, got {value!r}")
    if dtype is not None and not dtype.is_floating_point:
        raise norch.DTypeError(f"Module.to(): only accepts floating dtypes, got {dtype}")
    return device, dtype
