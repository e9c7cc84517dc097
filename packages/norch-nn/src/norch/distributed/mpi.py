"""The engine "mpi": mpi4py, for tensors on the CPU, which it moves where they lie.

Everything is started without waiting and then asked, so that a member that does not come can be named and Ctrl-C is
heard.
Any MPI that mpi4py finds will do; `pip install norch-nn[mpi]` brings MPICH.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import mpi4py

from norch import Tensor
from norch.backend import hookimpl

from .engine import Communicator, Engine, Request
from .errors import DistributedError
from .pmi import PMI
from .store import Store, TCPStore

# This module starts and ends MPI itself: in a thread, so that waiting can be given up, and not after a failure.
mpi4py.rc.initialize = False
mpi4py.rc.finalize = False
from mpi4py import MPI  # noqa: E402

CHUNK = 1 << 22
"""Bytes that are reduced at a time: of 64 MB in one piece MPICH makes half of the speed."""

UNDER_WAY = 2
"""Collectives that are started before an earlier one is done."""

_OPS = {
    "sum": MPI.SUM, "product": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX, "band": MPI.BAND, "bor": MPI.BOR,
    "bxor": MPI.BXOR,
}  # fmt: skip

Start = Callable[[], Any]


class _Pieces(Request):
    """A collective in pieces, started one after the other; the order of all starts is the same everywhere."""

    def __init__(self, comm: MPICommunicator, starts: Sequence[Start]) -> None:
        self.comm, self.left = comm, len(starts)
        comm.queue.extend((start, self) for start in starts)
        comm.progress()

    def test(self) -> bool:
        if self.left:
            self.comm.progress()
        return not self.left


class _Messages(Request):
    def __init__(self, requests: list[Any], memory: list[Any], anyone: bool) -> None:
        self.requests, self.memory, self.status = requests, memory, MPI.Status() if anyone else None

    def test(self) -> bool:
        if self.status is None:
            return bool(MPI.Request.Testall(self.requests))
        if self.requests and self.requests[0].Test(self.status):
            self.requests, self.source = [], self.status.Get_source()
        return not self.requests


def _bytes(tensor: Tensor) -> Any:
    return tensor.numpy().reshape(-1).view("uint8")


class MPICommunicator(Communicator):
    def __init__(self, comm: Any) -> None:
        self.comm = comm
        self.queue: deque[tuple[Start, _Pieces]] = deque()
        self.under_way: deque[tuple[Any, _Pieces, Start]] = deque()
        """What was started, and by what, which holds the memory: mpi4py does not, and the user may drop the Work."""
        self.messages: list[_Messages] = []

    def progress(self) -> None:
        """Asks what was started, and starts what waits for its turn."""
        under_way, queue = self.under_way, self.queue
        while True:
            while under_way and under_way[0][0].Test():
                under_way.popleft()[1].left -= 1
            if not queue or len(under_way) == UNDER_WAY:
                return
            start, request = queue.popleft()
            under_way.append((start(), request, start))

    def all_reduce(self, tensor: Tensor, op: str) -> Request:
        values, how = tensor.numpy().reshape(-1), _OPS[op]
        size = CHUNK // values.itemsize
        if values.size <= size:
            return _Pieces(self, [lambda: self.comm.Iallreduce(MPI.IN_PLACE, values, how)])
        parts = [values[i : i + size] for i in range(0, values.size, size)]
        return _Pieces(self, [partial(self.comm.Iallreduce, MPI.IN_PLACE, part, how) for part in parts])

    def reduce(self, tensor: Tensor, op: str, root: int) -> Request:
        values, how = tensor.numpy().reshape(-1), _OPS[op]
        if self.comm.rank == root:
            return _Pieces(self, [lambda: self.comm.Ireduce(MPI.IN_PLACE, values, how, root)])
        return _Pieces(self, [lambda: self.comm.Ireduce(values, None, how, root)])

    def broadcast(self, tensor: Tensor, root: int) -> Request:
        values = _bytes(tensor)
        return _Pieces(self, [lambda: self.comm.Ibcast(values, root)])

    def all_gather(self, out: Tensor, tensor: Tensor) -> Request:
        into, values = _bytes(out), _bytes(tensor)
        return _Pieces(self, [lambda: self.comm.Iallgather(values, into)])

    def reduce_scatter(self, out: Tensor, tensor: Tensor, op: str) -> Request:
        into, values = out.numpy().reshape(-1), tensor.numpy().reshape(-1)
        return _Pieces(self, [lambda: self.comm.Ireduce_scatter_block(values, into, _OPS[op])])

    def exchange(
        self, sends: Sequence[tuple[Tensor, int]], receipts: Sequence[tuple[Tensor, int | None]], tag: int = 0
    ) -> Request:
        into = [(_bytes(tensor), MPI.ANY_SOURCE if peer is None else peer) for tensor, peer in receipts]
        out = [(_bytes(tensor), peer) for tensor, peer in sends]
        requests = [self.comm.Irecv(values, peer, tag) for values, peer in into]
        requests += [self.comm.Isend(values, peer, tag) for values, peer in out]
        made = _Messages(requests, [into, out], any(peer is None for _, peer in receipts))
        self.messages = [*(message for message in self.messages if not message.test()), made]
        return made

    def close(self) -> None:
        self.comm.Free()


_marker: Any = None


def _job(rank: int) -> str:
    """The name of a socket by which processes with one parent, mpirun's, see each other before MPI does."""
    return f"\0norch-mpi-{os.getppid()}-{rank}"


def _mark(rank: int) -> None:
    global _marker
    if sys.platform == "linux" and _marker is None:
        _marker = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):
            _marker.bind(_job(rank))


