"""Finding backends: entry points in group `norch`, loaded only when their device is asked for, each on its own.

An entry point's name is the device type and its value a module with a pluggy hook `norch_backend`. Whatever goes wrong
with one provider is kept as its reason, and hurts no other.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..device import known_devices
from ..errors import DeviceError
from .contract import CONTRACT, Backend

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "norch"
_METHODS = ("device_count", "allocate", "copy_in", "copy_out", "copy", "compile", "synchronize")


@dataclass
class Provider:
    """An installed or registered backend: where it comes from, and the backend, or the reason why there is none."""

    device_type: str
    distribution: str
    version: str
    module: str
    backend: Backend | None = None
    reason: str | None = None
    advice: str = ""
    loaded: bool = False
    entry: EntryPoint | None = field(default=None, repr=False)

    @property
    def usable(self) -> bool:
        return self.backend is not None and self.reason is None

    def describe(self) -> str:
        state = "usable" if self.usable else self.reason if self.loaded else "not loaded"
        return f"{self.device_type}: {self.distribution} {self.version} ({self.module}): {state}" + (
            f"; {self.advice}" if self.advice else ""
        )


_lock = threading.RLock()
_installed: list[Provider] | None = None
_registered: list[Provider] = []
_manager: Any = None


def installed() -> list[Provider]:
    """The providers that installed distributions declare, loaded or not, and the registered ones."""
    global _installed
    with _lock:
        if _installed is None:
            _installed = _discover()
        return [*_registered, *_installed]


def _discover() -> list[Provider]:
    from importlib.metadata import entry_points

    found: dict[tuple[str, str, str], Provider] = {}
    for entry in entry_points(group=GROUP):
        distribution = entry.dist.name if entry.dist is not None else "unknown"
        version = entry.dist.version if entry.dist is not None else "?"
        key = (entry.name, distribution, entry.value)
        found.setdefault(key, Provider(entry.name, distribution, version, entry.module, entry=entry))
    result = sorted(found.values(), key=lambda p: (p.device_type, p.distribution))
    if not any(p.module == "norch.numpy_backend" for p in result):  # a source tree that was not installed
        from importlib.metadata import EntryPoint

        from .. import __version__

        entry = EntryPoint("cpu", "norch.numpy_backend", GROUP)
        result.append(Provider("cpu", "norch-core", __version__, entry.value, entry=entry))
    return result


def load(provider: Provider) -> None:
    """Loads a provider's module and asks it for its backend. Never raises: what fails becomes its reason."""
    with _lock:
        if provider.loaded:
            return
        provider.loaded = True
        try:
            _load(provider)
        except Exception as error:
            provider.reason, provider.advice = _explain(error, provider)


def _load(provider: Provider) -> None:
    global _manager
    import pluggy

    from . import hooks

    assert provider.entry is not None
    module = provider.entry.load()
    if _manager is None:
        _manager = pluggy.PluginManager(GROUP)
        _manager.add_hookspecs(hooks)
    name = f"{provider.device_type}={provider.entry.value}@{provider.distribution}"
    if not _manager.is_registered(module):
        _manager.register(module, name)
    implementations = [i for i in _manager.hook.norch_backend.get_hookimpls() if i.plugin is module]
    if not implementations:
        raise TypeError(f"module {provider.module} has no hook norch_backend; mark one with @norch.backend.hookimpl")
    adopt(provider, implementations[0].function())


def adopt(provider: Provider, backend: Any) -> None:
    """Checks what a hook returned against the contract, and keeps it if it holds."""
    missing = [m for m in _METHODS if not callable(getattr(backend, m, None))]
    if missing:
        raise TypeError(f"{type(backend).__name__} is no norch.backend.Backend: it has no {', '.join(missing)}")
    kind = getattr(backend, "device_type", None)
    if kind != provider.device_type:
        raise TypeError(f"its backend is for device type {kind!r}, its entry point for {provider.device_type!r}")
    major, minor = getattr(backend, "contract", (0, 0))
    if (major, minor) > CONTRACT or major != CONTRACT[0]:
        ours = f"{CONTRACT[0]}.{CONTRACT[1]}"
        provider.reason = f"it was built for contract {major}.{minor}, this norch-core has {ours}"
        newer = (major, minor) > CONTRACT
        provider.advice = f"pip install -U {'norch-core' if newer else provider.distribution}"
        return
    if int(backend.device_count()) < 1:
        why = getattr(backend, "unusable_reason", lambda: None)()
        provider.reason = why or "it finds no device"
        return
    provider.backend = backend


