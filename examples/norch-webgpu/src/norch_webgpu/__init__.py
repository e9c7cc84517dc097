"""A WebGPU backend for norch: device "webgpu". This module is the plug-in's entry point."""

from norch.backend import hookimpl

from .backend import WebGPUBackend


@hookimpl
def norch_backend() -> WebGPUBackend:
    return WebGPUBackend()
