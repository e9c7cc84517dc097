"""The entry point: what norch loads when the device "cuda" is first asked for."""

from __future__ import annotations

from norch.backend import hookimpl

from .backend import CudaBackend


@hookimpl
def norch_backend() -> CudaBackend:
    return CudaBackend()