def _unmarked(size: int) -> list[int]:
    """Which ranks of this host never came to `_mark`."""
    missing = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        for rank in range(size):
            try:
                probe.connect(_job(rank))
            except OSError:
                missing.append(rank)
    return missing


def within(timeout: float, work: Callable[[], Any], otherwise: Callable[[], str]) -> Any:
    """What `work` returns, done in a thread. Raises DistributedError(otherwise()) where it takes over `timeout` s."""
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(work()), daemon=True)
    thread.start()
    deadline = time.monotonic() + timeout
    while thread.is_alive() and time.monotonic() < deadline:
        thread.join(0.1)  # in pieces, so that Ctrl-C is heard
    if not done:
        raise DistributedError(otherwise())
    return done[0]


def launched() -> tuple[int, int] | None:
    """Rank and number of processes as mpirun says them; None where it did not start this one."""
    for rank, size in (("PMI_RANK", "PMI_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")):
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return None


_pmi: PMI | None = None
"""What stands for mpirun where this did not start the processes."""

_library = ctypes.CDLL(MPI.__file__)  # since mpi4py's MPI_Init and MPI_Finalize would hold the GIL all the while


def start(timeout: float, rank: int = 0, size: int = 1, store: Store | None = None) -> None:
    """MPI_Init, given up after `timeout` seconds: it waits for all processes that mpirun started.

    Without mpirun for `size` processes of which this is `rank`, and which share `store`.
    """
    if MPI.Is_initialized():
        return
    if launched() is None and size > 1 and store is not None:
        return _start_alone(timeout, rank, size, store)
    rank, size = launched() or (0, 1)
    _mark(rank)

    def otherwise() -> str:
        _unlink_segments()
        missing = _unmarked(size) if sys.platform == "linux" else []
        named = f"rank {', '.join(map(str, missing))} has" if missing else "at least one of them has"
        return (
            f"init_process_group(): rank {rank} waited {timeout:g} s for the {size} processes that mpirun started; "
            f"{named} not called init_process_group()"
        )

    _init(timeout, otherwise)


def _start_alone(timeout: float, rank: int, size: int, store: Store) -> None:
    global _pmi
    if MPI.get_vendor()[0] == "Open MPI":
        raise DistributedError(
            "mpi: Open MPI cannot connect processes that mpirun did not start; start them with mpirun (mpirun -n 4 "
            "python train.py), or let MPICH take its place: pip install mpich"
        )
    _pmi = pmi = PMI(rank, size, store, timeout)
    with pmi.variables():
        _init(timeout, lambda: pmi.failure or f"init_process_group(): rank {rank}: no end of MPI_Init in {timeout:g} s")


def _init(timeout: float, otherwise: Callable[[], str]) -> None:
    def init() -> int:
        _library.MPI_Init_thread(None, None, MPI.THREAD_MULTIPLE, ctypes.byref(ctypes.c_int()))
        MPI.COMM_WORLD.Barrier()
        return 0

    within(timeout, init, otherwise)
    _unlink_segments()


def _unlink_segments() -> None:
    """Takes the names of MPICH's shared memory away, which all have opened: a killed process leaves nothing then."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        for path in set(re.findall(r"/dev/shm/mpich_\S+", maps.read())):
            with suppress(OSError):
                os.unlink(path)


PARTING = 10.0
"""Seconds that a process which mpirun did not start waits for the others at its end: nobody ends it if one has died."""


def stop() -> None:
    """MPI_Finalize, which waits for the others."""
    if MPI.Is_initialized() and not MPI.Is_finalized():
        if _pmi is None or _all_are_here():
            _library.MPI_Finalize()
    if _marker is not None:
        _marker.close()


def _all_are_here() -> bool:
    """Where no mpirun ends the others when one has died: whether all come to their end within PARTING."""
    request, deadline = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + PARTING
    while not request.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    if _pmi is not None:
        _pmi.ending = True
    return True


class MPIEngine(Engine):
    name = "mpi"
    launcher = ("mpirun",)

    def bootstrap(self, timeout: float) -> Store | None:
        if launched() is None:
            return None
        start(timeout)
        comm = MPI.COMM_WORLD
        here = socket.gethostname()
        alone = len(set(comm.allgather(here))) == 1
        store = None
        if comm.rank == 0:
            store = TCPStore("127.0.0.1" if alone else socket.getfqdn(), 0, is_master=True)
        host, port = comm.bcast(store and (store.host, store.port))
        return store or TCPStore(host, port)

    def connect(self, ranks: Sequence[int], rank: int, store: Store, timeout: float) -> Communicator:
        start(timeout, ranks.index(rank), len(ranks), store)
        world = MPI.COMM_WORLD
        if world.rank != rank:
            raise DistributedError(
                f"mpi: MPI calls this process rank {world.rank} of {world.size}, its variables say rank {rank}: start "
                "the processes with mpirun (mpirun -n 4 python train.py)"
            )

        def otherwise() -> str:
            return f"mpi: not all of ranks {list(ranks)} came to make their group within {timeout:g} s"

        if len(ranks) == world.size:
            return MPICommunicator(within(timeout, world.Dup, otherwise))
        members = world.group.Incl(list(ranks))
        tag = int(store.get("tag").decode()) if rank != ranks[0] else _new_tag(store)
        return MPICommunicator(within(timeout, lambda: world.Create_group(members, tag), otherwise))


_tags = 0


def _new_tag(store: Store) -> int:
    global _tags
    _tags += 1
    store.set("tag", str(_tags))
    return _tags


@hookimpl
def norch_engine() -> Engine:
    return MPIEngine()
