"""What DistributedDataParallel costs: a training step of several processes beside that of one, and beside PyTorch's.

    python benchmarks/ddp.py [--device cpu|cuda] [--ranks 2] [--rounds 3] [--json out.json]

On GPUs it trains GPT-2 of 124 million parameters by autocast to bfloat16, one process a GPU, on NCCL; on the CPU a
small GPT and an MLP in float32, one thread a process, norch on MPI and PyTorch on gloo. Processes of one library and
number run at a time, in turns; a figure is the best of the rounds, each the median of its steps, of the slowest
process.

"one": the step of one process alone. "step": with the gradients averaged. "no sync": without. "traffic": the reductions
of all buckets and nothing else. "speed": what all processes do in the time in which one does 1. "hidden": the part of
the traffic that the backward pass hides.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from trained_models import CONTEXT, VOCABULARY, gpt, mlp, norch_library, torch_library

MODELS = {"cpu": ("mlp", "gpt"), "cuda": ("gpt2",)}
STEPS = {"mlp": 60, "gpt": 12, "gpt2": 15}
BATCH = {"mlp": 256, "gpt": 16, "gpt2": 16}
GPT2 = {"layers": 12, "width": 768, "heads": 12, "context": 1024, "vocabulary": 50304, "tied": True}
COLUMNS = ("one", "step", "no sync", "traffic")


def build(name: str, lib: Any, batch: int) -> tuple[Any, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A model, and a batch for it."""
    rng = np.random.default_rng(0)
    if name == "mlp":
        return mlp(lib), rng.standard_normal((batch, 784), np.float32), rng.integers(0, 10, batch)
    options: dict[str, Any] = GPT2 if name == "gpt2" else {}
    context, vocabulary = options.get("context", CONTEXT), options.get("vocabulary", VOCABULARY)
    tokens = rng.integers(0, vocabulary, (batch, context + 1))
    return gpt(lib, **options), np.ascontiguousarray(tokens[:, :-1]), tokens[:, 1:].reshape(-1)


