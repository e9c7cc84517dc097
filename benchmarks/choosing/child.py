"""Tries and times one framework, in whose environment it runs: python child.py norch out.json [--quick]

Each model's first losses must be those of by_numpy.py in float64, or it is not timed. Written by benchmarks/choose.py's
process: {"versions", "ops", "steps"}, times in seconds.
"""

from __future__ import annotations

import json
import sys
import time
import timeit
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import by_numpy  # noqa: E402
import numpy as np  # noqa: E402
import problem  # noqa: E402
from timing import count_for  # noqa: E402


def timed(call: Callable[[], object], seconds: float) -> float:
    """The time of a call: the shortest of five rounds that take as long together, or of two calls that take longer."""
    count, _ = count_for(call, seconds / 5)
    return min(timeit.timeit(call, number=count) / count for _ in range(5 if count > 1 else 2))


def scalar(loss: Any) -> float:
    return float(loss.item() if hasattr(loss, "item") else loss)


@cache
def losses(model: str, steps: int) -> list[float]:
    """Of the first steps, in float64."""
    step = by_numpy.step(model, "eager", np.float64)
    return [step() for _ in range(steps)]


def step_of(module: Any, model: str, mode: str, seconds: float) -> dict[str, Any]:
    """The time of a step; of the first ones, which compile; and how far their losses are from those in float64."""
    wanted = losses(model, problem.STEPS)
    step = module.step(model, mode)
    start = time.perf_counter()
    found = [scalar(step()) for _ in wanted]
    first = time.perf_counter() - start
    apart = max(abs(a - b) / abs(b) for a, b in zip(found, wanted))
    if not apart <= problem.AGREES:
        raise AssertionError(f"its losses are {found}, those in float64 {wanted}")
    return {"first": first, "difference": apart, "seconds": timed(step, seconds)}


def tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:
        return {"why": f"{type(error).__name__}: {error}".partition("\n")[0][:300]}


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main() -> None:
    name, out, *options = sys.argv[1:]
    seconds = 0.05 if "--quick" in options else 1.0
    module = import_module(f"by_{name}")
    models = [m for m in problem.MODELS if not ("--quick" in options and m in ("cnn", "gpt"))]
    found = {
        "versions": {p: installed(p) for p in module.PACKAGES if installed(p)},
        "ops": {op: tried(lambda op=op: timed(module.op(op), seconds)) for op in problem.OPS},
        "steps": {
            model: {mode: tried(lambda m=model, k=mode: step_of(module, m, k, seconds)) for mode in module.MODES}
            for model in models
        },
    }
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
