"""Finding plug-ins: entry points of installed distributions, loaded one by one and only when they are asked for.

Whatever goes wrong with one plug-in is kept as its reason, and hurts no other.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

_LIBRARIES = (".so", ".pyd", ".dll", ".dylib")


class Refused(TypeError):
    """A plug-in that does not keep to what was agreed, and in what."""


@dataclass
class Plugin:
    """An entry point of an installed distribution: what it provides, and why it cannot be used, if so."""

    name: str
    distribution: str
    version: str
    module: str
    reason: str | None = None
    advice: str = ""
    loaded: bool = False
    entry: EntryPoint | None = field(default=None, repr=False)

    @property
    def usable(self) -> bool:
        return self.loaded and self.reason is None

    def describe(self) -> str:
        state = "usable" if self.usable else self.reason if self.loaded else "not loaded"
        return f"{self.name}: {self.distribution} {self.version} ({self.module}): {state}" + (
            f"; {self.advice}" if self.advice else ""
        )


lock = threading.RLock()
_manager: Any = None


def declared(group: str) -> list[Plugin]:
    """What all distributions declare in a group, none of it loaded, by name and distribution."""
    found: dict[tuple[str, str, str], Plugin] = {}
    for plugin in _entries(group):
        value = plugin.entry.value if plugin.entry is not None else plugin.module
        found.setdefault((plugin.name, plugin.distribution, value), plugin)
    return sorted(found.values(), key=lambda p: (p.name, p.distribution))


def _entries(group: str) -> Iterator[Plugin]:
    """The entry points of every distribution. Metadata that cannot be read hurts its own distribution only."""
    from importlib.metadata import distributions, entry_points

    try:
        entries = list(entry_points(group=group))
    except Exception:  # it does not say whose metadata is broken: read each distribution's alone
        seen = set()
        for distribution in distributions():
            name, version = _identity(distribution)
            if name in seen and name != "unknown":
                continue  # shadowed by an earlier folder of sys.path
            seen.add(name)
            try:
                found = list(distribution.entry_points.select(group=group))
            except Exception as error:
                if _may_concern(distribution, group):
                    yield _unreadable("?", name, version, "?", f"its entry_points.txt cannot be read: {error}")
                continue
            for entry in found:
                yield _plugin(entry, name, version)
    else:
        for entry in entries:
            yield _plugin(entry, *_identity(entry.dist))


def _identity(distribution: Distribution | None) -> tuple[str, str]:
    try:
        assert distribution is not None
        return str(distribution.name or "unknown"), str(distribution.version or "?")
    except Exception:  # no METADATA, or one without these fields
        return "unknown", "?"


def _may_concern(distribution: Distribution, group: str) -> bool:
    try:
        return f"[{group}]" in (distribution.read_text("entry_points.txt") or "")
    except Exception:  # not even text
        return True


def _plugin(entry: EntryPoint, distribution: str, version: str) -> Plugin:
    try:
        module = entry.module
    except Exception:
        return _unreadable(
            entry.name, distribution, version, entry.value or "?", f"its entry point {entry.value!r} names no module"
        )
    return Plugin(entry.name, distribution, version, module, entry=entry)


def _unreadable(name: str, distribution: str, version: str, module: str, reason: str) -> Plugin:
    advice = f"pip install --force-reinstall {distribution}" if distribution != "unknown" else ""
    return Plugin(name, distribution, version, module, reason, advice, loaded=True)


def load_once(plugin: Any, hook: str, adopt: Callable[[Any, Any], None]) -> None:
    """Loads a plug-in's module and gives `adopt(plugin, answer)` what its hook answers, unless that was done before.

    What fails becomes the plug-in's reason; only Ctrl-C is raised.
    """
    with lock:
        if plugin.loaded:
            return
        plugin.loaded, plugin.reason = True, "it is still being loaded"  # what its own module sees if it asks
        try:
            adopt(plugin, _ask(plugin, hook))
        except KeyboardInterrupt:
            plugin.loaded, plugin.reason = False, None  # says nothing about the plug-in: try again when asked
            raise
        except BaseException as error:  # SystemExit, and a Rust panic, are not an Exception
            plugin.reason, plugin.advice = _explain(error, plugin)


def _ask(plugin: Plugin, hook: str) -> Any:
    global _manager
    import pluggy

    from . import hooks

    assert plugin.entry is not None
    module = plugin.entry.load()
    if _manager is None:
        _manager = pluggy.PluginManager("norch")
        _manager.add_hookspecs(hooks)
    if not _manager.is_registered(module):
        _manager.register(module, f"{plugin.name}={plugin.entry.value}@{plugin.distribution}")
    implementations = [i for i in getattr(_manager.hook, hook).get_hookimpls() if i.plugin is module]
    if not implementations:
        raise Refused(f"module {plugin.module} has no hook {hook}; mark one with @norch.backend.hookimpl")
    return implementations[0].function()


def _explain(error: BaseException, plugin: Plugin) -> tuple[str, str]:
    variable = re.search(r"NORCH_[A-Z_]*[A-Z]", str(error))
    if variable and variable[0] in os.environ:
        return str(error), f"correct {variable[0]}, or unset it"
    upgrade, reinstall = (f"pip install {o} {plugin.distribution}" for o in ("-U", "--force-reinstall"))
    if isinstance(error, Refused):
        return str(error), upgrade
    if isinstance(error, ImportError) and error.name:
        root = error.name.partition(".")[0]
        if f"{plugin.module}.".startswith(f"{error.name}."):
            if isinstance(error, ModuleNotFoundError):
                return f"its own module {error.name} is missing", reinstall
        elif root == "norch":  # the distribution named norch is another project
            return f"it does not fit this norch-core: {error}", f"pip install -U norch-core {plugin.distribution}"
        elif isinstance(error, ModuleNotFoundError):
            return f"it needs the module {error.name}, which is not installed", f"pip install {root.replace('_', '-')}"
    if isinstance(error, OSError) or (isinstance(error, ImportError) and str(error.path).endswith(_LIBRARIES)):
        return f"a library failed to load: {error}", reinstall
    if isinstance(error, ImportError):
        return f"it cannot be imported: {error}", upgrade
    return f"it raised {type(error).__name__}: {error}", upgrade


def reset() -> None:
    """Forgets the modules that were asked. For tests."""
    global _manager
    with lock:
        _manager = None
