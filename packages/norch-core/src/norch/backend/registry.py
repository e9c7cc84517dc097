"""Finding backends: entry points in group `norch`, loaded only when their device is asked for, each on its own.

An entry point's name is the device type and its value a module with a pluggy hook `norch_backend`. Whatever goes wrong
with one provider is kept as its reason, and hurts no other.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..device import current_index, known_devices
from ..errors import DeviceError
from .contract import CONTRACT, Backend

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import Distribution, EntryPoint

GROUP = "norch"
_METHODS = ("device_count", "allocate", "copy_in", "copy_out", "copy", "compile", "synchronize")
_LIBRARIES = (".so", ".pyd", ".dll", ".dylib")


class _Refused(TypeError):
    """A plug-in or a backend that does not keep to the contract, and in what."""


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


def providers(load: bool) -> list[Provider]:
    """`installed()`, for reports. With `load` each one is loaded first, so that its state is known."""
    found = installed()
    if load:
        for provider in found:
            _load_once(provider)
    return found


def _discover() -> list[Provider]:
    found: dict[tuple[str, str, str], Provider] = {}
    for provider in _declared():
        value = provider.entry.value if provider.entry is not None else provider.module
        found.setdefault((provider.device_type, provider.distribution, value), provider)
    result = sorted(found.values(), key=lambda p: (p.device_type, p.distribution))
    if not any(p.module == "norch.numpy_backend" for p in result):  # a source tree that was not installed
        from importlib.metadata import EntryPoint

        from .. import __version__

        entry = EntryPoint("cpu", "norch.numpy_backend", GROUP)
        result.append(Provider("cpu", "norch-core", __version__, entry.value, entry=entry))
    return result


def _declared() -> Iterator[Provider]:
    """The entry points of every distribution. Metadata that cannot be read hurts its own distribution only."""
    from importlib.metadata import distributions, entry_points

    try:
        entries = list(entry_points(group=GROUP))
    except Exception:  # it does not say whose metadata is broken: read each distribution's alone
        seen = set()
        for distribution in distributions():
            name, version = _identity(distribution)
            if name in seen and name != "unknown":
                continue  # shadowed by an earlier folder of sys.path
            seen.add(name)
            try:
                found = list(distribution.entry_points.select(group=GROUP))
            except Exception as error:
                if _may_concern_us(distribution):
                    yield _unreadable("?", name, version, "?", f"its entry_points.txt cannot be read: {error}")
                continue
            for entry in found:
                yield _provider(entry, name, version)
    else:
        for entry in entries:
            yield _provider(entry, *_identity(entry.dist))


def _identity(distribution: Distribution | None) -> tuple[str, str]:
    try:
        assert distribution is not None
        return str(distribution.name or "unknown"), str(distribution.version or "?")
    except Exception:  # no METADATA, or one without these fields
        return "unknown", "?"


def _may_concern_us(distribution: Distribution) -> bool:
    try:
        return f"[{GROUP}]" in (distribution.read_text("entry_points.txt") or "")
    except Exception:  # not even text
        return True


def _provider(entry: EntryPoint, distribution: str, version: str) -> Provider:
    try:
        module = entry.module
    except Exception:
        return _unreadable(
            entry.name, distribution, version, entry.value or "?", f"its entry point {entry.value!r} names no module"
        )
    return Provider(entry.name, distribution, version, module, entry=entry)


def _unreadable(device_type: str, distribution: str, version: str, module: str, reason: str) -> Provider:
    advice = f"pip install --force-reinstall {distribution}" if distribution != "unknown" else ""
    return Provider(device_type, distribution, version, module, None, reason, advice, loaded=True)


def load(provider: Provider) -> None:
    """Loads a provider's module and asks it for its backend. What fails becomes its reason; only Ctrl-C is raised."""
    with _lock:
        if provider.loaded:
            return
        provider.loaded, provider.reason = True, "it is still being loaded"  # what its own module sees if it asks
        try:
            _load(provider)
        except KeyboardInterrupt:
            provider.loaded, provider.reason = False, None  # says nothing about the plug-in: try again when asked
            raise
        except BaseException as error:  # SystemExit, and a Rust panic, are no Exception
            provider.reason, provider.advice = _explain(error, provider)


_load_once = load  # `providers` has a parameter of that name


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
        raise _Refused(f"module {provider.module} has no hook norch_backend; mark one with @norch.backend.hookimpl")
    adopt(provider, implementations[0].function())


def adopt(provider: Provider, backend: Any) -> None:
    """Checks what a hook returned against the contract, and keeps it if it holds."""
    missing = [m for m in _METHODS if not callable(getattr(backend, m, None))]
    if missing:
        raise _Refused(f"{type(backend).__name__} is no norch.backend.Backend: it has no {', '.join(missing)}")
    kind = getattr(backend, "device_type", None)
    if kind != provider.device_type:
        raise _Refused(f"its backend is for device type {kind!r}, its entry point for {provider.device_type!r}")
    priority = getattr(backend, "priority", 0)
    if not isinstance(priority, int | float):
        raise _Refused(f"its priority is {priority!r}, not a number")
    contract = getattr(backend, "contract", None)
    if not (isinstance(contract, tuple | list) and [type(n) for n in contract] == [int, int]):
        raise _Refused(f"its contract is {contract!r}, not (major, minor)")
    major, minor = contract
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
    provider.backend, provider.reason = backend, None


def _explain(error: BaseException, provider: Provider) -> tuple[str, str]:
    upgrade, reinstall = (f"pip install {o} {provider.distribution}" for o in ("-U", "--force-reinstall"))
    if isinstance(error, _Refused):
        return str(error), upgrade
    if isinstance(error, ImportError) and error.name:
        root = error.name.partition(".")[0]
        if f"{provider.module}.".startswith(f"{error.name}."):
            if isinstance(error, ModuleNotFoundError):
                return f"its own module {error.name} is missing", reinstall
        elif root == "norch":  # the distribution named norch is another project
            return f"it does not fit this norch-core: {error}", f"pip install -U norch-core {provider.distribution}"
        elif isinstance(error, ModuleNotFoundError):
            return f"it needs the module {error.name}, which is not installed", f"pip install {root.replace('_', '-')}"
    if isinstance(error, OSError) or (isinstance(error, ImportError) and str(error.path).endswith(_LIBRARIES)):
        return f"a library failed to load: {error}", reinstall
    if isinstance(error, ImportError):
        return f"it cannot be imported: {error}", upgrade
    return f"it raised {type(error).__name__}: {error}", upgrade


def find(device_type: str) -> Backend:
    """The backend of a device type: of its usable providers the one with the highest priority, or the user's choice.

    `NORCH_BACKEND_CPU=numpy` chooses, for "cpu", the provider whose distribution or module ends so named. Raises
    DeviceError that lists every installed plug-in, why each one cannot be used, and what to do.
    """
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
    best = max(usable, key=lambda p: getattr(p.backend, "priority", 0))
    assert best.backend is not None
    if hasattr(best.backend, "current_device"):
        current_index[device_type] = best.backend.current_device
    return best.backend


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
    return Provider(backend.device_type, "in process", "?", type(backend).__module__, backend, loaded=True)


def register(backend: Backend, distribution: str = "in process", version: str = "?") -> None:
    """Adds a backend at run time, ahead of others of its priority. Raises DeviceError where the contract refuses it."""
    from ..op import forget_plans

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
    for kind in [k for k in current_index if device_type in (None, k)]:
        del current_index[kind]
