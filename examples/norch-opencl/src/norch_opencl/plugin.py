"""The entry point: what norch loads when the device "opencl" is first asked for."""

from norch.backend import hookimpl

from .backend import OpenCLBackend


@hookimpl
def norch_backend() -> OpenCLBackend:
    return OpenCLBackend()
