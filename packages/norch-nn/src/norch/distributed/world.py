"""The group of all processes, and groups of some: how they are made and asked for."""

from __future__ import annotations

import atexit
import importlib.util
import multiprocessing
import multiprocessing.util
import os
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import norch

from . import engines, watchdog
from .engine import Engine
from .errors import DistributedError
from .launch import Place, master, place
from .process_group import Options, ProcessGroup
from .store import FileStore, HashStore, Store, TCPStore, seconds

DEFAULT_TIMEOUT = 600.0
"""Seconds that a collective may take where `init_process_group` is given no timeout: PyTorch's for NCCL."""

GRACE = 1.0
"""Seconds that a process which has failed stays, for the others to see why: launchers end them once it is gone."""


class GroupMember:
    """What stands for a group: WORLD is the group of all, NON_GROUP_MEMBER one that this process is not in."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER: Any = -100


class _Group:
    @property
    def WORLD(self) -> ProcessGroup | None:
        return GroupMember.WORLD


group: Any = _Group()

_groups: list[ProcessGroup] = []
_place = Place(0, 1, 0, 1)
_count = 0
_store: Store | None = None


def world() -> ProcessGroup:
    """The group of all processes. Raises ValueError before `init_process_group`, as PyTorch does."""
    found = GroupMember.WORLD
    if found is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return found


_get_default_group = world


def resolve(group: Any) -> ProcessGroup | None:
    """The group that a collective is asked of; None where this process is no member."""
    if group is None:
        return world()
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group must be a ProcessGroup or None, got {group!r}")
    return group


def _rendezvous(found: Place, init_method: str | None, timeout: float, chosen: dict[str, Engine]) -> Store:
    """The store that `init_method`, the variables or the engine's own launcher lead to."""
    address = None
    if init_method not in (None, "env://"):
        scheme, _, rest = str(init_method).partition("://")
        if scheme == "file":
            return FileStore(rest, found.world_size)
        host, _, port = rest.partition("?")[0].rpartition(":")
        if scheme != "tcp" or not port.isdigit():
            raise ValueError(f"init_method must be env://, tcp://host:port or file:///path, got {init_method!r}")
        address = host, int(port)
    address = address or master()
    if address is None:
        for engine in dict.fromkeys([*chosen.values(), *engines.usable().values()]):
            store = engine.bootstrap(timeout)
            if store is not None:
                return store
        if found.world_size == 1:
            return HashStore()
        raise DistributedError(
            f"init_process_group(): rank {found.rank} of {found.world_size} does not know where rank 0 is: set "
            "MASTER_ADDR and MASTER_PORT, or pass init_method='tcp://host:port'"
        )
    return TCPStore(*address, found.world_size, found.rank == 0, timeout)


