"""How a tensor lies on the processes of a group: whole in each of them, or cut along a dim."""

from __future__ import annotations

from dataclasses import dataclass

import norch

from ..device_mesh import DeviceMesh as DeviceMesh
from ..device_mesh import init_device_mesh as init_device_mesh


@dataclass(frozen=True)
class Replicate:
    """Whole, and the same, in each process."""


@dataclass(frozen=True)
class Shard:
    """Cut along `dim`: each process has its part."""

    dim: int


@dataclass(frozen=True)
class Partial:
    """Each process has a summand, or by `reduce_op` another part of a reduction."""

    reduce_op: str = "sum"


Placement = Replicate | Shard | Partial

__getattr__ = norch.late_submodules(__name__)
