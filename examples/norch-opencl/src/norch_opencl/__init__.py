"""An OpenCL backend for norch: device "opencl". This module is the plug-in's entry point."""

from norch.backend import hookimpl

from .backend import OpenCLBackend


@hookimpl
def norch_backend() -> OpenCLBackend:
    return OpenCLBackend()
