"""The hooks of norch, as pluggy specifications: what the modules behind entry points answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from ..backend.contract import Backend

hookspec = pluggy.HookspecMarker("norch")
hookimpl = pluggy.HookimplMarker("norch")


@hookspec
def norch_backend() -> Backend:  # type: ignore[empty-body]
    """Returns the backend of the device type that the module's entry point is named after (group `norch`)."""


@hookspec
def norch_ops() -> Sequence[Any]:  # type: ignore[empty-body]
    """Returns functions made with `norch.plugin_ops.new_op`: those that the module's entry points are named after
    (group `norch.ops`), and any that these need."""


@hookspec
def norch_engine() -> Any:
    """Returns the `norch.distributed.engine.Engine` that the module's entry point is named after (group
    `norch.distributed`)."""
