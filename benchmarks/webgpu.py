"""norch-webgpu beside norch-cuda and the CPU: bandwidths, products, the host's time of an op, a step of a tiny GPT.

Wanted on a GPU's Vulkan, of norch-cuda: 70 % of the bandwidth of copy and add, 50 % of softmax's and layer_norm's, 40 %
of the speed of float32 products, a step in 5 times its time; an op in 15 us of the host's; and the same random bits.

    python benchmarks/webgpu.py [--devices webgpu cuda cpu] [--quick] [--json out.json]
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cpu import commit, processor
from trained_models import gpt, norch_library, text

import norch

Call = Callable[[], object]


def seconds(device: str, call: Call, count: int) -> float:
    """The least that a call takes, of `count` in a row and the wait for the device."""
    wait = getattr(norch, device).synchronize if device != "cpu" else lambda: None
    taken = []
    for round in range(5):
        start = time.perf_counter()
        for _ in range(1 if round == 0 else count):
            call()
        wait()
        taken.append((time.perf_counter() - start) / count)
    return min(taken[1:])


def bandwidth(make: Callable[[str], tuple[Call, int]]) -> Callable[[str, bool], float]:
    """GB/s, from a call and the bytes that it moves at the least."""

    def measure(device: str, quick: bool) -> float:
        call, moved = make(device)
        return moved / seconds(device, call, 2 if quick or device == "cpu" else 40) / 1e9

    return measure


def of_elements(function: Callable[..., object], inputs: int, dtype: Any = norch.float32) -> Any:
    def make(device: str) -> tuple[Call, int]:
        given = [norch.ones(SIZE[0], device=device, dtype=dtype) for _ in range(inputs)]
        return lambda: function(*given), (inputs + 1) * SIZE[0] * dtype.itemsize

    return bandwidth(make)


def of_rows(function: Callable[..., object], length: int) -> Any:
    def make(device: str) -> tuple[Call, int]:
        x = norch.randn(max(SIZE[0] // length, 1), length, device=device)
        weight = norch.ones(length, device=device)
        return lambda: function(x, weight), 8 * x.numel()

    return bandwidth(make)


def product(dtype: Any) -> Callable[[str, bool], float]:
    def measure(device: str, quick: bool) -> float:
        n = 256 if quick else 4096
        x = norch.randn(n, n, device=device, dtype=dtype)
        return 2 * n**3 / seconds(device, lambda: x @ x, 1 if device == "cpu" else 5) / 1e12

    return measure


def host(device: str, quick: bool) -> float:
    """Microseconds until `x + y` of a few elements returns, in a row of a thousand."""
    x, y = norch.ones(8, 8, device=device), norch.ones(8, 8, device=device)
    best = math.inf
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(1000):
            x + y
        best = min(best, time.perf_counter() - start)
        x.sum().item()
    return best * 1e3


def read(device: str, quick: bool) -> float:
    x = norch.ones(8, device=device)
    return seconds(device, x.tolist, 100) * 1e6


def step(device: str, quick: bool) -> float:
    norch.manual_seed(0)
    lib = norch_library(device)
    model = gpt(lib).to(device)
    optimizer, criterion = lib.AdamW(model.parameters(), lr=0.001), lib.CrossEntropyLoss()
    x, y = (norch.tensor(part, device=device) for part in text(np.random.default_rng(0)))

    def call() -> None:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return seconds(device, call, 1 if quick or device == "cpu" else 10) * 1e3


def trained(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[str, bool], float]:
    """Milliseconds of a call with its gradients."""

    def measure(device: str, quick: bool) -> float:
        sizes = [(1, *shape[1:]) if quick else shape for shape in shapes]
        given = [norch.randn(*size, device=device, requires_grad=True) for size in sizes]
        return seconds(device, lambda: function(*given).sum().backward(), 1 if quick or device == "cpu" else 10) * 1e3

    return measure


def bits(device: str, quick: bool) -> float:
    """How many of some drawn numbers are not the CPU's."""
    drawn = []
    for where in (device, "cpu"):
        norch.manual_seed(7)
        found = norch.rand(1001, device=where), norch.randint(0, 10**6, (1001,), device=where)
        drawn.append([x.cpu().numpy() for x in found])
    return float(sum((a != b).sum() for a, b in zip(*drawn)))


