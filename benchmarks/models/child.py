"""Holds one model in this process, by PyTorch or by norch in its place; lines of JSON ask it, and such lines answer.

python child.py torch|norch NAME      then, on standard input: "values", a number of calls to time, or "end"
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from typing import Any

import numpy as np


def arrays(value: Any) -> list[Any]:
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return [a for part in parts for a in (arrays(part) if isinstance(part, (list, tuple)) else (part.numpy(),))]


def main(library: str, name: str) -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a model's code prints is no answer
    if library == "norch":
        from norch.compat import standin

        standin.install()
    import torch
    from published import MODELS

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    call = MODELS[name].build(torch)
    for line in sys.stdin:
        asked = json.loads(line)
        answer: Any
        if asked == "end":
            break
        if asked == "values":
            found = [np.asarray(a, np.float64).ravel() for a in arrays(call())]
            answer = {"values": np.concatenate(found).tolist(), "shapes": [a.size for a in found]}
        else:
            start = time.perf_counter()
            for _ in range(asked):
                call()
            answer = (time.perf_counter() - start) / asked
        print(json.dumps(answer), file=answers)
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024), file=answers)


if __name__ == "__main__":
    main(*sys.argv[1:])