class Median:
    """The time of a call: the median of several, once the device has done all."""

    def __init__(self, wait: Callable[[], Any], meet: Callable[[], Any]) -> None:
        self.wait, self.meet = wait, meet

    def __call__(self, call: Callable[[], Any], steps: int) -> float:
        for _ in range(3):
            call()
        found = []
        for _ in range(3):  # some steps at a time, since waiting after each would cost a GPU its head start
            self.wait()
            self.meet()
            start = time.perf_counter()
            for _ in range(-(-steps // 3)):
                call()
            self.wait()
            found.append((time.perf_counter() - start) / -(-steps // 3))
        return statistics.median(found)


def measure(library: str, name: str, device: str, batch: int, cap: float | None) -> dict[str, float]:
    """Seconds, by column, of this process."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch: Any = __import__(library)
    place = f"cuda:{rank}" if device == "cuda" else "cpu"
    if device == "cuda":
        torch.cuda.set_device(rank)
    elif library == "torch":
        torch.set_num_threads(1)
    dist = __import__(f"{library}.distributed").distributed
    nn = torch.nn
    if ranks > 1:
        dist.init_process_group("nccl" if device == "cuda" else "gloo" if library == "torch" else "mpi")
    lib = torch_library(place) if library == "torch" else norch_library(place)
    model, *data = build(name, lib, batch)
    model = model.to(place)
    x, y = (lib.tensor(values) for values in data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    criterion = nn.CrossEntropyLoss()
    train = model
    if ranks > 1:
        ids = {"device_ids": [rank]} if device == "cuda" else {}
        if cap is not None:
            ids["bucket_cap_mb"] = cap
        train = nn.parallel.DistributedDataParallel(model, **ids)
    cast = torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda")

    def step() -> None:
        optimizer.zero_grad()
        with cast:
            loss = criterion(train(x), y)
        loss.backward()
        optimizer.step()

    def alone() -> None:
        with train.no_sync():
            step()

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    median = Median(wait, dist.barrier if ranks > 1 else lambda: None)
    if ranks == 1:
        return {"one": median(step, STEPS[name])}
    found = {"step": median(step, STEPS[name]), "no sync": median(alone, STEPS[name])}
    logged = train._get_ddp_logging_data()
    sizes = logged.get("rebuilt_bucket_sizes") or logged["bucket_sizes"]
    buckets = [torch.zeros(int(n) // 4, device=place) for n in sizes.split(", ")]

    def traffic() -> None:
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()

    found["traffic"] = median(traffic, STEPS[name])
    found["buckets"] = len(buckets)
    dist.destroy_process_group()
    return found


# --- Processes ------------------------------------------------------------------------------------------------------


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def run(library: str, name: str, device: str, ranks: int, options: list[str]) -> dict[str, float]:
    """What the slowest of the processes measured."""
    command = [sys.executable, __file__, "--measure", library, "--model", name, "--device", device, *options]
    env = os.environ | {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    if device == "cpu":
        env |= {"OMP_NUM_THREADS": "1", "NORCH_NUM_THREADS": "1"}
    if library == "norch" and device == "cpu" and ranks > 1:
        mpirun = shutil.which("mpirun") or "mpirun"
        env = {k: v for k, v in env.items() if k not in ("WORLD_SIZE", "LOCAL_WORLD_SIZE")}
        jobs = [subprocess.Popen([mpirun, "-n", str(ranks), *command], env=env, stdout=subprocess.PIPE, text=True)]
    else:
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        jobs = [
            subprocess.Popen(
                command, env=env | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, text=True
            )
            for r in range(ranks)
        ]
    lines = [line for job in jobs for line in job.communicate()[0].splitlines() if line.startswith("{")]
    if any(job.returncode for job in jobs) or len(lines) != ranks:
        raise SystemExit(f"{library}, {name}, {ranks} processes: failed")
    found = [json.loads(line) for line in lines]
    return {column: max(one[column] for one in found) for column in found[0]}


def row(name: str, library: str, ranks: int, found: dict[str, float]) -> dict[str, Any]:
    made: dict[str, Any] = {"model": name, "library": library, "ranks": ranks, **found}
    if "one" in found and "step" in found:
        made["speed"] = ranks * found["one"] / found["step"]
    if found.get("traffic"):
        made["hidden"] = 1 - (found["step"] - found["no sync"]) / found["traffic"]
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Time DistributedDataParallel.")
    add = parser.add_argument
    add("--device", default="cpu", choices=list(MODELS))
    add("--ranks", type=int, default=2)
    add("--rounds", type=int, default=3)
    add("--model", help="one of them only")
    add("--libraries", default="norch,torch")
    add("--batch", type=int)
    add("--cap", type=float, help="bucket_cap_mb; by default the library's own")
    add("--json", type=Path)
    add("--measure", metavar="LIBRARY", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        for name, mpi in (("RANK", "PMI_RANK"), ("WORLD_SIZE", "PMI_SIZE")):
            if name not in os.environ:
                os.environ[name] = os.environ[mpi]
        batch = args.batch or BATCH[args.model]
        sys.stdout.write(json.dumps(measure(args.measure, args.model, args.device, batch, args.cap)) + "\n")
        return 0
    libraries = args.libraries.split(",")
    if "torch" in libraries and subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        libraries.remove("torch")
    options = [part for key in ("batch", "cap") if (v := getattr(args, key)) for part in (f"--{key}", str(v))]
    rows = []
    for name in [args.model] if args.model else MODELS[args.device]:
        best: dict[str, dict[str, float]] = {library: {} for library in libraries}
        for _ in range(args.rounds):
            for library in libraries:
                for ranks in (1, args.ranks):
                    for column, value in run(library, name, args.device, ranks, options).items():
                        best[library][column] = min(best[library].get(column, value), value)
        rows += [row(name, library, args.ranks, best[library]) for library in libraries]
    print(f"{'model':6} {'library':8}" + "".join(f"{c + ' ms':>12}" for c in COLUMNS) + f"{'speed':>9}{'hidden':>9}")
    for one in rows:
        times = "".join(f"{1e3 * one[c]:12.2f}" if c in one else f"{'':12}" for c in COLUMNS)
        print(f"{one['model']:6} {one['library']:8}{times}{one.get('speed', 0):9.2f}{one.get('hidden', 0):9.0%}")
    if args.json:
        args.json.write_text(json.dumps({"device": args.device, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