SIZE, LENGTHS = [1 << 26], (1024, 4096, 50257)
# By row: its unit, how it is measured, and what is wanted: of norch-cuda's figure, or of itself.
ROWS: dict[str, tuple[str, Callable[[str, bool], float], str]] = {
    "copy": ("GB/s", of_elements(lambda x: x.clone(), 1), ">= 70 %"),
    "add": ("GB/s", of_elements(lambda x, y: x + y, 2), ">= 70 %"),
    "add, float16": ("GB/s", of_elements(lambda x, y: x + y, 2, norch.float16), ""),
    "exp": ("GB/s", of_elements(norch.exp, 1), ""),
    **{f"softmax, rows of {n}": ("GB/s", of_rows(lambda x, w: x.softmax(1), n), ">= 50 %") for n in LENGTHS},
    **{
        f"layer_norm, rows of {n}": ("GB/s", of_rows(lambda x, w: norch.layer_norm(x, w.shape, w, w), n), ">= 50 %")
        for n in LENGTHS
    },
    "matmul of 4096": ("TFLOP/s", product(norch.float32), ">= 40 %"),
    "matmul of 4096, float16": ("TFLOP/s", product(norch.float16), ""),
    "conv2d of 3x3, 64 channels, with gradients": (
        "ms", trained(lambda x, w: norch.conv2d(x, w, padding=1), (32, 64, 56, 56), (64, 64, 3, 3)), ""),
    "attention, causal, with gradients": (
        "ms", trained(lambda *x: norch.scaled_dot_product_attention(*x, is_causal=True), *[(8, 12, 512, 64)] * 3), ""),
    "the host's time of an op": ("us", host, "<= 15 us"),
    "reading 8 numbers": ("us", read, ""),
    "a step of a tiny GPT": ("ms", step, "<= 500 %"),
    "random numbers unlike the CPU's": ("", bits, "<= 0"),
}  # fmt: skip


def surroundings() -> dict[str, Any]:
    packages = ("norch-core", "norch-webgpu", "norch-cuda", "norch-cpu", "wgpu", "numpy")
    versions = {"python": platform.python_version()}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    found = {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "commit": commit()}
    return {**found, "cpu": processor(), "versions": versions}


def main() -> None:
    parser = argparse.ArgumentParser(description="norch-webgpu beside norch-cuda and the CPU.")
    parser.add_argument("--devices", nargs="+", default=["webgpu", "cuda", "cpu"])
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        SIZE[0] = 1 << 18
    devices = [device for device in options.devices if is_fast(device)]
    report: dict[str, Any] = surroundings()
    if "webgpu" in devices:
        properties = norch.webgpu.get_device_properties()
        report["adapter"] = {key: properties[key] for key in ("name", "api", "driver", "type", "features")}
    print(f"{report.get('adapter')}, {report['cpu']}, {report['versions']}\n")
    print(f"| | {' | '.join(devices)} | unit | webgpu of cuda | wanted |")
    print(f"|---{'|---:' * len(devices)}|---|---:|---|", flush=True)
    report["rows"] = {}
    for name, (unit, measure, wanted) in ROWS.items():
        row = {device: measure(device, options.quick) for device in devices}
        report["rows"][name] = {"unit": unit, "wanted": wanted, **row}
        share = f"{row['webgpu'] / row['cuda']:.0%}" if row.get("cuda") and "webgpu" in row else ""
        figures = " | ".join(f"{row[device]:.4g}" for device in devices)
        print(f"| {name} | {figures} | {unit} | {share} | {wanted} |", flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=2) + "\n")


def is_fast(device: str) -> bool:
    """Whether there is such a device, other than norch's NumPy reference, which would take minutes."""
    there = device == "cpu" or getattr(norch, device).is_available()
    return there and not type(norch.device(device).backend).__module__.startswith("norch.")


if __name__ == "__main__":
    main()
