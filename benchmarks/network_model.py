"""What a network makes of a step of training, by latency and bandwidth: measured at 2 and 4, reckoned for up to 1,024.

    python benchmarks/network_model.py                  # the tables of docs/distributed.md
    python benchmarks/network_model.py --measure NAME   # all-reduce over MPI here, into results/network.json

Of p workers an all-reduce of n bytes takes o + log2(p) a + 2 (p - 1) / p n b: o is what the call costs, a what a
message does and b what a byte does (Thakur, Rabenseifner and Gropp, 2005; Hockney's model). o is measured with 1
process, a and b are fitted to 2; more processes are predicted from them and compared. Those that share a core wait for
their turn, which no model of a network knows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from timing import Others

RESULTS = Path(__file__).parent / "results" / "network.json"
SIZES = [4, 4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20]
TRIES, STARTS, ROUNDS = 8, 3, 25

# --- Measured -------------------------------------------------------------------------------------------------------


def measure_here() -> None:
    """In each process: seconds of the slowest one, by size and round, printed by rank 0."""
    import norch
    import norch.distributed as dist

    dist.init_process_group("mpi")
    tensors = {n: norch.zeros(n // 4) for n in SIZES}
    slowest = norch.zeros(1, dtype=norch.float64)
    times: dict[int, list[float]] = {n: [] for n in SIZES}
    for turn in range(ROUNDS + 2):
        order = SIZES[turn % len(SIZES) :] + SIZES[: turn % len(SIZES)]
        for n in order:
            tensor = tensors[n]
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(tensor)
            slowest.fill_(time.perf_counter() - begin)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if turn >= 2:
                times[n].append(slowest.item())
    if dist.get_rank() == 0:
        print(json.dumps(times))
    dist.destroy_process_group()


def measured(ranks: list[int]) -> dict[str, Any]:
    """Each number of processes in turn; of all starts the quietest, by the part of the processors that others took."""
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise SystemExit("no mpirun: pip install norch-nn[mpi]")
    starts: dict[int, list[tuple[float, dict[str, list[float]]]]] = {p: [] for p in ranks}
    for _ in range(TRIES):
        for p, found in starts.items():
            others = Others()
            command = [mpirun, "-n", str(p), sys.executable, __file__, "--here"]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
            found.append((others.share() or 0.0, json.loads(done.stdout)))
    quiet = {p: sorted(found, key=lambda start: start[0])[:STARTS] for p, found in starts.items()}
    rows = []
    for n in SIZES:
        row: dict[str, Any] = {"bytes": n}
        for p, kept in quiet.items():
            low, middle, high = quantiles([t * 1e6 for _, times in kept for t in times[str(n)]], n=4)
            row[str(p)] = {"us": round(middle, 2), "quartiles": [round(low, 2), round(high, 2)]}
        rows.append(row)
    about = {
        "date": time.strftime("%Y-%m-%d"), "cores": len(os.sched_getaffinity(0)), "python": platform.python_version(),
        "rounds": STARTS * ROUNDS, "others": [round(max(share for share, _ in kept), 3) for kept in quiet.values()],
    }  # fmt: skip
    return {"about": about, "all_reduce": rows}


def fitted(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """o, what a call costs with nobody to talk to, and a and b, for which o + a + n b is nearest to what 2 processes
    took, each size counting alike; all in microseconds."""
    import numpy as np

    o = float(rows[0]["1"]["us"])
    t = np.array([row["2"]["us"] for row in rows])
    parts = np.array([[1.0, row["bytes"]] for row in rows]) / t[:, None]
    (a, b), *_ = np.linalg.lstsq(parts, 1 - o / t, rcond=None)
    return o, float(a), float(b)


def predicted(p: int, n: float, o: float, a: float, b: float) -> float:
    return o + (p - 1).bit_length() * a + 2 * (p - 1) / p * n * b


# --- Reckoned -------------------------------------------------------------------------------------------------------


class Link(NamedTuple):
    """name; GB/s in one direction, of each worker; us of a step between two hosts; how many workers a host has."""

    name: str
    bandwidth: float
    latency: float
    host: int

    def has(self, p: int) -> bool:
        return self.latency > 0 or p <= self.host

    def ring(self, p: int) -> float:
        """Seconds of latency, once around."""
        hosts = -(-p // self.host)
        return ((hosts - 1) * self.latency + (p - hosts) * INSIDE) * 1e-6

    def tree(self, p: int) -> float:
        """Seconds of latency, from the leaves to the root."""
        hosts = -(-p // self.host)
        return ((hosts - 1).bit_length() * self.latency + (min(p, self.host) - 1) * INSIDE) * 1e-6


INSIDE = 3.4
"""us of a step over NVLink, between the workers of a host."""

LINKS = [
    Link("10 GbE, TCP", 1.25, 50.0, 1),
    Link("100 GbE, RDMA", 12.5, 14.0, 8),
    Link("InfiniBand NDR", 50.0, 14.0, 8),
    Link("NVLink 4", 450.0, 0.0, 8),
]
"""Bandwidths are nominal: IEEE 802.3ae and 802.3ba, NDR of InfiniBand's roadmap (400 Gb/s), each worker with a port of
its own, and half of the 900 GB/s of the H200's data sheet, which counts both directions. Latencies: those of NCCL's own
model for a step at full bandwidth (src/graph/tuning.cc, Ring, Simple: 14.0 us over a network, 3.4 over NVLink), and
50 us between two kernels for TCP. On TCP a host has one worker, else 8 joined by NVLink."""


class Model(NamedTuple):
    name: str
    parameters: float
    layers: int


MODELS = [Model("GPT-2, 124M", 124e6, 12), Model("GPT-2 XL, 1.5B", 1.56e9, 48), Model("Llama 3, 8B", 8.03e9, 32)]
WORKERS = (8, 64, 1024)
TOKENS = 16_384  # of a worker and step
SPEED = 0.4 * 989e12  # FLOP/s: 40% of an H200's bfloat16
BUCKET = 25e6  # bytes, as DistributedDataParallel has by default
BYTES = 2  # of a gradient or a parameter that is sent: bfloat16


def all_reduce(n: float, p: int, link: Link) -> float:
    """Seconds: around a ring twice, or up and down a tree where the latency of that is less."""
    return 2 * min(link.ring(p), link.tree(p)) + 2 * (p - 1) / p * n / (link.bandwidth * 1e9)


def all_gather(n: float, p: int, link: Link) -> float:
    """Seconds, of n bytes in all, around a ring; a reduce_scatter takes as long."""
    return link.ring(p) + (p - 1) / p * n / (link.bandwidth * 1e9)


def efficiency(model: Model, p: int, link: Link, how: str) -> float:
    """Of perfect scaling the part that is left, where communication goes on while there is something to compute.

    Backward takes twice as long as forward. What arrives last is waited for, as are ZeRO-1's parameters after a step.
    """
    n = model.parameters * BYTES
    forward = 2 * model.parameters * TOKENS / SPEED
    backward = 2 * forward
    if how == "ZeRO-3":
        unit = n / model.layers
        gather = all_gather(unit, p, link)
        first = max(forward + gather, model.layers * gather + forward / model.layers)
        both = 2 * model.layers * gather
        second = max(backward + 2 * gather, both + backward / model.layers)
        return (forward + backward) / (first + second)
    buckets = max(1, round(n / BUCKET))
    one = all_reduce(n / buckets, p, link)
    rest = buckets * all_gather(n / buckets, p, link) if how == "ZeRO-1" else 0.0
    return (forward + backward) / (forward + max(backward + one, backward / buckets + buckets * one) + rest)


def memory(model: Model, p: int, how: str) -> float:
    """GB of a worker for weights and gradients in bfloat16 and Adam's state in float32 (Rajbhandari et al., 2020)."""
    bytes_ = {"DDP": 16.0, "ZeRO-1": 4 + 12 / p, "ZeRO-3": 16 / p}[how]
    return model.parameters * bytes_ / 1e9


