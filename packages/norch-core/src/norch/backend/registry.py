"""Finding backends: entry points in group `norch`, loaded only when their device is asked for, each on its own.

An entry point's name is the device type and its value a module with a pluggy hook `norch_backend`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MethodType
from typing import Any

from .. import settings
from ..device import current_index, known_devices
from ..dtype import DTYPES
from ..errors import DeviceError
from ..plugins import discovery
from ..plugins.discovery import Plugin, Refused
from ..version import __version__
from .contract import CONTRACT, Backend

GROUP = "norch"
ALWAYS = ("cpu", "cuda", "mps", "xpu")
"""Device types that have a module with nothing installed: PyTorch users ask `cuda.is_available()` first of all."""
_METHODS = ("device_count", "allocate", "copy_in", "copy_out", "copy", "compile", "synchronize")


@dataclass
class Provider(Plugin):
    """An installed or registered backend: where it comes from, and the backend, or the reason why there is none."""

    backend: Backend | None = None
    announced: bool = False

    @property
    def device_type(self) -> str:
        return self.name

    @property
    def usable(self) -> bool:
        return self.backend is not None and self.reason is None


_lock = discovery.lock
_installed: list[Provider] | None = None
_registered: list[Provider] = []


def installed() -> list[Provider]:
    """The providers that installed distributions declare, loaded or not, and the registered ones."""
    global _installed
    with _lock:
        if _installed is None:
            _installed = _discover()
        return [*_registered, *_installed]


def providers(load: bool) -> list[Provider]:
    """`installed()`, for reports. With `load` each one is loaded first, so that its state is known."""
    found = installed()
    for provider in found if load else ():
        discovery.load_once(provider, "norch_backend", adopt)
    return found


def _discover() -> list[Provider]:
    result = [Provider(**vars(plugin)) for plugin in discovery.declared(GROUP)]
    if not any(p.module == "norch.numpy_backend" for p in result):  # a source tree that was not installed
        from importlib.metadata import EntryPoint

        entry = EntryPoint("cpu", "norch.numpy_backend", GROUP)
        result.append(Provider("cpu", "norch-core", __version__, entry.value, entry=entry))
    return result


def load(provider: Provider) -> None:
    """Loads a provider's module and asks it for its backend. What fails becomes its reason; only Ctrl-C is raised."""
    discovery.load_once(provider, "norch_backend", adopt)


def adopt(provider: Provider, backend: Any) -> None:
    """Checks what a hook returned against the contract, and keeps it if it holds."""
    missing = [m for m in _METHODS if not callable(getattr(backend, m, None))]
    if missing:
        raise Refused(
            f"expected a norch.backend.Backend, got {type(backend).__name__}, which has no {', '.join(missing)}"
        )
    _complete(backend)
    kind = getattr(backend, "device_type", None)
    if kind != provider.device_type:
        raise Refused(f"its backend is for device type {kind!r}, its entry point for {provider.device_type!r}")
    priority = backend.priority
    if not isinstance(priority, int | float):
        raise Refused(f"its priority is {priority!r}, not a number")
    contract = getattr(backend, "contract", None)
    if not (isinstance(contract, tuple | list) and [type(n) for n in contract] == [int, int]):
        raise Refused(f"its contract is {contract!r}, not (major, minor)")
    major, minor = contract
    if (major, minor) > CONTRACT or major != CONTRACT[0]:
        ours = f"{CONTRACT[0]}.{CONTRACT[1]}"
        provider.reason = f"it was built for contract {major}.{minor}, this norch-core has {ours}"
        newer = (major, minor) > CONTRACT
        provider.advice = f"pip install -U {'norch-core' if newer else provider.distribution}"
        return
    if int(backend.device_count()) < 1:
        provider.reason = backend.unusable_reason() or "it finds no device"
        return
    _check_missing(backend.missing_dtypes)
    provider.backend, provider.reason = backend, None


def _check_missing(missing: Any) -> None:
    if not (isinstance(missing, Mapping) and all(isinstance(reason, str) for reason in missing.values())):
        raise Refused(f"its missing_dtypes are {missing!r}, not reasons by the names of dtypes")
    unknown = sorted(set(missing) - {d.name for d in DTYPES})
    if unknown:
        raise Refused(f"its missing_dtypes name {', '.join(unknown)}, which norch does not know")
    needed = [name for name in ("float32", "bool") if name in missing]
    if needed:
        raise Refused(f"it lacks {' and '.join(needed)}, without which there is no backend")


def _complete(backend: Any) -> None:
    """Gives a backend that does not inherit from Backend what the contract has besides, and has added since."""
    for name, default in vars(Backend).items():
        if not name.startswith("_") and name != "contract" and not hasattr(backend, name):
            try:
                setattr(backend, name, MethodType(default, backend) if callable(default) else default)
            except AttributeError:
                raise Refused(
                    f"{type(backend).__name__} has no {name} and cannot be given it; let it inherit from Backend"
                ) from None


