"""Processes of which one does what it should not. The others print what they are told, and after how long."""

from __future__ import annotations

import datetime
import os
import signal
import sys
import time

import norch
import norch.distributed as dist
from norch.distributed.distributed_c10d import _set_pg_timeout

how, victim, timeout = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
mine = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
if os.environ.get("SEVERAL_HOSTS"):
    os.environ["NORCH_DISTRIBUTED_HOST"] = f"host{mine}"
print(f"process {os.getpid()}\n", end="", flush=True)

begin = time.monotonic()
try:
    if how == "never-comes" and mine == victim:
        time.sleep(100)
    begun_within = timeout if how == "never-comes" else 60  # a slow machine takes its time
    dist.init_process_group("mpi", timeout=datetime.timedelta(seconds=begun_within))
    rank = dist.get_rank()
    dist.barrier()
    _set_pg_timeout(datetime.timedelta(seconds=timeout))
    x = norch.ones(512)
    for _ in range(3):
        dist.all_reduce(x)
    begin = time.monotonic()
    if rank == victim:
        time.sleep(0.2)
        if how == "shape":
            dist.all_reduce(norch.ones(1024))
        elif how == "op":
            dist.all_reduce(x, dist.ReduceOp.MAX)
        elif how == "dtype":
            dist.all_reduce(x.double())
        elif how == "call":
            dist.broadcast(x, 0)
        elif how == "hangs":
            time.sleep(100)
        elif how == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "is-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "raises":
            raise MemoryError("no room for 8 TB")
        elif how == "leaves":
            sys.exit(0)
    if how == "interrupt" and rank == victim:
        time.sleep(100)
    if how == "receives" and rank != victim:
        dist.recv(x, src=victim)
    elif how == "receives":
        time.sleep(100)
    dist.all_reduce(x)
    print(f"rank {rank} went on\n", end="", flush=True)
except (dist.DistributedError, KeyboardInterrupt) as error:
    print(f"after {time.monotonic() - begin:.1f} s {type(error).__name__}: {error}\n", end="", flush=True)
    raise
