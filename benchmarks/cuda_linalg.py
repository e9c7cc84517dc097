"""norch.linalg on a GPU (cuSOLVER and cuBLAS) beside PyTorch's, in float32: milliseconds, the least of the rounds.

What is compared first is the product that each result stands for. Both libraries work in IEEE float32 here.

    python benchmarks/cuda_linalg.py [--only PATTERN] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import norch

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

DEVICE, ROUNDS = "cuda", 3
LIBRARIES: dict[str, Any] = {"norch": norch} | ({"torch": torch} if torch is not None else {})
SHAPES = ((4096, 8, 8), (1000, 32, 32), (100, 100, 100), (1024, 1024))
OPS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "inv": (lambda linalg, a: linalg.inv(a), lambda found, a: found @ a @ a),
    "solve": (lambda linalg, a: linalg.solve(a, a[..., :4]), lambda found, a: a @ found),
    "cholesky": (lambda linalg, a: linalg.cholesky(a), lambda found, a: found @ found.mT),
    "slogdet": (lambda linalg, a: linalg.slogdet(a)[1], lambda found, a: found),
    "qr": (lambda linalg, a: linalg.qr(a), lambda found, a: found[0] @ found[1]),
    "eigh": (lambda linalg, a: linalg.eigh(a), lambda found, a: (found[1] * found[0].unsqueeze(-2)) @ found[1].mT),
    "svd": (lambda linalg, a: linalg.svd(a), lambda found, a: (found[0] * found[1].unsqueeze(-2)) @ found[2]),
}


def milliseconds(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    best = dict.fromkeys(calls, math.inf)
    for turn in range(ROUNDS + 1):
        for name, call in calls.items():
            LIBRARIES[name].cuda.synchronize()
            start = time.perf_counter()
            call()
            LIBRARIES[name].cuda.synchronize()
            if turn:
                best[name] = min(best[name], (time.perf_counter() - start) * 1e3)
    return best


def measure(op: str, shape: tuple[int, ...]) -> dict[str, float]:
    routine, product = OPS[op]
    norch.manual_seed(0)
    a = norch.randn(*shape, device=DEVICE)
    a = a @ a.mT / shape[-1] + norch.eye(shape[-1], device=DEVICE)
    given = {"norch": a}
    if torch is not None:
        given["torch"] = torch.from_numpy(a.cpu().numpy()).to(DEVICE)
    results = [product(routine(LIBRARIES[name].linalg, x), x).cpu() for name, x in given.items()]
    if len(results) == 2:
        worst = abs(results[0].numpy() - results[1].numpy()).max() / abs(results[1].numpy()).max()
        if not worst < 1e-3:
            raise ValueError(f"results differ by {worst:.1e}")
    return milliseconds({name: lambda name=name, x=x: routine(LIBRARIES[name].linalg, x) for name, x in given.items()})  # type: ignore[misc]


def main() -> int:
    parser = argparse.ArgumentParser(description="Linear algebra on a GPU, beside PyTorch.")
    parser.add_argument("--only", metavar="PATTERN", default="", help="the rows whose name it finds")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not norch.cuda.is_available():
        sys.exit(norch.cuda.why_not())
    report: dict[str, Any] = {"device": norch.cuda.get_device_name(), "rows": []}
    ratios = []
    print(f"{'float32, ms':<28}{'norch':>9}{'torch':>9}{'ratio':>7}")
    for op in OPS:
        for shape in SHAPES:
            name = f"{op} {'x'.join(map(str, shape))}"
            if not re.search(options.only, name):
                continue
            try:
                found = measure(op, shape)
            except Exception as error:  # the others are measured nevertheless
                print(f"{name:<28}{type(error).__name__}: {error}"[:200], flush=True)
                report["rows"].append({"name": name, "refused": str(error)[:300]})
                continue
            report["rows"].append({"name": name, **found})
            ratio = found["norch"] / found["torch"] if "torch" in found else math.nan
            ratios.append(ratio)
            print(f"{name:<28}{found['norch']:>9.3f}{found.get('torch', math.nan):>9.3f}{ratio:>7.2f}", flush=True)
    if ratios:
        report["mean ratio"] = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{'geometric mean':<46}{report['mean ratio']:>7.2f}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
