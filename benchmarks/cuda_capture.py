"""What `norch.capture` and fused programs gain on a GPU.

Training steps eager and captured, whose losses are compared bit for bit before anything is timed: of the same batch
each time, and of a new one (tensors with other memory). `host` is how long the host takes for a captured call, the
device following. Then elementwise chains: kernel by kernel, and as one fused program, in useful bytes.

    python benchmarks/cuda_capture.py [--only PATTERN] [--rounds 9] [--torch] [--json out.json]
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from trained_models import BATCH, IMAGE, article, classes, cnn, gpt, mlp, norch_library, text, torch_library

import norch
from norch.backend import Operand

DEVICE = "cuda"

MODELS: dict[str, tuple[Any, str, Any, Any]] = {
    "article": (
        article,
        "MSELoss",
        lambda lib, params: lib.SGD(params, lr=0.001),
        lambda rng: (rng.random((1, 1), np.float32), rng.random((1, 1), np.float32)),
    ),
    "MLP, batch 64": (
        mlp,
        "CrossEntropyLoss",
        lambda lib, params: lib.SGD(params, lr=0.01, momentum=0.9),
        lambda rng: classes(rng, 64, 784),
    ),
    "CNN, batch 256": (
        cnn,
        "CrossEntropyLoss",
        lambda lib, params: lib.Adam(params, lr=0.001),
        lambda rng: classes(rng, 256, 1, IMAGE, IMAGE),
    ),
    f"GPT 4x128, batch {BATCH}": (gpt, "CrossEntropyLoss", lambda lib, params: lib.AdamW(params, lr=0.001), text),
}


def make_step(name: str, lib: Any) -> Callable[[Any, Any], Any]:
    model, loss, optimizer, _ = MODELS[name]
    norch.manual_seed(0)
    net = model(lib).to(DEVICE)
    loss_fn, steps = getattr(lib, loss)(), optimizer(lib, list(net.parameters()))

    def step(x: Any, y: Any) -> Any:
        steps.zero_grad()
        value = loss_fn(net(x), y)
        value.backward()
        steps.step()
        return value

    return step


def median(call: Callable[[], object], rounds: int, count: int, waits: bool = True) -> float:
    """Microseconds a call takes: host and device together or, where it does not wait, the host alone."""
    taken = []
    for _ in range(rounds):
        norch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        if waits:
            norch.cuda.synchronize()
        taken.append((time.perf_counter() - start) / count * 1e6)
    norch.cuda.synchronize()
    return statistics.median(taken)


def measure_step(name: str, rounds: int) -> dict[str, Any]:
    lib, rng = norch_library(DEVICE), np.random.default_rng(0)
    batches = [[lib.tensor(a) for a in MODELS[name][3](rng)] for _ in range(4)]
    turn = itertools.cycle(batches)
    eager, captured = make_step(name, lib), norch.capture(make_step(name, lib))
    expected = [eager(*batches[i % 4]) for i in range(12)]
    start = time.perf_counter()
    found = [captured(*batches[i % 4]) for i in range(12)]
    norch.cuda.synchronize()
    first = time.perf_counter() - start
    out: dict[str, Any] = {
        "same bits": [x.item() for x in found] == [x.item() for x in expected],
        "12 calls, ms": first * 1e3,
    }
    calls: dict[str, Callable[[], object]] = {
        "eager": lambda: eager(*batches[0]),
        "captured": lambda: captured(*batches[0]),
        "other batches": lambda: captured(*next(turn)),
    }
    for kind, call in calls.items():
        out[kind] = median(call, rounds, 100)
    out["host"] = median(calls["other batches"], rounds, 20, waits=False)
    kept: list[Any] = []
    out["results kept"] = median(lambda: kept.append(captured(*batches[0])), rounds, 50)
    for entry in captured.entries.values():
        out["refused"] = entry.refusal
        for program, _ in entry.programs:
            runs = [run for run, group, _ in program.parts if group]
            out["calls"] = len(program.calls)
            out["fused"] = sum(call.op == "fused" for call in program.calls)
            out["graph"] = [(getattr(run, "recorded", None), getattr(run, "changed", None)) for run in runs]
    return out


def torch_step(name: str, rounds: int) -> float:
    """Microseconds of PyTorch's CUDA graph of the same step."""
    import torch

    lib = torch_library(DEVICE)
    x, y = (lib.tensor(a) for a in MODELS[name][3](np.random.default_rng(0)))
    model, loss, optimizer, _ = MODELS[name]
    net = model(lib).to(DEVICE)
    loss_fn = getattr(lib, loss)()
    steps = optimizer(lib, list(net.parameters()))
    for group in steps.param_groups:
        if "capturable" in group:
            group["capturable"] = True

    def step() -> None:
        steps.zero_grad(set_to_none=True)
        loss_fn(net(x), y).backward()
        steps.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    torch.cuda.synchronize()

    def replays() -> None:
        for _ in range(100):
            graph.replay()
        torch.cuda.synchronize()

    return median(replays, rounds, 1) / 100


