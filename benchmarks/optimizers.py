"""What a step of an optimiser costs over many small parameters, beside PyTorch's.

PyTorch goes from one parameter to the next (foreach=False), by lists (foreach=True) or, where it has one, uses a kernel
of its own (fused=True). Rounds are interleaved, and the median is kept. The limit is for Adam: 0.5 of PyTorch's
foreach=False. Exits with 1 where it is exceeded.

    python benchmarks/optimizers.py [--parameters 200] [--elements 64] [--rounds 15] [--threads 1] [--all]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

import numpy as np
from timing import count_for, interleaved

import norch
from norch import optim

LIMIT = 0.5
NAMES = ["SGD", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta", "ASGD", "Rprop", "Lion"]
FUSED = {"SGD", "Adam", "AdamW", "Adagrad"}


def step_of(framework: Any, optim: Any, name: str, arrays: list[np.ndarray], **how: Any) -> Any:
    """The `step` of an optimiser whose parameters have gradients."""
    params = [framework.tensor(a, requires_grad=True) for a in arrays]
    for p, a in zip(params, arrays):
        p.grad = framework.tensor(a)
    return getattr(optim, name)(params, **how).step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parameters", type=int, default=200)
    parser.add_argument("--elements", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="all optimisers, not only Adam")
    options = parser.parse_args()
    norch.set_num_threads(options.threads)
    try:
        import torch
    except ImportError:
        torch = None
        print("PyTorch is not installed: there is nothing to compare with")
    else:
        torch.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(options.elements).astype(np.float32) for _ in range(options.parameters)]
    print(
        f"{options.parameters} parameters of {options.elements} float32, {options.threads} threads; us a step, median"
    )
    print(f"{'':10}{'norch':>9}{'foreach=False':>22}{'foreach=True':>22}{'fused=True':>22}")
    is_good = True
    for name in NAMES if options.all else ["Adam"]:
        calls = {"norch": step_of(norch, optim, name, arrays)}
        if torch is not None and hasattr(torch.optim, name):
            calls["single"] = step_of(torch, torch.optim, name, arrays, foreach=False)
            calls["foreach"] = step_of(torch, torch.optim, name, arrays, foreach=True)
            if name in FUSED:
                calls["fused"] = step_of(torch, torch.optim, name, arrays, fused=True)
        counts = {key: count_for(call, 0.02)[0] for key, call in calls.items()}
        times = interleaved(calls, options.rounds, counts)
        row = f"{name:10}{statistics.median(times['norch']) * 1e6:9.1f}"
        for key in ("single", "foreach", "fused"):
            if key in times:
                ratio = statistics.median(a / b for a, b in zip(times["norch"], times[key]))
                row += f"{statistics.median(times[key]) * 1e6:13.1f} ({ratio:.3f})"
                if name == "Adam" and key == "single":
                    is_good = ratio <= LIMIT
                    row += f" <= {LIMIT}" if is_good else f" > {LIMIT}!"
            else:
                row += f"{'-':>22}"
        print(row)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
