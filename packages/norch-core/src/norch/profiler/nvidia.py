"""From where to where NVIDIA's profilers record (`nsys profile -c cudaProfilerApi`, `ncu`): `norch.cuda.profiler`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..backend import registry

__all__ = ["profile", "start", "stop"]


def _runtime() -> Any:
    backend: Any = registry.find("cuda")
    return backend.module.cudart()


def start() -> None:
    """Has a profiler record from now on, if the program runs under one. Raises DeviceError where there is no GPU."""
    _runtime().cudaProfilerStart()


def stop() -> None:
    """Ends what `start` began. Raises DeviceError where there is no GPU."""
    _runtime().cudaProfilerStop()


@contextmanager
def profile() -> Iterator[None]:
    """Within this context a profiler records. Raises DeviceError where there is no GPU."""
    start()
    try:
        yield
    finally:
        stop()
