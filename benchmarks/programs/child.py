"""Runs one program in this process, by PyTorch or by norch in its place, and writes what it gave to a file of JSON.

python child.py torch|norch FILE '{"script": [...]}'

Of a model it then times a pass forward and back for each line that it reads, and prints the seconds of processor time.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import runpy
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import same_numbers

LOSSES = 6
"""How many backward passes of a script are compared; by then rounding has grown little."""


class Enough(BaseException):
    """Ends a script whose losses are known."""


def script(torch: Any, arguments: list[str], before: str, losses: int) -> list[list[float]]:
    """The losses of a script's first backward passes, or the sums of what it printed, where there are none."""
    found: list[list[float]] = []
    backward = torch.Tensor.backward

    def watched(self: Any, *args: Any, **named: Any) -> None:
        found.append([float(self.detach().double().sum())])
        backward(self, *args, **named)
        if len(found) >= losses:
            raise Enough

    torch.Tensor.backward = watched
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).parent.resolve()))
    exec(before, {"torch": torch})
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except Enough:
        pass
    except SystemExit as e:
        if e.code not in (None, 0):
            raise RuntimeError(f"exit {e.code}") from None
    return found


def model(
    torch: Any, module: str, expression: str, inputs: str, before: str, seed: int
) -> tuple[list[list[float]], Callable[[], object]]:
    """What a model gives, and the gradients of its inputs and parameters, in eval mode, with weights of NumPy's; and a
    pass forward and back."""
    names: dict[str, Any] = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "np": np}
    exec(before, names)
    if module:
        exec(f"from {module} import *; import {module} as _module", names)
        names.update(vars(names["_module"]))
    built = eval(expression, names)
    built.eval()
    r = np.random.default_rng(seed)
    with torch.no_grad():
        for _, parameter in sorted(built.named_parameters()):
            values = r.uniform(-1, 1, tuple(parameter.shape))
            if parameter.ndim > 1:
                parameter.copy_(torch.from_numpy(values * np.sqrt(3 / max(1, np.prod(parameter.shape[1:])))))
            else:  # scales of norms, and biases
                parameter.copy_(torch.from_numpy(np.asarray(values / 8)) + float((parameter == 1).all()))
    given = eval(f"({inputs},)", names)
    # Of a sparse operand PyTorch gives a dense gradient, which norch does not.
    wants = [isinstance(x, torch.Tensor) and x.is_floating_point() and not x.is_sparse for x in given]
    given = tuple(x.requires_grad_() if wanted else x for x, wanted in zip(given, wants))

    def passed() -> list[Any]:
        built.zero_grad()
        for x in given:
            if isinstance(x, torch.Tensor):
                x.grad = None
        results = [t for t in tensors(built(*given), torch) if t.requires_grad]
        sum((t * t).mean() for t in results).backward()
        return results

    results = passed()
    leaves = [*given, *(p for _, p in sorted(built.named_parameters()))]
    gradients = [t.grad for t in leaves if isinstance(t, torch.Tensor) and t.grad is not None]
    values = [t.detach().double().reshape(-1)[:4096].tolist() for t in (*results, *gradients[:40])]
    return values, passed


def tensors(value: Any, torch: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return [t for part in parts for t in tensors(part, torch)]


def main(library: str, to: str, program: str) -> None:
    what = json.loads(program)
    start = time.perf_counter()
    if library == "norch":
        from norch.compat import standin

        standin.install()
    import torch
    import torch.nn.functional
    import torch.optim
    import torch.utils.data

    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    torch.set_num_threads(threads)
    result: dict[str, Any] = {}
    answers, passed = sys.stdout, None
    try:
        same_numbers.install(torch)
        with contextlib.redirect_stdout(sys.stderr):
            if "script" in what:
                values = script(torch, what["script"], what.get("before", ""), what.get("losses", LOSSES))
            else:
                values, passed = model(torch, **{"before": "", "seed": 0, **what})
        result = {"values": values, "seconds": time.perf_counter() - start}
    except BaseException as e:
        result["error"] = f"{type(e).__name__}: {e}"[:600]
        result["trace"] = traceback.format_exc()[-3000:]
    result["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(to).write_text(json.dumps(result))
    print(flush=True, file=answers)
    while passed is not None and sys.stdin.readline():
        with contextlib.redirect_stdout(sys.stderr):
            begin = time.process_time()
            passed()
            seconds = time.process_time() - begin
        print(seconds, flush=True, file=answers)
    sys.stdout.flush()
    os._exit(0)  # workers and threads of a script that was ended


if __name__ == "__main__":
    main(*sys.argv[1:])