# --- Printed --------------------------------------------------------------------------------------------------------


def amount(n: float) -> str:
    for unit, size in (("MB", 1 << 20), ("KB", 1 << 10)):
        if n >= size:
            return f"{n / size:g} {unit}"
    return f"{n:g} B"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def checked(name: str, result: dict[str, Any]) -> str:
    """What was measured beside what the model makes of the times of 2 processes."""
    cores, rows = result["about"]["cores"], result["all_reduce"]
    o, a, b = fitted(rows)
    others = [int(p) for p in rows[0] if p not in ("bytes", "1", "2")]
    lines = []
    for row in rows:
        n, found = row["bytes"], row["2"]
        low, high = found["quartiles"]
        cells = [amount(n), f"{found['us']:.1f} ({low:.1f} to {high:.1f})", f"{predicted(2, n, o, a, b):.1f}"]
        for p in others:
            guess = predicted(p, n, o, a, b)
            low, high = row[str(p)]["quartiles"]
            cells += [f"{row[str(p)]['us']:.1f} ({low:.1f} to {high:.1f})", f"{guess:.1f}"]
            cells.append(f"{row[str(p)]['us'] / guess:.2f}")
        lines.append(cells)
    head = [name, "2: us (quartiles)", "fitted"]
    for p in others:
        head += [f"{p}{' on ' + str(cores) + ' cores' if p > cores else ''}: us (quartiles)", "predicted", "ratio"]
    return f"o = {o:.1f} us, a = {a:.1f} us, b = {b * 1e3:.3f} us/KB ({1e-3 / b:.1f} GB/s)\n\n" + table(head, lines)


def text(results: dict[str, Any]) -> str:
    parts = [checked(name, result) for name, result in results.items()]
    parts.append(
        table(
            ["25 MB, ms", *(f"{p:,} workers" for p in WORKERS)],
            [
                [link.name, *(f"{all_reduce(BUCKET, p, link) * 1e3:.2f}" if link.has(p) else "" for p in WORKERS)]
                for link in LINKS
            ],
        )
    )
    kinds = ("DDP", "ZeRO-1", "ZeRO-3")
    scaled = []
    for model in MODELS:
        for how in kinds:
            cells = [f"{model.name}: {how}", " / ".join(f"{memory(model, p, how):.3g}" for p in WORKERS)]
            for link in LINKS:
                shares = [f"{efficiency(model, p, link, how):.0%}" if link.has(p) else "" for p in WORKERS]
                cells.append(" / ".join(share for share in shares if share))
            scaled.append(cells)
    parts.append(table(["", "GB a worker", *(link.name for link in LINKS)], scaled))
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", metavar="NAME", help="this machine's name in the results")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return measure_here()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    if options.measure:
        results[options.measure] = measured(options.ranks)
        options.results.write_text(json.dumps(results, indent=1) + "\n")
    print(text(results), end="")
    return None


if __name__ == "__main__":
    main()
