"""How fast tensors are reduced over all GPUs of this machine, beside PyTorch on the same NCCL in the same processes.

    python benchmarks/nccl.py [--json out.json]

It starts one process a GPU. For each size the libraries take turns; a figure is the median of the rounds of the slowest
process, by the device's events. "host us" is what a call costs the host, the current stream's wait included: of the
engine, of norch.distributed with and without its check that all ranks call the same, and of PyTorch. What must be
reached: 0.9 of PyTorch's bandwidth at 256 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = [4 << (10 + 2 * i) for i in range(9)]  # 4 KiB to 256 MiB
ROUNDS = 11
CALLS = 100  # of a round of the host's timing
Call = Callable[[], Any]


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def start(ranks: int, json_path: Path | None) -> int:
    """Runs the processes; returns how many failed."""
    env = os.environ | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    env |= {"MASTER_PORT": free_port(), "TORCH_PORT": free_port()}
    command = [sys.executable, __file__, *(["--json", str(json_path)] if json_path else [])]
    jobs = [subprocess.Popen(command, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(ranks)]
    return sum(job.wait() != 0 for job in jobs)


def measure(json_path: Path | None) -> None:
    import torch
    import torch.distributed as theirs

    import norch
    import norch.distributed as ours
    from norch.distributed import process_group as groups

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    norch.cuda.set_device(rank)
    torch.cuda.set_device(rank)
    address = f"tcp://127.0.0.1:{os.environ['TORCH_PORT']}"
    theirs.init_process_group("nccl", init_method=address, rank=rank, world_size=ranks)
    ours.init_process_group("nccl", timeout=120)
    group: Any = ours.group.WORLD
    comm = group.comm("cuda")

    def together() -> None:
        norch.cuda.synchronize()
        theirs.barrier()
        torch.cuda.synchronize()

    def slowest(seconds: float) -> float:
        found = torch.tensor([seconds], device="cuda", dtype=torch.float64)
        theirs.all_reduce(found, theirs.ReduceOp.MAX)
        return float(found.item())

    def device_seconds(call: Call, library: Any, calls: int) -> float:
        before, after = (library.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        for _ in range(calls):
            call()
        after.record()
        after.synchronize()
        return slowest(before.elapsed_time(after) / 1e3 / calls)

    def host_seconds(call: Call) -> float:
        together()
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        return slowest((time.perf_counter() - begun) / CALLS)

    def medians(calls: dict[str, Call], time_of: Callable[[str, Call], float]) -> dict[str, float]:
        for call in calls.values():
            for _ in range(5):
                call()
        found: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(ROUNDS):
            for name, call in calls.items():
                found[name].append(time_of(name, call))
        return {name: statistics.median(values) for name, values in found.items()}

    def unchecked(tensor: Any) -> None:
        groups.Options.check = False
        ours.all_reduce(tensor)
        groups.Options.check = True

    rows = []
    for size in SIZES:
        x, t = norch.zeros(size // 4, device="cuda"), torch.zeros(size // 4, device="cuda")
        x.fill_(rank + 1)
        t.fill_(rank + 1)
        ours.all_reduce(x)
        theirs.all_reduce(t)
        assert x[-1].item() == t[-1].item() == ranks * (ranks + 1) / 2
        x.zero_()
        t.zero_()
        calls = {
            "engine": lambda x=x: comm.all_reduce(x, "sum").chain(),
            "norch": lambda x=x: ours.all_reduce(x),
            "pytorch": lambda t=t: theirs.all_reduce(t),
        }
        count = max(20, min(100, (256 << 20) // size))

        def on_device(name: str, call: Call, count: int = count) -> float:
            together()
            return device_seconds(call, torch if name == "pytorch" else norch, count)

        seconds = medians(calls, on_device)
        row = {"bytes": size, "us": {name: round(value * 1e6, 2) for name, value in seconds.items()}}
        row["GB/s"] = {name: round(size / value / 1e9, 2) for name, value in seconds.items()}
        row["ratio"] = round(seconds["pytorch"] / seconds["norch"], 3)
        rows.append(row)
        if rank == 0:
            print(json.dumps(row), flush=True)
    x, t = norch.zeros(256, device="cuda"), torch.zeros(256, device="cuda")
    host = medians(
        {
            "engine": lambda: comm.all_reduce(x, "sum").chain(),
            "norch": lambda: ours.all_reduce(x),
            "norch unchecked": lambda: unchecked(x),
            "pytorch": lambda: theirs.all_reduce(t),
        },
        lambda name, call: host_seconds(call),
    )
    report = {
        "device": norch.cuda.get_device_name(), "ranks": ranks, "torch": torch.__version__,
        "nccl of PyTorch": ".".join(map(str, torch.cuda.nccl.version())), "host us": {}, "all_reduce float32": rows,
    }  # fmt: skip
    report["host us"] = {name: round(value * 1e6, 2) for name, value in host.items()}
    if rank == 0:
        print(json.dumps({key: value for key, value in report.items() if key != "all_reduce float32"}), flush=True)
        print(f"256 MiB: {rows[-1]['ratio']} of PyTorch's bandwidth (must be 0.9)")
        if json_path is not None:
            json_path.write_text(json.dumps(report, indent=2) + "\n")
    norch.cuda.synchronize()
    ours.destroy_process_group()
    theirs.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description="All-reduce of norch beside PyTorch's, on all GPUs of this machine.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if "RANK" in os.environ:
        measure(options.json)
        return 0
    import norch

    ranks = norch.cuda.device_count()
    if ranks < 2:
        print(f"this needs two GPUs, here are {ranks}")
        return 1
    return start(ranks, options.json)


if __name__ == "__main__":
    sys.exit(main())
