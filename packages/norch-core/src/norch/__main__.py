"""`python -m norch` and the command `norch`: what is installed, and what of it can be used."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import textwrap
from collections.abc import Sequence
from typing import Any


def collect() -> dict[str, Any]:
    """Versions, and for each plug-in its provider, contract, priority and device count, or why it is unusable."""
    from importlib.metadata import PackageNotFoundError, version

    import numpy

    from . import __version__
    from .backend import registry
    from .errors import DeviceError

    versions = {"norch-core": __version__}
    for name in ("norch-nn",):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    versions |= {"python": platform.python_version(), "numpy": numpy.__version__, "platform": platform.platform()}
    rows = []
    for provider in registry.installed():
        registry.load(provider)
        backend = provider.backend
        row: dict[str, Any] = {
            "device": provider.device_type,
            "distribution": provider.distribution,
            "version": provider.version,
            "module": provider.module,
        }
        if provider.usable and backend is not None:
            try:
                selected = registry.find(provider.device_type) is backend
            except DeviceError:
                selected = False
            row |= {
                "state": "selected" if selected else "usable",
                "contract": ".".join(map(str, backend.contract)),
                "priority": getattr(backend, "priority", 0),
                "devices": backend.device_count(),
            }
        else:
            row |= {"state": "not usable", "reason": provider.reason, "advice": provider.advice}
        rows.append(row)
    return {"versions": versions, "backends": rows}


def show(found: dict[str, Any]) -> str:
    """`collect()` as text."""
    lines = [f"{name:<12}{value}" for name, value in found["versions"].items()]
    lines += ["", f"{'device':<10}{'distribution':<24}{'contract':<10}{'priority':<10}{'devices':<9}state"]
    for row in found["backends"]:
        name = f"{row['distribution']} {row['version']}"
        widths = {"contract": 10, "priority": 10, "devices": 9}
        cells = [f"{row.get(key, '-')!s:<{width}}" for key, width in widths.items()]
        lines.append(f"{row['device']:<10}{name:<24}{''.join(cells)}{row['state']}")
        for key in ("reason", "advice"):
            if row.get(key):
                text = row[key] if key == "reason" else f"try: {row[key]}"
                lines += textwrap.wrap(text, 96, initial_indent=" " * 10, subsequent_indent=" " * 10)
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="norch", description="norch: what is installed, and what of it can be used.")
    commands = parser.add_subparsers(dest="command")
    info = commands.add_parser("info", help="versions and backends (the default)")
    for each in (parser, info):
        each.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    found = collect()
    print(json.dumps(found, indent=2) if options.json else show(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
