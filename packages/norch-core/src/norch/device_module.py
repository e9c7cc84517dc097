"""`norch.cuda`, `norch.opencl`, …: what a device type offers beside tensors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from . import settings
from .backend import registry
from .backend.registry import ALWAYS
from .device import Device
from .dispatch.failure import late
from .dtype import TENSOR_TYPES
from .errors import DeviceError, OutOfMemoryError
from .ops.generator import default_generator
from .submodules import PARTS_OF_DEVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .ops.generator import Generator
    from .tensor import Tensor

__all__ = ["ALWAYS", "DeviceModule", "lookup"]

LIKE_PYTORCH: dict[str, Any] = {
    "empty_cache": lambda: None,  # a backend that keeps memory has its own
    "is_initialized": lambda: False,
    "OutOfMemoryError": OutOfMemoryError,
    "get_arch_list": list,
    "is_current_stream_capturing": lambda: False,
    "is_tf32_supported": lambda: False,
    "memory_stats": lambda device=None: {},
    **dict.fromkeys(
        [f"{most}memory_{kind}" for most in ("", "max_") for kind in ("allocated", "cached", "reserved")],
        lambda device=None: 0,
    ),
}
"""What scripts name on `torch.cuda` whether there is a GPU or not, for backends that have nothing of that name."""

NAMED_WHILE_IMPORTED = ("CUDAGraph", "Event", "Stream", "StreamContext", "device", "graph")
"""What scripts name while they are imported: annotations and base classes. Without a backend it can only be named."""

IN_TABLES = ("reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats")
"""The same, of tables of functions by device, which have none for the CPU."""


class DeviceModule:
    """The module of a device type, and what its backend adds to it in `module`: streams, memory statistics."""

    __path__: tuple[str, ...] = ()  # `import norch.cuda.amp` is looked up as in a package
    __spec__ = None

    def __init__(self, device_type: str) -> None:
        self.device_type = device_type
        self.__name__ = f"norch.{device_type}"
        self._found: set[str] = set()  # what has been looked up in the backend's module, and lies here until it changes
        self._usable, self._process = False, 0

    def _forget(self) -> None:
        for name in self._found:
            self.__dict__.pop(name, None)
        self._found.clear()
        self._usable = False

    def _module(self) -> Any:
        """What the backend adds; None where there is nothing."""
        return getattr(registry.find(self.device_type), "module", None) if self.is_available() else None

    @property
    def _initialized(self) -> bool:
        """What PyTorch's scripts ask where they would save the state of a GPU's generator."""
        return self.is_available()

    def is_available(self) -> bool:
        """Whether the device type can be used. Never raises."""
        if not self._usable:
            self._usable, self._process = registry.is_usable(self.device_type), os.getpid()
        return self._usable

    def _is_in_bad_fork(self) -> bool:
        """Whether this process was forked from one that had found the device type usable."""
        return self._usable and self._process != os.getpid()

    def device_count(self) -> int:
        """How many devices there are; 0 where the type cannot be used."""
        return registry.find(self.device_type).device_count() if self.is_available() else 0

    def why_not(self) -> str | None:
        """Why the device type cannot be used, and what to do about it; None where it can."""
        try:
            registry.find(self.device_type)
        except DeviceError as error:
            return str(error)
        return None

    def is_bf16_supported(self, including_emulation: bool = True) -> bool:
        """Whether bfloat16 can be computed in: wherever the device type can be used and its backend does not lack it.

        including_emulation: changes nothing.
        """
        return self.is_available() and "bfloat16" not in registry.find(self.device_type).missing_dtypes

    def current_device(self) -> int:
        """The index of the device that a type without an index means."""
        return Device(self.device_type).index

    def synchronize(self, device: Device | str | int | None = None) -> None:
        """Waits until all work given to a device is done. Raises DeviceError where there is no such device."""
        if isinstance(device, Device | str):
            device = Device(device)
            if device.type != self.device_type:
                raise DeviceError(f"norch.{self.device_type}.synchronize(): {device} is of type {device.type!r}")
            device = device.index
        index = self.current_device() if device is None else device
        if index < 0:
            raise DeviceError(f"norch.{self.device_type}.synchronize(): device index {index} is negative")
        waited = Device(self.device_type, index)
        try:
            waited.backend.synchronize(index)
        except Exception as error:
            raise late(error, waited) from None

    # Randomness: one generator serves all devices; these are norch's own, under the names that PyTorch has here.

    def manual_seed(self, seed: int) -> None:
        """`norch.manual_seed(seed)`, for every device."""
        default_generator.manual_seed(seed)

    manual_seed_all = manual_seed

    def seed(self) -> None:
        """`norch.seed`, for every device."""
        default_generator.seed()

    seed_all = seed

    @property
    def default_generators(self) -> tuple[Generator, ...]:
        """`norch.default_generator`, once for each device."""
        return (default_generator,) * self.device_count()

    def initial_seed(self) -> int:
        """`norch.initial_seed`."""
        return default_generator.initial_seed()

    def get_rng_state(self, device: Device | str | int | None = None) -> Tensor:
        """`norch.get_rng_state`, a uint8 vector."""
        return default_generator.get_state()

    def set_rng_state(self, new_state: Tensor, device: Device | str | int | None = None) -> None:
        """`norch.set_rng_state` to `new_state`, a uint8 vector, for every device."""
        default_generator.set_state(new_state)

    def get_rng_state_all(self) -> list[Tensor]:
        """The state, a uint8 vector, once for each device; none where the type cannot be used."""
        return [self.get_rng_state() for _ in range(self.device_count())]

    def set_rng_state_all(self, new_states: Iterable[Tensor]) -> None:
        """Sets `new_states`, uint8 vectors that `get_rng_state_all` gave."""
        for state in new_states:
            self.set_rng_state(state)

    def _lazy_init(self) -> None:
        """Does nothing where the device type can be used; raises DeviceError with the reason where it cannot."""
        registry.find(self.device_type)

    def _lazy_call(self, callable: Callable[[], Any], **kwargs: Any) -> None:
        """Calls `callable()` where there is a device of the type, as PyTorch does once it has been used."""
        if self.is_available():
            callable()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name != "device_type":
            from .compat import lacks

            lacking = lacks.find(self.device_type, name)
            if lacking is not None:
                return lacking
        if name.startswith("_") or name == "device_type":  # asked for by copy, pickle and inspect: no reason to load
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        added = self._module()
        if added is not None and hasattr(added, name):
            found = self.__dict__[name] = getattr(added, name)
            self._found.add(name)
            return found
        if name == "amp":
            from .amp.of_device import amp_of

            return amp_of(self.device_type)
        if name == "nvtx":
            from .profiler import nvtx

            return nvtx
        if name == "profiler" and self.device_type == "cuda":
            from .profiler import nvidia

            return nvidia
        if name == "nccl" and self.device_type == "cuda":
            from .compat import nccl

            return nccl
        if name in PARTS_OF_DEVICES:
            return self
        if name.endswith("Tensor"):
            from .compat.legacy import tensor_type

            if name in TENSOR_TYPES:
                return tensor_type(name, self.device_type)
        if name in LIKE_PYTORCH:
            return LIKE_PYTORCH[name]
        if added is None and (name in NAMED_WHILE_IMPORTED or (name in IN_TABLES and self.device_type != "cpu")):
            return lacks.lacking(self.device_type, name, self.why_not() or "its backend has none")
        hint = self.why_not() or f"it has {', '.join(n for n in dir(self) if not n.startswith('_'))}"
        raise AttributeError(f"norch.{self.device_type} has no attribute {name!r}; {hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for n in dir(self._module()) if not n.startswith("_"))})

    def __repr__(self) -> str:
        return f"<device module norch.{self.device_type}>"


_modules: dict[str, DeviceModule] = {}


def _forget_all() -> None:
    for module in _modules.values():
        module._forget()


settings.on_change(_forget_all)


def lookup(name: str) -> DeviceModule | None:
    """The module of a device type that an installed plug-in provides (loading none), or None."""
    return _modules.setdefault(name, DeviceModule(name)) if registry.is_device_type(name) else None
