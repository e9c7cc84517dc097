"""norch_newdevice: the device "newdevice" for norch. `import norch` finds it by the entry point in pyproject.toml."""

from __future__ import annotations

from norch.backend import Backend, hookimpl


@hookimpl
def norch_backend() -> Backend:
    """Called when "newdevice" is first asked for, so that `import norch` stays quick."""
    from .backend import NewDeviceBackend

    return NewDeviceBackend()
