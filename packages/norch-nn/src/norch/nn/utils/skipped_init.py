"""Modules without first values, for weights that are loaded."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

from ..module import Module

M = TypeVar("M", bound=Module)


def skip_init(module_cls: type[M], *args: Any, **kwargs: Any) -> M:
    """`module_cls(*args, **kwargs)` whose parameters and buffers are memory as it is found, on `device` where given.

    Raises RuntimeError for what is no class of modules, or takes no `device`.
    """
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"skip_init(): expected a class of modules, got {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(f"skip_init(): {module_cls.__name__} takes no device")
    device = kwargs.pop("device", None)
    kwargs["device"] = "meta"
    made = module_cls(*args, **kwargs)
    return made.to_empty(device="cpu" if device is None else device)
