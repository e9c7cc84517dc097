"""Programs as steps that norch.capture replays, against the same steps as they are: same bits at every call."""

from __future__ import annotations

import warnings
from textwrap import indent
from typing import Any

from program import library, namespace, quiet

CALLS = 6


def check(lines: tuple[str, ...]) -> str | None:
    """What a captured step of these lines does otherwise than the step itself, over some calls."""
    T = library("norch")
    body = "".join(
        f"    try:\n{indent(line, ' ' * 8)}\n    except Exception as _e: _errors.append(type(_e).__name__)\n"
        for line in lines
    )
    source = f"def step():\n    _errors = []\n{body}    return {{k: v for k, v in locals().items() if k[:1] != '_'}}"
    outcomes = []
    for wrap in (lambda step: step, T.capture):
        names = namespace(T)
        exec(source, names)
        T.manual_seed(5)
        run, seen = wrap(names["step"]), []
        with quiet():
            for _ in range(CALLS):
                found = run()
                seen.append({name: image(value, T) for name, value in found.items() if isinstance(value, T.Tensor)})
        outcomes.append(seen)
    for i, (wanted, got) in enumerate(zip(*outcomes, strict=True)):
        off = sorted(name for name in wanted.keys() | got.keys() if wanted.get(name) != got.get(name))
        if off:
            return f"call {i + 1}, captured: other bits of {', '.join(off)}\n{run.report()}"
    return None


def image(value: Any, T: Any, deep: bool = True) -> Any:
    with T.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = value.detach().cpu().contiguous().reshape(-1)
        found = bytes(plain.view(T.uint8).tolist()) if plain.numel() else b""
        grad = image(value.grad, T, False) if deep and value.is_leaf and value.grad is not None else None
    return value.dtype.name, tuple(value.shape), value.stride(), value.requires_grad, found, grad
