"""Convolutions and networks on images on a GPU, beside eager PyTorch: each row names the precision and the layout.

The convolutions are timed forward and backward, the networks by the step of training with SGD; a figure is the best of
the rounds. "captured" is the same step through `norch.capture`. What is compared is the loss after a few steps. The
networks are trained with `cudnn.benchmark` on, in both libraries; a convolution alone has what the heuristics choose.

    python benchmarks/cuda_images.py [--only PATTERN] [--layouts NHWC,NCHW] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from image_models import resnet18, unet

import norch
import norch.nn

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

DEVICE, ROUNDS = "cuda", 5

CONVOLUTIONS = {
    "conv 3x3 64 to 64, 32 px": ((256, 64, 32, 32), (64, 64, 3, 3), 1),
    "conv 3x3 256 to 256, 8 px": ((256, 256, 8, 8), (256, 256, 3, 3), 1),
    "conv 1x1 128 to 512, 16 px": ((256, 128, 16, 16), (512, 128, 1, 1), 0),
}
NETWORKS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "ResNet-18, 32 px, batch 256": (resnet18, (256, 3, 32, 32), (256,)),
    "U-Net, 64 px, batch 32": (unet, (32, 3, 64, 64), (32, 64, 64)),
}
MUST = {
    ("ResNet-18, 32 px, batch 256", "bf16"): "42k images/s",
    ("ResNet-18, 32 px, batch 256", "tf32"): "34k images/s",
    ("U-Net, 64 px, batch 32", "bf16"): "3.5 ms",
    ("U-Net, 64 px, batch 32", "tf32"): "5.0 ms",
}


def set_precision(name: str) -> None:
    for lib in LIBRARIES.values():
        lib.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        lib.backends.cudnn.allow_tf32 = name == "tf32"


LIBRARIES: dict[str, Any] = {"norch": norch} | ({"torch": torch} if torch is not None else {})


def synchronize() -> None:
    for lib in LIBRARIES.values():
        lib.cuda.synchronize()


def milliseconds(calls: dict[str, Callable[[], object]], count: int) -> dict[str, float]:
    """Of each call, in turn."""
    best = dict.fromkeys(calls, float("inf"))
    for call in calls.values():
        for _ in range(5):
            call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            synchronize()
            start = time.perf_counter()
            for _ in range(count):
                call()
            synchronize()
            best[name] = min(best[name], (time.perf_counter() - start) / count * 1e3)
    return best


def convolution(lib: Any, shape: tuple[int, ...], weight: tuple[int, ...], pad: int, half: bool, last: bool) -> Any:
    dtype = lib.bfloat16 if half else lib.float32
    form = lib.channels_last if last else lib.contiguous_format
    x, w = (lib.randn(*s, device=DEVICE).to(dtype).contiguous(memory_format=form) for s in (shape, weight))
    g = lib.randn(shape[0], weight[0], *shape[2:], device=DEVICE).to(dtype).contiguous(memory_format=form)
    x.requires_grad_(), w.requires_grad_()

    def call() -> None:
        x.grad = w.grad = None
        lib.nn.functional.conv2d(x, w, None, 1, pad).backward(g)

    return call


def step(lib: Any, name: str, half: bool, last: bool) -> Callable[[], Any]:
    model, shape, labels = NETWORKS[name]
    lib.manual_seed(0)
    rng = np.random.default_rng(0)
    images = lib.tensor(rng.standard_normal(shape, np.float32)).to(DEVICE)
    wanted = lib.tensor(rng.integers(0, 2, labels)).to(DEVICE)
    net = model(lib).to(DEVICE)
    if last:
        net, images = net.to(memory_format=lib.channels_last), images.contiguous(memory_format=lib.channels_last)
    loss_fn = lib.nn.CrossEntropyLoss()
    optimizer = lib.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def call() -> Any:
        optimizer.zero_grad()
        with lib.autocast(DEVICE, dtype=lib.bfloat16, enabled=half):
            loss = loss_fn(net(images), wanted)
        loss.backward()
        optimizer.step()
        return loss

    return call


def measure(name: str, precision: str, last: bool) -> dict[str, float]:
    """TFLOP/s of a convolution, milliseconds of a network's step."""
    set_precision(precision)
    for lib in LIBRARIES.values():
        lib.backends.cudnn.benchmark = name in NETWORKS
    half = precision == "bf16"
    if name in CONVOLUTIONS:
        shape, weight, pad = CONVOLUTIONS[name]
        calls = {kind: convolution(lib, shape, weight, pad, half, last) for kind, lib in LIBRARIES.items()}
        work = 6 * shape[0] * shape[2] * shape[3] * int(np.prod(weight))
        return {kind: work / ms / 1e9 for kind, ms in milliseconds(calls, 20).items()}
    calls = {kind: step(lib, name, half, last) for kind, lib in LIBRARIES.items()}
    calls["captured"] = norch.capture(step(norch, name, half, last))
    return milliseconds(calls, 10)


def main() -> int:
    parser = argparse.ArgumentParser(description="Convolutions and networks on images on a GPU, beside PyTorch.")
    parser.add_argument("--only", metavar="PATTERN", default="", help="the rows whose name or precision it finds")
    parser.add_argument("--layouts", default="NHWC,NCHW")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    print(f"{norch.cuda.get_device_name()}; norch with {norch.cuda.uses()}")
    print(f"{'':<30}{'precision':<11}{'unit':<9}{'norch':>8}{'captured':>10}{'torch':>8}   must reach")
    rows = []
    for name in [*CONVOLUTIONS, *NETWORKS]:
        for precision in ("bf16", "tf32", "float32"):
            for layout in options.layouts.split(","):
                if not re.search(options.only, f"{name} {precision}", re.I):
                    continue
                found = measure(name, precision, layout == "NHWC")
                is_convolution = name in CONVOLUTIONS
                unit = "TFLOP/s" if is_convolution else "ms"
                must = "0.97 of PyTorch's" if is_convolution else MUST.get((name, precision), "")
                cells = [f"{found[kind]:.1f}" if kind in found else "-" for kind in ("norch", "captured", "torch")]
                shown = f"{precision} {layout}"
                print(f"{name:<30}{shown:<11}{unit:<9}{cells[0]:>8}{cells[1]:>10}{cells[2]:>8}   {must}", flush=True)
                rows.append({"name": name, "precision": precision, "layout": layout, "unit": unit, **found})
                for lib in LIBRARIES.values():
                    lib.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps({"device": norch.cuda.get_device_name(), "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
