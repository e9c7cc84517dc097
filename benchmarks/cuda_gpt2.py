"""GPT-2 124M in bfloat16 on a GPU: tokens a second and peak memory, beside PyTorch's.

The model is the usual one: 12 layers of 12 heads of 64, 50,304 classes, tied weights, biases, gelu by erf, no dropout;
in float32 under autocast to bfloat16, with AdamW. It is one source for both libraries, from the same weights, and the
losses of the first steps are shown side by side. `captured` is norch.capture, `compiled` torch.compile.

    python benchmarks/cuda_gpt2.py [--kinds norch,captured,torch,compiled] [--batch 16] [--rounds 3] [--kernels 30]
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LAYERS, HEADS, WIDTH, CLASSES, LENGTH = 12, 12, 768, 50304, 1024


def gpt2(lib: Any, layers: int) -> Any:
    """The model, of `norch` or `torch`."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.fc, self.fc_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            q, k, v = self.attn(self.ln_1(x)).split(WIDTH, dim=2)
            q, k, v = [part.view(b, t, HEADS, c // HEADS).transpose(1, 2) for part in (q, k, v)]
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.fc_proj(functional.gelu(self.fc(self.ln_2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(CLASSES, WIDTH), nn.Embedding(LENGTH, WIDTH)
            self.h = nn.ModuleList([Block() for _ in range(layers)])
            self.ln_f = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, CLASSES, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, x: Any, y: Any) -> Any:
            at = lib.arange(0, x.size(1), dtype=lib.long, device=x.device)
            h = self.wte(x) + self.wpe(at)
            for block in self.h:
                h = block(h)
            logits = self.head(self.ln_f(h))
            return functional.cross_entropy(logits.view(-1, CLASSES), y.view(-1), ignore_index=-1)

    return Model()


def load(lib: Any, net: Any) -> None:
    """The same weights for both."""
    rng = np.random.default_rng(0)
    with lib.no_grad():
        for name, p in net.named_parameters():
            if "ln_" in name or name.endswith("bias"):
                p.fill_(float("ln_" in name and name.endswith("weight")))
            else:
                p.copy_(lib.from_numpy(rng.standard_normal(tuple(p.shape), np.float32) * np.float32(0.02)))


class Run:
    """A model of a library on the GPU, its batches, its step and its forward pass."""

    def __init__(self, kind: str, batch: int, layers: int) -> None:
        name = "norch" if kind in ("norch", "captured") else "torch"
        self.lib: Any = importlib.import_module(name)
        for part in ("nn", "nn.functional", "optim"):
            importlib.import_module(f"{name}.{part}")
        lib = self.lib
        self.cuda = lib.cuda
        with lib.device("meta"):
            self.net = gpt2(lib, layers)
        self.net = self.net.to_empty(device="cuda")
        self.net.head.weight = self.net.wte.weight  # which PyTorch's to_empty makes two of
        load(lib, self.net)
        more = {"fused": True} if name == "torch" else {}
        self.optimizer = lib.optim.AdamW(self.net.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, **more)
        rng = np.random.default_rng(1)
        text = [rng.integers(0, 50257, (2, batch, LENGTH)) for _ in range(4)]
        self.batches = [[lib.from_numpy(part).to("cuda") for part in both] for both in text]
        if kind == "captured":
            self.step, self.forward = lib.capture(self._step), lib.capture(self._forward)
        elif kind == "compiled":
            self.model = lib.compile(self.net)
            self.step, self.forward = self._step, self._forward
        else:
            self.step, self.forward = self._step, self._forward
        if kind != "compiled":
            self.model = self.net

    def _loss(self, x: Any, y: Any) -> Any:
        with self.lib.autocast("cuda", dtype=self.lib.bfloat16):
            return self.model(x, y)

    def _step(self, x: Any, y: Any) -> Any:
        loss = self._loss(x, y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def _forward(self, x: Any, y: Any) -> Any:
        with self.lib.no_grad():
            return self._loss(x, y)


def seconds(run: Run, call: Callable[[Any, Any], Any], rounds: int, count: int) -> float:
    """Of one call: the median over rounds of several."""
    taken = []
    for _ in range(rounds + 1):
        run.cuda.synchronize()
        start = time.perf_counter()
        for i in range(count):
            call(*run.batches[i % 4])
        run.cuda.synchronize()
        taken.append((time.perf_counter() - start) / count)
    return statistics.median(taken[1:])


def measure(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    run = Run(kind, options.batch, options.layers)
    tokens = options.batch * LENGTH
    losses = [run.step(*run.batches[i % 4]) for i in range(options.steps)]
    found: dict[str, Any] = {"losses": [float(loss.item()) for loss in losses]}
    del losses
    run.cuda.synchronize()
    run.cuda.reset_peak_memory_stats()
    found["training"] = tokens / seconds(run, run.step, options.rounds, 8)
    found["memory"] = run.cuda.max_memory_allocated() / 1e9
    for _ in range(3):
        run.forward(*run.batches[0])
    found["forward"] = tokens / seconds(run, run.forward, options.rounds, 8)
    if kind == "captured":
        for entry in run.step.entries.values():
            found["refused"] = entry.refusal
            for program, _ in entry.programs:
                found["scratch"] = program.scratch / 1e9
                runs = [part for part, group, _ in program.parts if group]
                found["graphs"] = [(getattr(r, "recorded", None), getattr(r, "changed", None)) for r in runs]
    if options.kernels:
        found["kernels"] = kernels(run, options.kernels)
    return found


def kernels(run: Run, count: int) -> list[str]:
    """What the GPU did in a step, by kernel: milliseconds, calls, name. PyTorch's profiler sees all of a process."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for i in range(3):
            run.step(*run.batches[i])
        run.cuda.synchronize()
    found: dict[str, list[float]] = {}
    gaps: list[tuple[float, str]] = []
    end = None
    for event in sorted(
        (e for e in profiler.events() if e.device_type.name == "CUDA"), key=lambda e: e.time_range.start
    ):
        found.setdefault(event.name, []).append(event.device_time / 3e3)
        if end is not None and event.time_range.start > end:
            gaps.append(((event.time_range.start - end) / 1e3, event.name))
        end = max(end or 0.0, event.time_range.end)
    total = sum(map(sum, found.values()))
    rows = sorted(found.items(), key=lambda item: -sum(item[1]))
    lines = [f"{sum(t):8.3f} ms {len(t) / 3:6.1f} x  {name[:150]}" for name, t in rows[:count]]
    idle = f"{sum(t for t, _ in gaps) / 3:8.3f} ms idle; before " + ", ".join(
        f"{name[:40]} {t:.3f}" for t, name in sorted(gaps, reverse=True)[:4]
    )
    return [f"{total:8.3f} ms {sum(map(len, found.values())) / 3:6.1f} x  all", idle, *lines]


def main() -> int:
    parser = argparse.ArgumentParser(description="GPT-2 124M in bfloat16, beside PyTorch.")
    parser.add_argument("--kinds", default="norch,captured,torch,compiled")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--steps", type=int, default=20, help="whose losses are shown")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", type=int, default=0, help="how many of the kernels of a step to show")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    for kind in options.kinds.split(","):
        try:
            report[kind] = found = measure(kind, options)
        except Exception as error:  # the others are measured nevertheless
            print(f"{kind}: {type(error).__name__}: {error}", flush=True)
            continue
        print(kind, {k: v for k, v in found.items() if k in ("refused", "scratch", "graphs")}, flush=True)
        print("  losses", " ".join(f"{x:.4f}" for x in found["losses"]))
        print("\n".join(found.get("kernels", [])), flush=True)
        if options.json:  # after each kind: compiling takes long, and might be ended
            options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"{'':<12}{'training, tokens/s':>20}{'forward, tokens/s':>20}{'peak, GB':>10}")
    for kind, found in report.items():
        print(f"{kind:<12}{found['training']:>20,.0f}{found['forward']:>20,.0f}{found['memory']:>10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