def _explain(error: Exception, provider: Provider) -> tuple[str, str]:
    if isinstance(error, ModuleNotFoundError) and error.name:
        root = error.name.partition(".")[0]
        return f"it needs the module {error.name}, which is not installed", f"pip install {root.replace('_', '-')}"
    if isinstance(error, OSError | ImportError):
        return f"a library failed to load: {error}", f"pip install --force-reinstall {provider.distribution}"
    return f"it raised {type(error).__name__}: {error}", f"pip install -U {provider.distribution}"


def find(device_type: str) -> Backend:
    """The backend of a device type: of its usable providers the one with the highest priority, or the user's choice.

    `NORCH_BACKEND_CPU=numpy` chooses, for "cpu", the provider whose distribution or module ends so named. Raises
    DeviceError that lists every installed plug-in, why each one cannot be used, and what to do.
    """
    candidates = [p for p in installed() if p.device_type == device_type]
    choice = os.environ.get(f"NORCH_BACKEND_{device_type.upper()}", "")
    if choice:
        chosen = [p for p in candidates if matches(p, choice)]
        if not chosen:
            names = ", ".join(p.distribution + " (" + short_name(p) + ")" for p in candidates) or "none"
            raise DeviceError(
                f"NORCH_BACKEND_{device_type.upper()}={choice}: no provider of {device_type!r} has that name; there is "
                f"{names}"
            )
        candidates = chosen
    for provider in candidates:
        load(provider)
    usable = [p for p in candidates if p.usable]
    if not usable:
        raise DeviceError(_why_none(device_type, candidates))
    best = max(usable, key=lambda p: getattr(p.backend, "priority", 0))
    assert best.backend is not None
    return best.backend


def short_name(provider: Provider) -> str:
    """The name by which NORCH_BACKEND_… chooses: `norch.numpy_backend` is "numpy", `norch_cpu.plugin` "norch_cpu"."""
    parts = provider.module.split(".")
    last = parts[-1] if parts[-1] != "plugin" else parts[0]
    return last.removesuffix("_backend")


def matches(provider: Provider, choice: str) -> bool:
    wanted = choice.replace("_", "-")
    return wanted in (provider.distribution.replace("_", "-"), short_name(provider).replace("_", "-"), provider.module)


def _why_none(device_type: str, candidates: list[Provider]) -> str:
    if candidates:
        head = f"device {device_type!r} cannot be used"
    else:
        head = f"no installed package provides device {device_type!r}; try: pip install norch-{device_type}"
    return "\n  ".join([f"{head}. Installed plug-ins:", *[p.describe() for p in installed()]])


def provider_of(backend: Backend) -> Provider:
    """The provider of a backend, to name its distribution and version."""
    for provider in installed():
        if provider.backend is backend:
            return provider
    return Provider(backend.device_type, "in process", "?", type(backend).__module__, backend, loaded=True)


def register(backend: Backend, distribution: str = "in process", version: str = "?") -> None:
    """Adds a backend at run time, ahead of others of its priority. Raises DeviceError where the contract refuses it."""
    from ..op import forget_plans

    provider = Provider(backend.device_type, distribution, version, type(backend).__module__, loaded=True)
    try:
        adopt(provider, backend)
    except TypeError as error:
        raise DeviceError(f"register(): {error}") from None
    if not provider.usable:
        raise DeviceError(f"register(): {provider.describe()}")
    with _lock:
        _registered.insert(0, provider)
        _forget_devices(backend.device_type)
    forget_plans()


def unregister(device_type: str) -> None:
    """Takes away the backends that `register` added for a device type."""
    from ..op import forget_plans

    with _lock:
        _registered[:] = [p for p in _registered if p.device_type != device_type]
        _forget_devices(device_type)
    forget_plans()


def reset() -> None:
    """Forgets everything found, loaded and registered, as if norch had just been imported. For tests."""
    global _installed, _manager
    from ..op import forget_plans

    with _lock:
        _installed, _manager = None, None
        _registered.clear()
        _forget_devices(None)
    forget_plans()


def _forget_devices(device_type: str | None) -> None:
    for known in known_devices.values():
        if device_type in (None, known.type):
            known._backend = None
