"""The entry point: what norch loads when the device "cpu" is first asked for."""

from __future__ import annotations

from norch.backend import hookimpl

from .backend import CpuBackend


@hookimpl
def norch_backend() -> CpuBackend:
    return CpuBackend()