def find(device_type: str) -> Backend:
    """The backend of a device type: of its usable providers the one with the highest priority, or the user's choice.

    `NORCH_BACKEND_CPU=numpy` chooses, for "cpu", the provider whose distribution or module ends so named. Raises
    DeviceError that lists every installed plug-in, why each one cannot be used, and what to do. Warns, once, of a
    provider that cannot be used where another takes its place.
    """
    if device_type == "meta":
        from .meta import BACKEND

        return BACKEND
    candidates = [p for p in installed() if p.device_type == device_type]
    choice = os.environ.get(f"NORCH_BACKEND_{device_type.upper()}", "")
    if choice and candidates:
        chosen = [p for p in candidates if matches(p, choice)]
        if not chosen:
            names = ", ".join(f"{p.distribution} ({short_name(p)})" for p in candidates)
            raise DeviceError(
                f"NORCH_BACKEND_{device_type.upper()}={choice}: no provider of {device_type!r} has that name; there is "
                f"{names}"
            )
        candidates = chosen
    for provider in candidates:
        load(provider)
    usable = [p for p in candidates if p.usable]
    if not usable:
        raise DeviceError(_why_none(device_type, candidates, choice))
    best = max([p.backend for p in usable if p.backend is not None], key=lambda backend: backend.priority)
    for provider in candidates:
        if not provider.usable and not provider.announced:
            provider.announced = True
            instead = provider_of(best)
            warnings.warn(
                f"device {device_type!r} is left to {instead.distribution} {instead.version} ({instead.module}), since "
                f"{provider.distribution} {provider.version} cannot be used: {provider.reason}"
                + (f"; {provider.advice}" if provider.advice else ""),
                RuntimeWarning,
                stacklevel=2,
            )
    current_index[device_type] = best.current_device
    return best


def is_device_type(name: str) -> bool:
    """Whether there may be devices of that type: a provider is installed, or PyTorch users ask for it anyway."""
    return name in ALWAYS or any(p.device_type == name for p in installed())


def is_usable(device_type: str) -> bool:
    """Whether `find` gives a backend."""
    try:
        find(device_type)
    except DeviceError:
        return False
    return True


def accelerator() -> str | None:
    """The device type other than "cpu" that can be used, of several the first by name; None where there is none."""
    others = {p.device_type for p in installed()} - {"cpu"}
    return next(filter(is_usable, sorted(others)), None)


def short_name(provider: Provider) -> str:
    """The name by which NORCH_BACKEND_… chooses: `norch.numpy_backend` is "numpy", `norch_cpu.plugin` "norch_cpu"."""
    parts = provider.module.split(".")
    last = parts[-1] if parts[-1] != "plugin" else parts[0]
    return last.removesuffix("_backend")


def matches(provider: Provider, choice: str) -> bool:
    """Whether `choice` is the provider's distribution or `short_name` (in any case, "_" as "-"), or its module."""
    names = [n.lower().replace("_", "-") for n in (choice, provider.distribution, short_name(provider))]
    return names[0] in names[1:] or choice == provider.module


def _why_none(device_type: str, candidates: list[Provider], choice: str) -> str:
    if candidates:
        head = f"device {device_type!r} cannot be used"
        if choice:
            head += f" by the provider that NORCH_BACKEND_{device_type.upper()}={choice} chooses"
    else:
        head = f"no installed package provides device {device_type!r}; try: pip install norch-{device_type}"
    return "\n  ".join([f"{head}. Installed plug-ins:", *[p.describe() for p in installed()]])


def provider_of(backend: Backend) -> Provider:
    """The provider of a backend, to name its distribution and version."""
    for provider in installed():
        if provider.backend is backend:
            return provider
    return Provider(backend.device_type, "in process", "?", type(backend).__module__, loaded=True, backend=backend)


def register(backend: Backend, distribution: str = "in process", version: str = "?") -> None:
    """Adds a backend at run time, ahead of others of its priority. Raises DeviceError where the contract refuses it.

    distribution, version: what errors and `norch info` call it.
    """
    kind = getattr(backend, "device_type", "?")
    provider = Provider(kind, distribution, version, type(backend).__module__, loaded=True)
    try:
        adopt(provider, backend)
    except TypeError as error:
        raise DeviceError(f"register(): {error}") from None
    if not provider.usable:
        raise DeviceError(f"register(): {provider.describe()}")
    with _lock:
        _registered.insert(0, provider)
        _forget_devices(backend.device_type)
    settings.changed()


def unregister(device_type: str) -> None:
    """Takes away the backends that `register` added for a device type."""
    with _lock:
        _registered[:] = [p for p in _registered if p.device_type != device_type]
        _forget_devices(device_type)
    settings.changed()


def reset() -> None:
    """Forgets everything found, loaded and registered, as if norch had just been imported. For tests."""
    global _installed
    with _lock:
        _installed = None
        discovery.reset()
        _registered.clear()
        _forget_devices(None)
    settings.changed()


def _forget_devices(device_type: str | None) -> None:
    for known in known_devices.values():
        if device_type in (None, known.type):
            known._backend = None
    for kind in [k for k in current_index if device_type in (None, k)]:
        del current_index[kind]
