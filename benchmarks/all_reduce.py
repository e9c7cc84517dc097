"""All-reduce between processes of one host: norch over MPI beside PyTorch over gloo, and what the wrapper costs.

    mpirun -n 2 python benchmarks/all_reduce.py [--json FILE]

Needs torch. Times are medians over rounds of the slowest process's, in microseconds; a barrier comes before each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import norch
import norch.distributed as dist
from norch.distributed import process_group
from norch.distributed.mpi import MPI

SIZES = {"4 B": 1, "64 KB": 1 << 14, "1 MB": 1 << 18, "4 MB": 1 << 20, "64 MB": 1 << 24}
"""Elements of float32."""


def measure(works: dict[str, Callable[[], Any]], rounds: int, comm: Any) -> dict[str, float]:
    """By name the median over rounds, in microseconds, in which all were called in turn."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            comm.Barrier()
            begin = time.perf_counter()
            work()
            times[name].append(comm.allreduce(time.perf_counter() - begin, MPI.MAX))
    return {name: median(values) * 1e6 for name, values in times.items()}


def in_flight(all_reduce: Callable[..., Any], tensors: Any) -> None:
    for work in [all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    options = parser.parse_args()
    dist.init_process_group("mpi")
    rank, size = dist.get_rank(), dist.get_world_size()
    comm = MPI.COMM_WORLD

    import torch
    import torch.distributed as gloo

    torch.set_num_threads(1)
    port = comm.bcast(20000 + os.getpid() % 20000)
    limit = datetime.timedelta(seconds=60)
    gloo.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size, timeout=limit)

    rows = []
    for label, n in SIZES.items():
        ours, theirs = norch.zeros(n), torch.zeros(n)
        works: dict[str, Callable[[], Any]] = {
            "norch": lambda t=ours: dist.all_reduce(t),
            "gloo": lambda t=theirs: gloo.all_reduce(t),
        }
        if n == 1 << 24:  # as DDP does: in buckets of 4 MB, all under way at once
            parts, others = ours.split(1 << 20), theirs.split(1 << 20)
            works["norch in buckets"] = lambda p=parts: in_flight(dist.all_reduce, p)
            works["gloo in buckets"] = lambda p=others: in_flight(gloo.all_reduce, p)
        found = measure(works, 400 if n < 1 << 17 else 60 if n < 1 << 22 else 15, comm)
        rows.append({"bytes": label, **{k: round(v, 1) for k, v in found.items()}})

    values, one = np.zeros(1, np.float32), norch.zeros(1)

    def engine() -> None:
        request = comm.Iallreduce(MPI.IN_PLACE, values)
        while not request.Test():
            pass

    def checked() -> None:
        process_group.Options.check = True
        dist.all_reduce(one)

    def unchecked() -> None:
        process_group.Options.check = False
        dist.all_reduce(one)

    found = measure({"engine": engine, "checked": checked, "unchecked": unchecked}, 2000, comm)
    process_group.Options.check = True
    wrapper = {k: round(found[k] - found["engine"], 1) for k in ("checked", "unchecked")}
    if rank == 0:
        print(f"{size} processes, medians in us, slowest process")
        for row in rows:
            print(
                f"{row['bytes']:>6}  norch {row['norch']:>9}  gloo {row['gloo']:>9}  {row['norch'] / row['gloo']:.2f}"
            )
            if "norch in buckets" in row:
                ratio = row["norch in buckets"] / row["gloo in buckets"]
                print(f"  in buckets  {row['norch in buckets']:>9}       {row['gloo in buckets']:>9}  {ratio:.2f}")
        print(f"wrapper over engine: {wrapper}")
        if options.json:
            about = {
                "date": datetime.date.today().isoformat(), "processes": size, "cores": os.cpu_count(),
                "python": platform.python_version(), "torch": torch.__version__, "mpi": MPI.Get_library_version()[:40],
            }  # fmt: skip
            with open(options.json, "w") as file:
                json.dump({"about": about, "all_reduce_us": rows, "wrapper_us": wrapper}, file, indent=1)
    gloo.destroy_process_group()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
