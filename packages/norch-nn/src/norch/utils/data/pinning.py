"""Batches in page-locked memory, from which copies to a device do not wait."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import norch

from .collate import map_structure

Pin = Callable[[Any], Any]


def pin_memory(data: Any, device: Any = None) -> Any:
    """`data`, tensors or collections of them, in page-locked memory for `device`; as it is where nothing offers it."""
    pin = pinner(str(device or ""))
    return data if pin is None else pin(data)


def pinner(device_type: str) -> Pin | None:
    """What pins a batch for a type of device, CUDA unless named; None, with a warning, where nothing offers it."""
    wanted = str(device_type).partition(":")[0] or "cuda"
    module = getattr(norch, wanted, None)
    if module is None or not module.is_available() or not hasattr(module, "pin_memory"):
        warnings.warn(
            f"DataLoader: pin_memory has no effect, since device type {wanted!r} is not available here or pins nothing",
            stacklevel=3,
        )
        return None

    def pin(data: Any) -> Any:
        if isinstance(data, norch.Tensor):
            return data.pin_memory(wanted) if data.is_cpu else data
        own = getattr(data, "pin_memory", None)
        return own() if callable(own) else map_structure(pin, data)

    return pin
