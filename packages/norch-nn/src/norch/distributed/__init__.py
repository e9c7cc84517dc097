"""Several processes, PyTorch's names: collectives over engines that plug in (MPI on CPUs, NCCL on NVIDIA's GPUs).

mpirun -n 4 python train.py

import norch.distributed as dist
dist.init_process_group()
dist.all_reduce(tensor)
dist.destroy_process_group()

Arguments that mean the same in every collective:

    group: the ProcessGroup whose members take part; None is all processes. Others return at once.
    op: a ReduceOp. Raises DTypeError for one that the dtype has not.
    async_op: whether a Work is returned at once, which is waited for, rather than None when all is done.
    src, dst: whose tensor, or to whom: a rank among all. group_src, group_dst: the same among the group's members.
        Raises ValueError for both, and for who is no member.
    obj, object_list: numbers, strings, bytes, None, tensors and containers of these. Raises DTypeError for others.
    output_split_sizes, input_split_sizes: how many rows come from and go to each member; equal parts unless given.
    tag: tells apart what goes from one process to the same other. timeout: a timedelta; by default the group's.
    tensor, tensors, input, output: of any shape, contiguous or not, on the group's device, and of one shape and dtype
        in all members. Raises DistributedError where another member calls something else, has another shape or dtype,
        does not come in time, or dies.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import norch

from .collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .debug import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from .device_mesh import DeviceMesh, init_device_mesh
from .errors import DistBackendError, DistNetworkError, DistributedError, DistStoreError
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .process_group import ProcessGroup, Work
from .reduce_op import ReduceOp
from .store import FileStore, HashStore, PrefixStore, Store, TCPStore
from .subgroups import new_subgroups, new_subgroups_by_enumeration, split_group
from .world import (
    Backend,
    GroupMember,
    destroy_process_group,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_local_rank,
    get_node_local_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
)

# The names of norch's ancestor.
broadcast_tensor = broadcast
allreduce_sum_tensor = all_reduce

_submodule = norch.late_submodules(__name__)
_FORMER = {"_all_gather_base": all_gather_into_tensor, "_reduce_scatter_base": reduce_scatter_tensor}
"""By PyTorch's names of before."""


def __getattr__(name: str) -> Any:
    if name in _FORMER:
        return _FORMER[name]
    if name == "GradBucket":  # what hooks are annotated with; norch.nn comes with it
        return import_module(".data_parallel.buckets", __name__).GradBucket
    return _submodule(name)


__all__ = [
    "Backend",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "DistributedError",
    "FileStore",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_debug_level",
    "get_global_rank",
    "get_group_rank",
    "get_local_rank",
    "get_node_local_rank",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "set_debug_level",
    "set_debug_level_from_env",
    "split_group",
]
