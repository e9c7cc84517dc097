"""What DistributedDataParallel promises, in as many processes as it is started in: "ok NAME" for each promise."""

from __future__ import annotations

import sys

import gradients  # noqa: F401
import training  # noqa: F401
import usage  # noqa: F401
from harness import PROMISES, rank

import norch.distributed as dist

wanted = sys.argv[1:]
for kept in PROMISES:
    if not wanted or kept.__name__ in wanted:
        kept()
        dist.barrier()
        if rank == 0:
            print("ok", kept.__name__, flush=True)
dist.destroy_process_group()
