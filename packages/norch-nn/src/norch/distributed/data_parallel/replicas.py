"""How the modules of several processes are made equal, and what is said where they cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import norch
import norch.distributed as dist

CHUNK = 32 << 20
"""Bytes that are broadcast together."""


def check_same(named: Sequence[tuple[str, norch.Tensor]], group: dist.ProcessGroup, call: str) -> None:
    """Raises DistributedError in all processes where their parameters are not alike, naming the first that differs."""
    mine = [[name, f"{p.dtype.name} {tuple(p.shape)}"] for name, p in named]
    found: list[Any] = []
    dist.all_gather_object(found, mine, group)
    first = found[0]
    for member, other in enumerate(found):
        if other == first:
            continue
        ranks = group.ranks[0], group.ranks[member]
        for a, b in zip(first, other, strict=False):
            if a != b:
                what = (
                    f"parameter {a[0]!r} is {a[1]} on rank {ranks[0]} and {b[1]} on rank {ranks[1]}"
                    if a[0] == b[0]
                    else f"where rank {ranks[0]} has parameter {a[0]!r}, {a[1]}, rank {ranks[1]} has {b[0]!r}, {b[1]}"
                )
                break
        else:
            longer = max(first, other, key=len)
            name, kind = longer[min(len(first), len(other))]
            what = (
                f"rank {ranks[0]} has {len(first)} parameters and rank {ranks[1]} {len(other)}; the first that is "
                f"missing is {name!r}, {kind}"
            )
        raise dist.DistributedError(f"{call}: the model is not the same on all ranks: {what}")


def broadcast_all(tensors: Iterable[norch.Tensor], group: dist.ProcessGroup, member: int = 0) -> None:
    """Gives `tensors` the values that they have in one member, as few messages."""
    kinds: dict[Any, list[norch.Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor.detach())
    with norch.no_grad():
        for alike in kinds.values():
            chunk: list[norch.Tensor] = []
            for tensor in alike:
                if chunk and sum(t.nbytes for t in chunk) + tensor.nbytes > CHUNK:
                    _broadcast(chunk, group, member)
                    chunk = []
                chunk.append(tensor)
            _broadcast(chunk, group, member)


def _broadcast(tensors: list[norch.Tensor], group: dist.ProcessGroup, member: int) -> None:
    if len(tensors) == 1:
        dist.broadcast(tensors[0], group=group, group_src=member)
        return
    flat = norch.cat([t.reshape(-1) for t in tensors])
    dist.broadcast(flat, group=group, group_src=member)
    if group.member != member:
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))