CHAINS = {
    "x*sigmoid(1.7x)+x": ("mul float32 o1 o2;sigmoid float32 s0;mul float32 o1 s1;add float32 s2 o1", (1.7,)),
    "gelu(x*a+b)": ("mul float32 o1 o2;add float32 s0 o3;gelu float32 s1 approximate=none", (1.25, 0.5)),
    "relu(x+x)*a": ("add float32 o1 o1;relu float32 s0;mul float32 s1 o2", (1.25,)),
    "x+x, one step": ("add float32 o1 o1", ()),
}
EAGER: dict[str, Callable[[Any], Any]] = {
    "x*sigmoid(1.7x)+x": lambda x: x * (x * 1.7).sigmoid() + x,
    "gelu(x*a+b)": lambda x: norch.nn.functional.gelu(x * 1.25 + 0.5),
    "relu(x+x)*a": lambda x: (x + x).relu() * 1.25,
    "x+x, one step": lambda x: x + x,
}


def device_seconds(call: Callable[[], object], rounds: int, count: int) -> float:
    start, end = norch.cuda.Event(enable_timing=True), norch.cuda.Event(enable_timing=True)
    taken = []
    for _ in range(rounds + 1):
        start.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        taken.append(start.elapsed_time(end) / count / 1e3)
    return statistics.median(taken[1:])


def measure_chain(name: str, n: int, dtype: Any, rounds: int) -> dict[str, float]:
    """TB/s of useful bytes."""
    steps, numbers = CHAINS[name]
    backend = norch.device(DEVICE).backend
    vector, number = Operand(dtype, (n,), (1,)), Operand(dtype, (), (), True)
    count = max(2, (1 << 27) // n)
    x, out = norch.randn(n, device=DEVICE).to(dtype), norch.empty(n, device=DEVICE, dtype=dtype)
    useful = 2 * n * dtype.itemsize / 1e12
    found = {"eager": useful / device_seconds(lambda: EAGER[name](x), rounds, count)}
    steps = steps.replace("float32", dtype.name)
    attrs = {"steps": steps, "results": (steps.count(";"),)}
    kernel = backend.compile("fused", (vector, vector, *[number] * len(numbers)), attrs)
    if kernel is not None:
        found["fused"] = useful / device_seconds(lambda: kernel(out.buffer, 0, x.buffer, 0, *numbers), rounds, count)
    found["copy"] = useful / device_seconds(lambda: out.copy_(x), rounds, count)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="What norch.capture and fused programs gain on a GPU.")
    parser.add_argument("--only", metavar="PATTERN", default="", help="chains and steps whose name it finds")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--torch", action="store_true", help="PyTorch's CUDA graphs too")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {"device": norch.cuda.get_device_name(), "steps": {}, "chains": {}}
    lines = [f"{'chain, TB/s':<36}eager   fused    copy"]
    for name in [name for name in CHAINS if re.search(options.only, name)]:
        for n, dtype in ((1 << 28, norch.float32), (1 << 20, norch.float32), (1 << 28, norch.bfloat16)):
            row = measure_chain(name, n, dtype, options.rounds)
            report["chains"][f"{name} {n} {dtype.name}"] = row
            shown = "".join(f"{row.get(kind, 0):8.3f}" for kind in ("eager", "fused", "copy"))
            lines.append(f"{name:<20}{n >> 20:>5}M {dtype.name:<9}{shown}")
    lines.append(f"{'step, us':<22}eager captured   other    host  kept   torch  bits  calls (fused) graphs")
    for name in [name for name in MODELS if re.search(options.only, name)]:
        step = measure_step(name, options.rounds)
        if options.torch:
            step["torch"] = torch_step(name, options.rounds)
        report["steps"][name] = step
        kinds = ("eager", "captured", "other batches", "host", "results kept", "torch")
        shown = "".join(f"{step.get(kind, 0):8.1f}" for kind in kinds)
        told = f"{step['same bits']}  {step.get('calls')} ({step.get('fused')}) {step.get('graph')}"
        told += f" {step.get('refused') or ''}"
        lines.append(f"{name:<20}{shown}  {told}")
    print("\n".join(lines), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
