"""A training step of an LSTM of two layers of 512 on 32 sequences of 64, beside PyTorch: milliseconds.

norch's by its own kernels, eager; "captured" by norch.capture. The losses of some steps are compared first. Both
libraries compute in IEEE float32, then both in tf32.

    python benchmarks/cuda_rnn.py [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import norch
import norch.nn
import norch.optim

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

DEVICE, ROUNDS, COUNT = "cuda", 5, 20
LAYERS, SIZE, BATCH, LENGTH = 2, 512, 32, 64


def make_step(lib: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    net = lib.nn.LSTM(SIZE, SIZE, LAYERS, batch_first=True).to(DEVICE)
    with lib.no_grad():
        for p in net.parameters():
            p.copy_(lib.from_numpy(rng.uniform(-0.04, 0.04, tuple(p.shape)).astype(np.float32)))
    x, wanted = (lib.from_numpy(rng.standard_normal((BATCH, LENGTH, SIZE), np.float32)).to(DEVICE) for _ in range(2))
    optimizer = lib.optim.SGD(net.parameters(), lr=0.1)

    def step() -> Any:
        optimizer.zero_grad()
        loss = ((net(x)[0] - wanted) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def milliseconds(lib: Any, call: Callable[[], Any]) -> float:
    best = math.inf
    for _ in range(ROUNDS):
        lib.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(COUNT):
            call()
        lib.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / COUNT * 1e3)
    return best


def measure(tf32: bool) -> dict[str, float]:
    libraries: dict[str, Any] = {"norch": norch} | ({"torch": torch} if torch is not None else {})
    for lib in libraries.values():
        lib.set_float32_matmul_precision("high" if tf32 else "highest")
        lib.backends.cudnn.allow_tf32 = tf32
    found: dict[str, float] = {}
    expected: list[float] = []
    for kind in ["norch", "captured"] + ["torch"] * (torch is not None):
        lib = libraries["torch" if kind == "torch" else "norch"]
        step = make_step(lib)
        if kind == "captured":
            step = norch.capture(step)
        losses = [float(step().item()) for _ in range(6)]
        expected = expected or losses
        if not np.allclose(losses, expected, 1e-3 if tf32 else 1e-5):
            sys.exit(f"{kind}: losses {losses} are not {expected}")
        found[kind] = milliseconds(lib, step)
        print(f"{'tf32' if tf32 else 'float32':<10}{kind:<10}{found[kind]:8.2f} ms", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="An LSTM on a GPU, beside PyTorch.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    report = {"device": norch.cuda.get_device_name(), "float32": measure(False), "tf32": measure(True)}
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
