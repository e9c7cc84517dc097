"""Attention on a GPU in bfloat16, causal, beside PyTorch: TFLOP/s forward, and forward with backward.

norch's by its own kernels, PyTorch's by the fastest of its ways (cuDNN, FlashAttention-2). Half of a causal product
counts. Results are compared first; a figure is the best of the rounds.

    python benchmarks/cuda_attention.py [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import norch
import norch.nn

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

DEVICE, ROUNDS, COUNT = "cuda", 5, 5
SHAPES = ((4, 16, 4096, 64), (16, 12, 1024, 64), (4, 16, 4096, 128))  # batch, heads, length, size of a head


def seconds(lib: Any, call: Callable[[], Any]) -> float:
    """On the device, of one call."""
    start, end = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
    best = math.inf
    for _ in range(ROUNDS):
        start.record()
        for _ in range(COUNT):
            call()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / COUNT / 1e3)
    return best


def measure(lib: Any, given: list[Any]) -> tuple[dict[str, float], list[Any]]:
    """TFLOP/s by way, and what was computed: the result and the gradients."""
    q, k, v, g = (lib.from_numpy(x).to(DEVICE).to(lib.bfloat16) for x in given)
    for x in (q, k, v):
        x.requires_grad_()

    def forward() -> Any:
        return lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both() -> None:
        q.grad = k.grad = v.grad = None
        forward().backward(g)

    b, h, n, d = given[0].shape
    work = 2 * b * h * n * n * d / 1e12
    both()
    results = [x.detach().float().cpu().numpy() for x in (forward(), q.grad, k.grad, v.grad)]
    with lib.no_grad():
        found = {"forward": work / seconds(lib, forward)}
    return found | {"both": 3.5 * work / seconds(lib, both)}, results


def torch_ways() -> list[Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return [sdpa_kernel(way) for way in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Attention on a GPU, beside PyTorch.")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    rows = []
    print(f"{'bf16, causal, TFLOP/s':<28}{'norch':>9}{'torch':>9}")
    for shape in SHAPES:
        norch.manual_seed(0)
        given = [norch.randn(*shape).numpy() for _ in range(4)]
        found: dict[str, dict[str, float]] = {}
        expected = None
        for way in torch_ways() if torch is not None else ():
            try:
                with way:
                    rates, expected = measure(torch, given)
            except RuntimeError as error:  # this PyTorch lacks that way
                print(f"torch: {error}"[:200], file=sys.stderr)
                continue
            best = found.setdefault("torch", rates)
            found["torch"] = {key: max(best[key], rate) for key, rate in rates.items()}
        found["norch"], results = measure(norch, given)
        for got, wanted in zip(results, expected or results, strict=True):
            worst = abs(got - wanted).max() / abs(wanted).max()
            if not worst < 0.03:
                sys.exit(f"{shape}: results differ by {worst:.1e}")
        name = "x".join(map(str, shape))
        for key in ("forward", "both"):
            row = {kind: rates[key] for kind, rates in found.items()}
            rows.append({"name": name, "precision": "bf16", "way": key, **row})
            shown = "".join(f"{row.get(kind, math.nan):>9.0f}" for kind in ("norch", "torch"))
            print(f"{name + ', ' + key:<28}{shown}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"device": norch.cuda.get_device_name(), "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
