"""A script that starts its own processes, as scripts for PyTorch do."""

from __future__ import annotations

import os
import sys

import norch
import norch.distributed as dist
import norch.multiprocessing as mp


def work(rank: int, size: int, what: str) -> None:
    dist.init_process_group("gloo", rank=rank, world_size=size, timeout=30)
    total = norch.tensor([rank + 1])
    dist.all_reduce(total)
    line = f"{what} {rank} of {size}: {total.item()}, RANK={os.environ.get('RANK')}\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()
    if what == "fails" and rank == 1:
        raise SystemExit(3)


if __name__ == "__main__":
    mp.spawn(work, args=(2, sys.argv[1]), nprocs=2)
