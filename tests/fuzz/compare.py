"""Whether two runs of a program agree, and how far apart they may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from program import Outcome, Value

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from 1 to the next number of a dtype."""

ALLOWED = 64.0
"""In units of EPSILON, relative to the largest finite magnitude there is: sums in another order, other polynomials."""


LOST = 16.0
"""How many times further from the exact result than PyTorch norch may be: where that is far, the problem is ill-posed."""


def difference(
    ours: Outcome,
    theirs: Outcome,
    lines: tuple[str, ...],
    exact: Callable[[], Outcome] | None = None,
    floor: float = 0.0,
) -> str | None:
    """What the runs disagree about, in a sentence, or None.

    floor: what may be lost in absolute terms, in units of EPSILON, by sums whose terms cancel.

    exact: runs PyTorch in float64. Where norch is as near to that as PyTorch in its own dtype is, it is right.
    """
    for i, line in enumerate(lines):
        mine, its = ours.errors.get(i), theirs.errors.get(i)
        if mine is not None and its is None:
            return f"line {i + 1} raises {type(mine).__name__}: {str(mine)[:300]}    {line}"
        if mine is None and its is not None:
            return f"line {i + 1} should raise {type(its).__name__}: {str(its)[:200]}    {line}"
    if ours.values.keys() != theirs.values.keys():
        return f"other variables: {sorted(ours.values.keys() ^ theirs.values.keys())}"
    truth: Outcome | None = None
    for name, wanted in theirs.values.items():
        found = ours.values[name]
        problem = of_values(found, wanted, floor)
        if problem is None:
            continue
        if problem.startswith("values") and exact is not None:
            truth = exact() if truth is None else truth
            best = truth.values.get(name)
            if (
                best is not None
                and not truth.errors.keys() ^ theirs.errors.keys()
                and nearer(found, wanted, best, floor)
            ):
                continue
        return f"{name}: {problem}"
    return None


def of_values(found: Value, wanted: Value, floor: float = 0.0) -> str | None:
    """The difference between two values of one variable."""
    if found.dtype != wanted.dtype:
        return f"dtype {found.dtype}, should be {wanted.dtype}"
    if found.values.shape != wanted.values.shape:
        return f"shape {found.values.shape}, should be {wanted.values.shape}"
    if found.dtype in EPSILON and found.requires_grad != wanted.requires_grad:
        return f"requires_grad {found.requires_grad}, should be {wanted.requires_grad}"
    if not close(found.values, wanted.values, EPSILON.get(found.dtype), floor):
        return f"values {shown(found.values)}, should be {shown(wanted.values)}"
    if found.grad is None and wanted.grad is not None:
        return f"grad is None, should be {'zeros' if not wanted.grad.values.any() else shown(wanted.grad.values)}"
    if found.grad is not None and wanted.grad is None:
        return f"grad is {shown(found.grad.values)}, should be None"
    if found.grad is not None and wanted.grad is not None:
        problem = of_values(found.grad, wanted.grad, floor)
        return problem and problem.replace(" ", " of the gradient ", 1)
    return None


def close(a: Any, b: Any, epsilon: float | None, floor: float) -> bool:
    """Equal; floats up to rounding, and signed zeros apart only where nothing else is zero."""
    if epsilon is None or a.dtype.kind not in "f":
        return bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.where(finite, 0, a), np.where(finite, 0, b), equal_nan=True):
        return False
    if not np.isfinite(a[finite]).all():
        return False
    with np.errstate(all="ignore"):
        size = np.abs(b[finite]).max(initial=0.0)
        gap = np.abs(a[finite] - b[finite])
        return bool((gap <= epsilon * (ALLOWED * (np.abs(b[finite]) + size / 4) + floor) + 1e-40).all())


def nearer(found: Value, wanted: Value, best: Value, floor: float = 0.0) -> bool:
    """Whether ours is not much further from the float64 result than PyTorch's."""
    for mine, its, right in ((found, wanted, best), (found.grad, wanted.grad, best.grad)):
        if mine is None or its is None or right is None:
            continue
        epsilon = EPSILON.get(mine.dtype)
        if epsilon is None or right.values.shape != mine.values.shape:
            return False
        with np.errstate(all="ignore"):
            limit = np.finfo(np.float16).max if mine.dtype == "float16" else np.finfo(np.float32).max
            limit = np.finfo(np.float64).max if mine.dtype == "float64" else limit
            right_values = right.values.astype(np.float64)
            right_values = np.where(np.abs(right_values) > limit, np.sign(right_values) * np.inf, right_values)
            a, b = mine.values.astype(np.float64), its.values.astype(np.float64)
            ok = (a == right_values) | (np.isnan(a) & np.isnan(right_values)) | (a == b) | (np.isnan(a) & np.isnan(b))
            my_gap, its_gap = np.abs(a - right_values), np.abs(b - right_values)
            size = np.abs(np.where(np.isfinite(right_values), right_values, 0)).max(initial=0.0)
            its_gap = np.where(np.isfinite(its_gap), its_gap, 0).max(initial=0.0)
            ok |= my_gap <= LOST * its_gap + epsilon * (ALLOWED * (np.abs(right_values) + size / 4) + floor)
        if not ok.all():
            return False
    return True


def shown(values: Any) -> str:
    flat = np.asarray(values).reshape(-1)
    text = ", ".join(repr(v.item()) for v in flat[:6])
    return f"[{text}{', ...' if flat.size > 6 else ''}]"
