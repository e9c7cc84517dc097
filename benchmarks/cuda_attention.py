"""Attention on a GPU, forward and with its gradient, beside PyTorch's with cuDNN's and FlashAttention's kernels.

TFLOP/s of the products that the definition has, two forward and five backward, half of each where it is causal; by the
device's own events, the median of the rounds, all in turn in one run. The gradients are compared before.

    python benchmarks/cuda_attention.py [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import norch

try:
    import torch
except ImportError:
    torch = None

SHAPES = [(4, 16, 4096, 64), (16, 12, 1024, 64), (4, 16, 4096, 128)]
"""Batch, heads, length, size of a head."""

DTYPE = "bfloat16"
TOLERANCE = 2e-2  # of the norm
ROUNDS = 7


def packed(lib: Any, data: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    """Query, key and value as parts of one projection, and the gradient of the result."""
    batch, length, _, heads, size = data.shape
    whole = lib.tensor(data).to("cuda").to(getattr(lib, DTYPE))
    parts = [x.reshape(batch, length, heads, size).transpose(1, 2) for x in whole.flatten(2).split(heads * size, -1)]
    return (*(x.detach().requires_grad_() for x in parts[:3]), parts[3].contiguous())


def calls(name: str, lib: Any, attend: Any, q: Any, k: Any, v: Any, g: Any, is_causal: bool) -> dict[str, Any]:
    """The forward pass and the training step of one library."""
    if name.startswith("torch "):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        plain, which = attend, getattr(SDPBackend, name.split()[1].upper() + "_ATTENTION")

        def attend(*operands: Any, **how: Any) -> Any:
            with sdpa_kernel(which):
                return plain(*operands, **how)

    def forward() -> Any:
        with lib.no_grad():
            return attend(q, k, v, is_causal=is_causal)

    def both() -> Any:
        return lib.autograd.grad(attend(q, k, v, is_causal=is_causal), (q, k, v), g)

    return {"forward": forward, "with backward": both}


def event_seconds(lib: Any, call: Callable[[], Any], count: int = 10) -> float:
    """Seconds on the device, of several calls, so that it does not wait for the host."""
    start, end = lib.cuda.Event(enable_timing=True), lib.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / count


def rates(shape: tuple[int, ...], data: np.ndarray[Any, Any], is_causal: bool) -> dict[str, Any]:
    """TFLOP/s by work and library."""
    batch, heads, length, size = shape
    all_calls = {"norch": calls("norch", norch, norch.scaled_dot_product_attention, *packed(norch, data), is_causal)}
    if torch is not None:
        attend = torch.nn.functional.scaled_dot_product_attention
        operands = packed(torch, data)
        for kind in ("cudnn", "flash"):
            all_calls[f"torch {kind}"] = calls(f"torch {kind}", torch, attend, *operands, is_causal)
        for ours, theirs in zip(*(all_calls[n]["with backward"]() for n in ("norch", "torch flash")), strict=True):
            a, b = ours.float().cpu().numpy(), theirs.float().cpu().numpy()
            if not np.linalg.norm(a - b) <= TOLERANCE * np.linalg.norm(b):
                sys.exit(f"gradients of {shape} differ by {np.linalg.norm(a - b) / np.linalg.norm(b):.1e}")
    product = batch * heads * length * length * size * (1 if is_causal else 2)
    found: dict[str, Any] = {}
    for work, amount in (("forward", 2 * product), ("with backward", 7 * product)):
        times: dict[str, list[float]] = {name: [] for name in all_calls}
        for turn in range(ROUNDS + 1):
            for name, some in all_calls.items():
                seconds = event_seconds(norch if name == "norch" else torch, some[work])
                if turn:
                    times[name].append(seconds)
        found[work] = {name: amount / statistics.median(taken) / 1e12 for name, taken in times.items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Attention on a GPU, beside PyTorch's.")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    report = {}
    for shape in SHAPES:
        batch, heads, length, size = shape
        data = np.random.default_rng(0).standard_normal((batch, length, 4, heads, size), np.float32)
        for is_causal in (True, False):
            name = f"{'x'.join(map(str, shape))}{', causal' if is_causal else ''}"
            report[name] = rates(shape, data, is_causal)
            for work, by_library in report[name].items():
                figures = "  ".join(f"{library} {rate:.0f}" for library, rate in by_library.items())
                print(f"{name:<26}{work:<15}{figures} TFLOP/s", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"device": norch.cuda.get_device_name(), "rates": report}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
