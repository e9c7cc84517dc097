"""The NumPy reference backend, device type "cpu": every primitive, written to be read."""

from pluggy import HookimplMarker

from .backend import NumpyBackend

hookimpl = HookimplMarker("norch")


@hookimpl
def norch_backend() -> NumpyBackend:
    return NumpyBackend()
