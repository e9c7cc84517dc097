"""`norch.multiprocessing.spawn`: scripts that start their own processes, started by mpirun as all others are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .errors import DistributedError
from .launch import place
from .world import destroy_process_group, is_initialized

__all__ = ["ProcessContext", "ProcessExitedException", "ProcessRaisedException", "spawn", "start_processes"]


class ProcessExitedException(DistributedError):
    """A process that `spawn` started has ended with an error."""


ProcessRaisedException = ProcessExitedException


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, job: subprocess.Popen[bytes] | None) -> None:
        self._job = job

    def pids(self) -> list[int]:
        """The id of what started them."""
        return [] if self._job is None else [self._job.pid]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for their end, at most `timeout` seconds. Returns whether they have ended.

        Raises ProcessExitedException where one has failed.
        """
        if self._job is None:
            return True
        try:
            code = self._job.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        if code:
            raise ProcessExitedException(f"spawn(): the processes ended with status {code}; what they wrote says why")
        return True


def spawn(
    fn: Callable[..., Any],
    args: Sequence[Any] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Has `fn(i, *args)` called in `nprocs` processes, i counting from 0.

    A process of a job of just that many (`mpirun -n 2`, `norch run -n 2`) calls it itself; where that is one, the group
    that `fn` initialised ends with it. Any other starts this whole program again, by mpirun: what the program does
    before `spawn` is done in each process once more. Raises ProcessExitedException where a process fails.
    """
    here = place()
    if here.local_world_size == nprocs and (here.world_size > 1 or nprocs == 1):
        was_initialized = is_initialized()
        try:
            fn(here.local_rank, *args)
        finally:
            if nprocs == 1 and is_initialized() and not was_initialized:  # as with the end of a process of its own
                destroy_process_group()
        return None if join else ProcessContext(None)
    if here.world_size > 1:
        raise ValueError(f"spawn(): nprocs is {nprocs}, but this job has {here.local_world_size} processes on its host")
    beside = Path(sys.executable).with_name("mpirun")
    command = str(beside) if beside.exists() else shutil.which("mpirun")
    if command is None:
        raise DistributedError("spawn(): there is no mpirun; try: pip install norch-nn[mpi]")
    sys.stdout.flush()
    program = [sys.executable, *sys.orig_argv[1:]]
    context = ProcessContext(subprocess.Popen([command, "-n", str(nprocs), *program], env=dict(os.environ)))
    if not join:
        return context
    while not context.join(0.1):  # in pieces, so that Ctrl-C is heard
        time.sleep(0)
    return None


start_processes = spawn
