"""The hooks of norch, as pluggy specifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from .contract import Backend

hookspec = pluggy.HookspecMarker("norch")
hookimpl = pluggy.HookimplMarker("norch")


@hookspec
def norch_backend() -> Backend:  # type: ignore[empty-body]
    """Returns the backend of the device type that the module's entry point is named after."""
