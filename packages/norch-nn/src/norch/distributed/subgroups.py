"""Several groups made at once: of neighbours, or of the ranks that lists say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import world
from .world import GroupMember, get_rank, get_world_size, new_group


def new_subgroups(group_size: int | None = None, group: Any = None, timeout: Any = None, **kwargs: Any) -> Any:
    """Groups of `group_size` neighbours (those of a host by default): this process's group, and all.

    Raises ValueError for a size that does not divide the number of processes.
    """
    size = group_size or world._place.local_world_size
    total = get_world_size()
    if total % size:
        raise ValueError(f"new_subgroups(): {total} processes cannot be split into groups of {size}")
    groups = [new_group(range(i, i + size), timeout=timeout) for i in range(0, total, size)]
    return groups[get_rank() // size], groups


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> Any:
    """A group for each list of ranks in `ranks_per_subgroup_list`: this process's, or None, and all.

    timeout, backend, pg_options, group_desc: as of new_group. Raises ValueError for no lists, and for a rank in two.
    """
    ranks = [rank for listed in ranks_per_subgroup_list for rank in listed]
    if not ranks_per_subgroup_list or len({*ranks}) < len(ranks):
        raise ValueError(f"new_subgroups_by_enumeration(): each rank is in one list, got {ranks_per_subgroup_list}")
    groups = [new_group(listed, timeout=timeout, backend=backend) for listed in ranks_per_subgroup_list]
    mine = [made for made, listed in zip(groups, ranks_per_subgroup_list) if get_rank() in listed]
    return (mine[0] if mine else None), groups


def split_group(
    parent_pg: Any = None, split_ranks: Sequence[Sequence[int]] | None = None, timeout: Any = None, **kwargs: Any
) -> Any:
    """This process's group of those that `split_ranks` lists; None where it is in none.

    parent_pg: all processes. Raises as new_group does.
    """
    mine = None
    for ranks in split_ranks or ():
        made = new_group(ranks, timeout=timeout)
        mine = made if made is not GroupMember.NON_GROUP_MEMBER else mine
    return mine