def init_process_group(
    backend: Any = None,
    init_method: Any = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes this process one of a job, together with all others, which call it too.

    backend: the engine, "mpi" or "nccl" or another that is installed; one for each device type as "cpu:mpi,cuda:nccl";
        by default the best for each. "gloo" is mpi where no engine of that name is installed. A job of one process
        needs none for the CPU.
    init_method: how processes find each other: "env://" (MASTER_ADDR and MASTER_PORT, and without these mpirun's own
        means), "tcp://host:port", "file:///path"; or pass a `store`.
    timeout: a timedelta, or seconds, that a collective may take; 10 minutes by default.
    world_size, rank: by default what mpirun, torchrun or SLURM say; 1 process where nothing started this one.
    device_id: connects this device's engine now, not at its first collective.

    Raises ValueError where it was called before, DistributedError where an engine cannot be used or a process does not
    come within the timeout. group_name, pg_options: ignored.
    """
    global _place, _store
    if type(backend) is int:  # the ancestor's init_process_group(rank, world_size, backend="nccl")
        rank, world_size = backend, int(init_method)
        backend, init_method, timeout = (timeout if isinstance(timeout, str) else None), None, None
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    limit = DEFAULT_TIMEOUT if timeout is None else seconds(timeout)
    found = place()
    if rank >= 0 or world_size >= 0:
        if rank < 0 or world_size < 0:
            raise ValueError("init_process_group(): give both rank and world_size, or none")
        local = (found.local_rank, found.local_world_size) if found.world_size == world_size else (rank, world_size)
        found = Place(rank, world_size, *local)
    if not 0 <= found.rank < found.world_size:
        raise ValueError(f"init_process_group(): rank {found.rank} is not below world_size {found.world_size}")
    engines.asked_for.clear()
    chosen = engines.chosen(backend, found.world_size)
    _place = found
    _share_processors(found.local_world_size)
    _store = store if store is not None else _rendezvous(found, init_method, limit, chosen)
    made = ProcessGroup("world", range(found.world_size), found.rank, chosen, _store, limit)
    if "cpu" in chosen:
        made.connect("cpu")
    if device_id is not None:
        made.connect(device_id if isinstance(device_id, str) else device_id.type)
    GroupMember.WORLD = made
    _groups.append(made)
    _watch_exit()


def _share_processors(processes: int) -> None:
    """Gives each of several processes of a host its share of the threads, where none was told how many to use, nor
    bound: it has one for each core then, which has one processor or two.

    Where they are more than processors, one that waits must not keep a processor from those that it waits for.
    """
    count = os.cpu_count() or 1
    if processes > count:
        Options.spin = 0.0
    threads = norch.get_num_threads()
    is_told = "NORCH_NUM_THREADS" in os.environ or "OMP_NUM_THREADS" in os.environ
    if processes > 1 and not is_told and 2 * threads >= count:
        norch.set_num_threads(max(1, threads // processes))


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
) -> Any:
    """A group of some of the processes (all by default). All processes call it, in the same order, members or not.

    Returns GroupMember.NON_GROUP_MEMBER in the others. Raises ValueError for ranks that there are not. backend: as of
    init_process_group. pg_options, use_local_synchronization, group_desc, device_id: ignored.
    """
    global _count
    parent = world()
    chosen = sorted(range(parent.size()) if ranks is None else {int(r) for r in ranks})
    if not chosen or chosen[0] < 0 or chosen[-1] >= parent.size() or (ranks is not None and len(ranks) > len(chosen)):
        raise ValueError(f"new_group(): ranks {list(ranks or [])} must be different and below {parent.size()}")
    _count += 1
    parent.begin(f"new_group({chosen})")
    if parent.global_rank not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    assert _store is not None
    limit = parent.timeout if timeout is None else seconds(timeout)
    engines_of = parent.engines if backend is None else engines.chosen(backend, len(chosen))
    made = ProcessGroup(f"group{_count}", chosen, parent.global_rank, engines_of, _store, limit)
    for kind in list(parent.comms) if backend is None else [k for k in ("cpu",) if k in engines_of]:
        made.connect(kind)
    _groups.append(made)
    return made


def _set_pg_timeout(timeout: Any, group: Any = None) -> None:
    """Changes how long the collectives of a group may take, for this process."""
    found = resolve(group)
    if found is not None:
        found.timeout = seconds(timeout)


def destroy_process_group(group: Any = None) -> None:
    """Leaves a group, or all of them, after what is under way. All members call it."""
    found = world() if group is None else resolve(group)
    if found is None:
        return
    for one in [*reversed(_groups)] if found is GroupMember.WORLD else [found]:
        _leave(one)
        _groups.remove(one)
    if found is GroupMember.WORLD:
        GroupMember.WORLD = None


def _leave(one: ProcessGroup) -> None:
    if one.failed is None and one.comms:
        one.barrier(False)
    one.close()


def _watch_exit() -> None:
    """Lets other members know of an exception that ends this process."""
    global _hooked
    if _hooked:
        return
    _hooked = True
    before = sys.excepthook

    def told(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if any(one.watchdog is not None and one.failed is None for one in _groups):
            time.sleep(3 * watchdog.LOOK)  # the error may come of what it is about to blame on someone
        for one in _groups:
            if one.failed is None:
                one.failed = f"{kind.__name__}: {error}"
                if one.members is not None:
                    one.members.ledger.fail(f"it raised {one.failed}")
        before(kind, error, trace)
        members = _groups[0].members if _groups else None
        if members is not None:
            sys.stderr.write(f"norch.distributed: {members.ends(kind.__name__)}\n")

    sys.excepthook = told
    atexit.register(_at_exit)
    if multiprocessing.parent_process() is not None:  # its processes skip atexit
        multiprocessing.util.Finalize(None, _at_exit, exitpriority=0)


_hooked = False


def _at_exit() -> None:
    """Ends MPI in order where all is well. After a failure others may be gone, and it would wait for them."""
    mpi = sys.modules.get("norch.distributed.mpi")
    failed = any(one.failed is not None for one in _groups)
    if not failed:
        try:
            if GroupMember.WORLD is not None:
                destroy_process_group()
            if mpi is not None:
                mpi.stop()
        except DistributedError as error:
            sys.stderr.write(f"norch.distributed: at the end of rank {_place.rank}: {error}\n")
            failed = True
    if failed:
        sys.stdout.flush()
        sys.stderr.flush()
        if _groups and _groups[0].members is not None:
            _groups[0].members.let_know(GRACE)
        os._exit(1)


# --- Questions ------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Whether there is norch.distributed: always."""
    return True


def is_initialized() -> bool:
    """Whether `init_process_group` was called."""
    return GroupMember.WORLD is not None


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process, as TORCHELASTIC_RUN_ID says."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_mpi_available() -> bool:
    """Whether the engine "mpi" can be used: mpi4py is there, and finds an MPI."""
    return importlib.util.find_spec("mpi4py") is not None


def is_nccl_available() -> bool:
    """Whether the engine "nccl" can be used."""
    return is_backend_available("nccl")


def is_gloo_available() -> bool:
    """Whether an engine named "gloo" can be used."""
    return is_backend_available("gloo")


def is_backend_available(backend: str) -> bool:
    """Whether an engine of the name `backend` can be used."""
    try:
        engines.find(backend.lower())
    except DistributedError:
        return False
    return True


def get_rank(group: Any = None) -> int:
    """Which member of the group this process is, from 0; -1 where it is none."""
    found = resolve(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many members the group has; -1 where this process is none of them."""
    found = resolve(group)
    return -1 if found is None else found.size()


def get_local_rank() -> int:
    """Which process of its host this is, from 0: the number of its GPU."""
    return (_place if GroupMember.WORLD is not None else place()).local_rank


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Which process of this host this one is, as the launcher says in LOCAL_RANK; else `fallback_rank`."""
    return get_local_rank()


class Backend(str):
    """The name of a backend, in lower case: what scripts write for "gloo", "mpi" and "nccl"."""

    UNDEFINED, GLOO, NCCL, MPI, UCC = "undefined", "gloo", "nccl", "mpi", "ucc"
    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, UCC, MPI]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL}

    def __new__(cls, name: str) -> Backend:
        """Raises ValueError unless `name` is a string."""
        if not isinstance(name, str):
            raise ValueError(f"Backend(): the name must be a string, got {name!r}")
        return super().__new__(cls, name.lower())


def get_backend(group: Any = None) -> str:
    """The names of the group's engines, as "mpi" or "mpi,nccl"; of one in the place of "gloo", "gloo".

    Raises ValueError for a group that this process is not in.
    """
    found = resolve(group)
    if found is None:
        raise ValueError("get_backend(): this process is no member of that group")
    return ",".join(engines.asked_for.get(name, name) for name in found.name().split(","))


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks, in the job, of a group's members."""
    found = resolve(group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the job of member `group_rank`. Raises ValueError where there is none."""
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Which member the process of rank `global_rank` is. Raises ValueError where it is none."""
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group!r}")
    return group.ranks.index(global_rank)
