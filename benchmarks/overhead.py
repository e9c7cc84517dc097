"""What norch itself costs: per-op Python overhead on a backend whose kernels do nothing, and import time.

Each figure is taken between those of its peers, NumPy and (where it is installed) PyTorch, in the same run: rounds are
interleaved, and the median is kept. The targets are ratios to PyTorch: 1.0 us of its 1.7 us for an add, 1.3 us of its
2.5 us for a recorded one, 0.7 us of its 1.5 us for a view; without PyTorch they are shown in microseconds. Import: at
most 40 ms over `import numpy`.

    python benchmarks/overhead.py [--rounds 15] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import interleaved

import norch
from norch.testing.null import null_device

CALLS = 20_000


def cases() -> dict[str, dict[str, Callable[[], object]]]:
    """By row, a call for each library."""
    device = null_device()
    a, b = norch.empty(4, 4, device=device), norch.empty(4, 4, device=device)
    w = norch.empty(4, 4, device=device, requires_grad=True)
    na, nb = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    rows = {
        "a + b": {"norch": lambda: a + b, "numpy": lambda: na + nb},
        "a + b, recorded": {"norch": lambda: w + b},
        "a * 0.5": {"norch": lambda: a * 0.5, "numpy": lambda: na * 0.5},
        "exp(a)": {"norch": a.exp, "numpy": lambda: np.exp(na)},
        "a @ b": {"norch": lambda: a @ b, "numpy": lambda: na @ nb},
        "a.sum(1)": {"norch": lambda: a.sum(1), "numpy": lambda: na.sum(1)},
        "a.transpose(0, 1)": {"norch": lambda: a.transpose(0, 1), "numpy": lambda: na.transpose(1, 0)},
        "a.reshape(16)": {"norch": lambda: a.reshape(16), "numpy": lambda: na.reshape(16)},
        "a[0]": {"norch": lambda: a[0], "numpy": lambda: na[0]},
    }
    try:
        import torch
    except ImportError:
        return rows
    torch.set_num_threads(1)
    ta, tb = torch.ones(4, 4), torch.ones(4, 4)
    tw = torch.ones(4, 4, requires_grad=True)
    torch_calls: dict[str, Callable[[], object]] = {
        "a + b": lambda: ta + tb,
        "a + b, recorded": lambda: tw + tb,
        "a * 0.5": lambda: ta * 0.5,
        "exp(a)": ta.exp,
        "a @ b": lambda: ta @ tb,
        "a.sum(1)": lambda: ta.sum(1),
        "a.transpose(0, 1)": lambda: ta.transpose(0, 1),
        "a.reshape(16)": lambda: ta.reshape(16),
        "a[0]": lambda: ta[0],
    }
    for name, call in torch_calls.items():
        rows[name]["torch"] = call
    return rows


TARGETS = {"a + b": 1.0 / 1.7, "a + b, recorded": 1.3 / 2.5, "a.transpose(0, 1)": 0.7 / 1.5}


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds a call, the median of the rounds, by row and library; the empty call's cost is taken off."""
    calls = {(row, library): call for row, by in cases().items() for library, call in by.items()}
    times = interleaved({("", ""): lambda: None, **calls}, rounds, CALLS)
    base = statistics.median(times.pop(("", "")))
    result: dict[str, dict[str, float]] = {}
    for (row, library), found in times.items():
        result.setdefault(row, {})[library] = (statistics.median(found) - base) * 1e6
    return result


def import_milliseconds(rounds: int) -> dict[str, float]:
    """Median time of a fresh interpreter that imports each, in turn."""
    # Without bytecode every start would compile all of norch, which no installed package does.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, list[float]] = {"pass": [], "import numpy": [], "import norch": []}
    for _ in range(rounds):
        for statement, times in found.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", statement], check=True, env=environment)
            times.append((time.perf_counter() - start) * 1e3)
    return {statement: statistics.median(times) for statement, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    overhead, imports = measure(options.rounds), import_milliseconds(options.rounds)
    heads = f"{'norch':>8}{'numpy':>8}{'torch':>8}{'to numpy':>10}{'to torch':>10}{'at most':>9}"
    print(f"{'us a call, 4x4 float32':<24}{heads}")
    for row, by in overhead.items():
        cells = "".join(f"{by[n]:>8.2f}" if n in by else f"{'-':>8}" for n in ("norch", "numpy", "torch"))
        ratios = "".join(f"{by['norch'] / by[n]:>10.2f}" if n in by else f"{'-':>10}" for n in ("numpy", "torch"))
        print(f"{row:<24}{cells}{ratios}{TARGETS[row]:>9.2f}" if row in TARGETS else f"{row:<24}{cells}{ratios}")
    over = imports["import norch"] - imports["import numpy"]
    print(
        f"\nimport, ms: python {imports['pass']:.0f}, numpy {imports['import numpy']:.0f}, "
        f"norch {imports['import norch']:.0f}: {over:.0f} over numpy (at most 40)"
    )
    if options.json:
        options.json.write_text(json.dumps({"overhead_us": overhead, "import_ms": imports}, indent=2) + "\n")


if __name__ == "__main__":
    main()
