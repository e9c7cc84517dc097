"""Finding and choosing engines: entry points in group `norch.distributed`, loaded only when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from norch.plugins import discovery
from norch.plugins.discovery import Plugin, Refused

from .alone import ALONE
from .engine import CONTRACT, Engine
from .errors import DistributedError

GROUP = "norch.distributed"

_ALIASES = {"gloo": "mpi", "ucc": "mpi"}
"""Engines of PyTorch that norch has no need of, by what stands for them where they are not installed."""
asked_for: dict[str, str] = {}
"""By the name of an engine, that which a script asked for and in whose place it is, as PyTorch's "gloo"."""

_METHODS = ("connect", "unusable_reason", "bootstrap")


@dataclass
class Provider(Plugin):
    """An installed engine, or the reason why it cannot be used."""

    engine: Engine | None = None


_installed: list[Provider] | None = None
_registered: list[Provider] = []


def installed() -> list[Provider]:
    """The engines that installed distributions declare, and the registered ones first."""
    global _installed
    if _installed is None:
        _installed = [Provider(**vars(plugin)) for plugin in discovery.declared(GROUP)]
        if not any(p.name == "mpi" for p in _installed):  # a source tree that was not installed
            from importlib.metadata import EntryPoint

            entry = EntryPoint("mpi", "norch.distributed.mpi", GROUP)
            _installed.append(Provider("mpi", "norch-nn", "?", entry.value, entry=entry))
    return [*_registered, *_installed]


def adopt(provider: Provider, engine: Any) -> None:
    """Checks an engine against the contract, and keeps it if it holds."""
    missing = [m for m in _METHODS if not callable(getattr(engine, m, None))]
    if missing:
        raise Refused(f"expected an Engine, got {type(engine).__name__}, which has no {', '.join(missing)}")
    if engine.name != provider.name:
        raise Refused(f"its engine is called {engine.name!r}, its entry point {provider.name!r}")
    major, minor = engine.contract
    if major != CONTRACT[0] or minor > CONTRACT[1]:
        newer = (major, minor) > CONTRACT
        provider.reason = (
            f"it was built for contract {major}.{minor} of norch.distributed, this one has {CONTRACT[0]}.{CONTRACT[1]}"
        )
        provider.advice = f"pip install -U {'norch-nn' if newer else provider.distribution}"
        return
    provider.reason = engine.unusable_reason()
    provider.engine = engine


def find(name: str) -> Engine:
    """The engine of that name. Raises DistributedError, which lists those installed and why each cannot be used."""
    for provider in installed():
        if provider.name == name:
            discovery.load_once(provider, "norch_engine", adopt)
            if provider.usable and provider.engine is not None:
                return provider.engine
    lines = [f"engine {name!r} cannot be used. Installed engines:"]
    for provider in installed():
        discovery.load_once(provider, "norch_engine", adopt)
        lines.append(provider.describe())
    if name == "mpi":
        lines.append("try: pip install norch-nn[mpi]")
    elif name == "nccl":
        lines.append("try: pip install norch-cuda[nccl]")
    raise DistributedError("\n  ".join(lines))


def usable() -> dict[str, Engine]:
    """By device type the engine with the highest priority of those that can be used."""
    found: dict[str, Engine] = {}
    for provider in installed():
        discovery.load_once(provider, "norch_engine", adopt)
        if provider.usable and provider.engine is not None:
            for kind in provider.engine.device_types:
                if kind not in found or provider.engine.priority > found[kind].priority:
                    found[kind] = provider.engine
    return found


def chosen(backend: str | None, processes: int = 2) -> dict[str, Engine]:
    """By device type the engines that `backend` names: "mpi", "cpu:mpi,cuda:nccl"; None for the best of each. One
    process needs none for the CPU."""
    if backend is None or backend == "undefined":
        found = usable()
        if processes == 1:
            found.setdefault("cpu", ALONE)
        if not found:
            raise DistributedError("init_process_group(): no engine can be used; try: pip install norch-nn[mpi]")
        return found
    by_type: dict[str, Engine] = {}
    for part in str(backend).lower().split(","):
        kind, colon, name = part.strip().rpartition(":")
        known = {p.name for p in installed()}
        stands_in = name in _ALIASES and name not in known
        engine = _found(_ALIASES[name] if stands_in else name, processes)
        if stands_in or engine is ALONE:
            asked_for[engine.name] = name
        if colon and kind not in engine.device_types:
            raise DistributedError(
                f"init_process_group(): engine {name!r} is for {', '.join(sorted(engine.device_types))}, not {kind!r}"
            )
        for type_ in [kind] if colon else engine.device_types:
            by_type[type_] = engine
    return by_type


def _found(name: str, processes: int) -> Engine:
    """The engine of that name, or ALONE for one process where "mpi" cannot be used. Raises DistributedError."""
    try:
        return find(name)
    except DistributedError:
        if processes == 1 and name == "mpi":
            return ALONE
        raise


def is_known(kind: str) -> bool:
    """Whether an installed engine, usable or not, is for that device type."""
    for provider in installed():
        discovery.load_once(provider, "norch_engine", adopt)
    return any(p.engine is not None and kind in p.engine.device_types for p in installed())


def register(engine: Engine, distribution: str = "in process", version: str = "?") -> None:
    """Adds an engine at run time. Raises DistributedError where the contract refuses it."""
    provider = Provider(engine.name, distribution, version, type(engine).__module__, loaded=True)
    try:
        adopt(provider, engine)
    except TypeError as error:
        raise DistributedError(f"register(): {error}") from None
    if provider.reason:
        raise DistributedError(f"register(): {provider.describe()}")
    _registered.insert(0, provider)
