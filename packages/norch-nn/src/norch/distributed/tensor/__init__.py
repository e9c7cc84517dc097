"""How a tensor lies on the processes of a group: whole in each of them, or cut along a dim."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Replicate:
    """Whole, and the same, in each process."""


@dataclass(frozen=True)
class Shard:
    """Cut along `dim`: each process has its part."""

    dim: int


Placement = Replicate | Shard
