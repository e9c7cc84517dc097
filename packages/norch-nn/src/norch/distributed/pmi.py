"""MPICH where no mpirun started the processes: each answers its own MPI_Init, out of the store that all share.

MPICH asks its launcher in PMI-1, lines such as "cmd=get kvsname=… key=…" on the socket that PMI_FD names: see Balaji et
al., "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems" (EuroMPI 2010), and src/pmi of
MPICH. Addresses are put, exchanged at a barrier and got; there is nothing else to it, and no process besides.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .errors import DistributedError
from .store import PAUSE, Store


class PMI:
    """What one process's MPI asks, answered by a thread. Raises DistributedError where a process does not come."""

    def __init__(self, rank: int, size: int, store: Store, timeout: float) -> None:
        self.rank, self.size, self.store = rank, size, store
        self.deadline = time.monotonic() + timeout
        self.failure: str | None = None
        self.ending = False
        self._fences = 0
        # Stale shared memory of another job by the same name would be taken for this one's.
        self._own: dict[str, str] = {"name": f"norch-{uuid.uuid4().hex}"} if rank == 0 else {}
        self._values: dict[str, str] = {}
        self._fence()
        self.name = self._values["name"]

    @contextmanager
    def variables(self) -> Iterator[None]:
        """Within it MPI_Init finds the thread that answers."""
        theirs, self._connection = socket.socketpair()
        threading.Thread(target=self._serve, name="norch.distributed.pmi", daemon=True).start()
        atexit.register(self._part)
        found = {"PMI_FD": str(theirs.detach()), "PMI_RANK": str(self.rank), "PMI_SIZE": str(self.size)}
        os.environ.update(found)
        try:
            yield
        finally:
            for key in found:
                os.environ.pop(key, None)

    def _serve(self) -> None:
        with self._connection as connection, connection.makefile() as lines:
            for line in lines:
                reply = self.answer(dict(word.partition("=")[::2] for word in line.split()))
                if reply is None:
                    return
                connection.sendall(f"{reply}\n".encode())

    def _part(self) -> None:
        """Answers ahead what MPICH asks last, when there are no threads any more: at the end of the process."""
        with suppress(OSError):
            self._connection.sendall(b"cmd=finalize_ack rc=0\n")

    def answer(self, asked: dict[str, str]) -> str | None:
        """The reply to a line of PMI-1; None where there is none."""
        command = asked.get("cmd")
        if command == "init":
            return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
        if command == "get_maxes":
            return "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=4096"
        if command == "get_appnum":
            return "cmd=appnum appnum=0"
        if command == "get_universe_size":
            return f"cmd=universe_size size={self.size}"
        if command == "get_my_kvsname":
            return f"cmd=my_kvsname kvsname={self.name}"
        if command == "put":
            self._own[asked["key"]] = asked["value"]
            return "cmd=put_result rc=0 msg=success"
        if command == "get":
            value = self._own.get(asked["key"], self._values.get(asked["key"]))
            return "cmd=get_result rc=-1 msg=unknown" if value is None else f"cmd=get_result rc=0 value={value}"
        if command == "barrier_in":
            try:
                if not self.ending:
                    self._fence()
            except DistributedError as error:
                self.failure = str(error)
                return None
            return "cmd=barrier_out rc=0"
        return None

    def _fence(self) -> None:
        """A barrier, after which each process has what all have put. Rank 0 collects, so that n processes ask it 2n
        times and not n * n."""
        self._fences += 1
        whole = f"pmi/{self._fences}"
        self.store.set(f"{whole}/{self.rank}", json.dumps(self._own))
        if self.rank == 0:
            for rank in range(self.size):
                self._values.update(json.loads(self._wait(f"{whole}/{rank}", whole)))
            self.store.set(whole, json.dumps(self._values))
        else:
            self._values = json.loads(self._wait(whole, whole))

    def _wait(self, key: str, whole: str) -> bytes:
        while (value := self.store.look(key)) is None:
            if time.monotonic() > self.deadline:
                missing = [r for r in range(self.size) if self.store.look(f"{whole}/{r}") is None]
                did = "did not call init_process_group()" if self._fences == 1 else "did not end MPI_Init"
                named = f"rank {', '.join(map(str, missing))} {did}" if missing else "rank 0 does not answer"
                raise DistributedError(
                    f"init_process_group(): rank {self.rank} waited for all {self.size} processes in vain: {named}"
                )
            time.sleep(PAUSE)
        return value
