"""`python -m norch` and the command `norch`: what is installed, and what of it can be used."""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import textwrap
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy

from . import plugin_ops
from .backend import registry
from .errors import DeviceError
from .plugins import discovery
from .plugins.discovery import Plugin
from .version import __version__


def collect() -> dict[str, Any]:
    """Versions, and of each plug-in what it provides, or why it is not usable and what to do.

    Of a backend that is its contract, priority and device count; of an op the device types it has kernels for; of an
    engine of norch.distributed the device types whose tensors it moves.
    """
    versions = {"norch-core": __version__}
    try:
        versions["norch-nn"] = version("norch-nn")
    except PackageNotFoundError:
        versions["norch-nn"] = "not installed"
    versions |= {"python": platform.python_version(), "numpy": numpy.__version__, "platform": platform.platform()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the table has what `registry.find` warns of
        found = [_of_backend(provider) for provider in registry.providers(load=True)]
    devices = list(dict.fromkeys(row["device"] for row in found))
    backends = sorted(found, key=lambda row: (devices.index(row["device"]), row["state"] != "selected"))
    ops = [_of_op(plugin) for plugin in plugin_ops.installed()]
    engines = [_of_engine(plugin) for plugin in discovery.declared("norch.distributed")]
    return {"versions": versions, "backends": backends, "ops": ops, "engines": engines}


def _row(kind: str, plugin: Plugin, **more: Any) -> dict[str, Any]:
    if not plugin.usable:
        more = {"state": "not usable", "reason": plugin.reason or "", "advice": plugin.advice}
    return {kind: plugin.name, **{key: getattr(plugin, key) for key in ("distribution", "version", "module")}, **more}


def _of_backend(provider: registry.Provider) -> dict[str, Any]:
    backend = provider.backend
    row = _row("device", provider, state="usable")
    if backend is None:
        return row
    try:
        if registry.find(provider.device_type) is backend:
            row["state"] = "selected"
    except DeviceError as error:  # usable, but NORCH_BACKEND_… asks for something else
        row["reason"] = str(error).partition("\n")[0]
    row |= {"contract": ".".join(map(str, backend.contract)), "priority": backend.priority}
    try:
        row["devices"] = backend.device_count()
        if backend.missing_dtypes:
            row["missing_dtypes"] = dict(backend.missing_dtypes)
        uses = getattr(getattr(backend, "module", None), "uses", None)
        if uses is not None:
            row["uses"] = uses()
    except Exception as error:
        row |= {"state": "not usable", "reason": f"device_count() raised {type(error).__name__}: {error}"}
    return row


def _of_op(plugin: Plugin) -> dict[str, Any]:
    plugin_ops.load(plugin)
    if not plugin.usable:
        return _row("op", plugin)
    from .testing.conformance.samples import of_plugin

    function = plugin_ops.lookup(plugin.name)
    row = _row("op", plugin, state="usable", kernels=", ".join(function.op.kernels) or "none")
    sample = of_plugin(function)
    return row | {"reason": f"norch conformance does not try it: {sample}"} if isinstance(sample, str) else row


def _of_engine(plugin: Plugin) -> dict[str, Any]:
    more: dict[str, Any] = {}

    def adopt(plugin: Plugin, engine: Any) -> None:
        plugin.reason = engine.unusable_reason()
        more.update(contract=".".join(map(str, engine.contract)), devices=", ".join(sorted(engine.device_types)))

    discovery.load_once(plugin, "norch_engine", adopt)
    return _row("engine", plugin, state="usable", **more)


def show(found: dict[str, Any]) -> str:
    """`collect()` as text."""
    lines = [f"{name:<12}{value}" for name, value in found["versions"].items()]
    lines += _table(("device", "distribution", "contract", "priority", "devices", "state"), found["backends"])
    if found.get("ops"):
        lines += _table(("op", "distribution", "kernels", "state"), found["ops"])
    if found.get("engines"):
        lines += _table(("engine", "distribution", "contract", "devices", "state"), found["engines"])
    return "\n".join(lines)


def _table(columns: tuple[str, ...], found: list[dict[str, Any]]) -> list[str]:
    rows = [{**row, "distribution": f"{row['distribution']} {row['version']}"} for row in found]
    cells = [columns, *([str(row.get(key, "-")) for key in columns] for row in rows)]
    widths = [max(map(len, column)) + 2 for column in zip(*cells)]
    table = ["".join(f"{c:<{w}}" for c, w in zip(line, widths)).rstrip() for line in cells]
    lines = ["", table[0]]
    indent = " " * widths[0]
    for row, line in zip(rows, table[1:]):
        lines.append(line)
        lacks = [f"no {dtype}: {reason}" for dtype, reason in row.get("missing_dtypes", {}).items()]
        for text in (*lacks, row.get("uses"), row.get("reason"), row.get("advice") and f"try: {row['advice']}"):
            if text:
                lines += textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=indent)
    return lines


COMMANDS = {
    "conformance": ("try a backend against the contract", "norch.testing.conformance.command"),
    "new-backend": ("write a plug-in package that passes at once", "norch.scaffold"),
    "run": ("run a script, one written for PyTorch with --as-torch", "norch.compat.standin"),
    "check": ("name what a script written for PyTorch uses and norch lacks", "norch.compat.check"),
    "coverage": ("run a script and say what its ops ran as", "norch.coverage"),
}
"""What each further command is for, and the module that has its `add_arguments` and `main`, imported when asked for."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="norch", description="norch: what is installed, and what of it can be used.")
    commands = parser.add_subparsers(dest="command")
    info = commands.add_parser("info", help="versions and backends (the default)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    info.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")  # keeps the first's
    given = list(sys.argv[1:] if argv is None else argv)
    for name, (purpose, where) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose)
        if given[:1] == [name]:
            module = importlib.import_module(where)
            module.add_arguments(command)
            status: int = module.main(parser.parse_args(given))
            return status
    options = parser.parse_args(given)
    found = collect()
    print(json.dumps(found, indent=2) if options.json else show(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
