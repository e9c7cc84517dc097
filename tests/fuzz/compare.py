"""Whether two runs of a program agree, and how far apart they may be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from program import Outcome, Value

LARGEST = {"float64": 1.7976931348623157e308, "float32": 3.4028235e38, "float16": 65504.0, "bfloat16": 3.3895314e38}

EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance from 1 to the next number of a dtype."""

ALLOWED = 128.0
"""In units of EPSILON, relative to the largest finite magnitude there is: sums in another order, other polynomials."""

CANCELLED = 8.0
"""In units of EPSILON, what gradients may have lost that add up to 0, such as that of a single number, normalised."""

UPCAST = re.compile(r"\.(double|float|to|type|type_as)\(")
"""What may bring the rounding of a dtype into a finer one."""

LOST = 16.0
"""How many times further than PyTorch norch may be from the exact result: far ones tell of an ill-posed problem."""


def difference(
    ours: Outcome,
    theirs: Outcome,
    lines: tuple[str, ...],
    exact: Callable[..., Outcome] | None = None,
    floor: float = 0.0,
) -> str | None:
    """What the runs disagree about, in a sentence, or None.

    exact: runs PyTorch in float64, with inputs as they are or moved a little. Where norch is as near to that as PyTorch
    in its own dtype is, or as inputs that are moved by their rounding bring it, norch is right.

    floor: what may be lost in absolute terms, in units of EPSILON, by sums whose terms cancel.
    """
    for i, line in enumerate(lines):
        mine, its = ours.errors.get(i), theirs.errors.get(i)
        if mine is not None and its is None:
            for name in re.findall(r"\w+", re.sub(r"^\w+ = ", "", line)):
                if name in theirs.values and name not in ours.values:  # None: the line fails for that
                    return f"{name}: {given('variable', None, theirs.values[name])}"
            return f"line {i + 1} raises {type(mine).__name__}: {str(mine)[:300]}    {line}"
        if mine is None and its is not None:
            return f"line {i + 1} should raise {type(its).__name__}: {str(its)[:200]}    {line}"
    if theirs.errors:
        return None  # what a failed line has done by then is not defined
    exact = None if exact is None else cache(exact)
    coarse = max((EPSILON.get(v.dtype, 0.0) for v in theirs.values.values()), default=0.0)
    coarse *= any(UPCAST.search(line) for line in lines)
    for name in sorted(ours.values.keys() | theirs.values.keys()):
        problem = of_variable(name, ours.values.get(name), theirs.values.get(name), exact, floor, coarse)
        if problem is None or (problem.startswith("values") and exact is not None and jumps(name, lines, exact)):
            continue
        return f"{name}: {problem}"
    return None


def of_variable(
    name: str,
    found: Value | None,
    wanted: Value | None,
    exact: Callable[..., Outcome] | None,
    floor: float,
    coarse: float,
) -> str | None:
    """What two runs disagree about in a variable. coarse: EPSILON of what may have been cast to its dtype."""
    if found is None or wanted is None:
        return given("variable", found, wanted)
    if name.startswith("d["):  # what autograd.grad returned
        found, wanted = where_defined(found, wanted, wanted)
        floor = floor or CANCELLED
    problem = of_values(found, wanted, floor)
    if problem is None or not problem.startswith("values") or exact is None or found.dtype not in EPSILON:
        return problem
    best = exact().values.get(name)
    shaken = max(EPSILON[found.dtype], coarse)
    moved = [v for by in (1, -2) if (v := exact(by * shaken).values.get(name)) is not None]
    return None if best is not None and nearer(found, wanted, best, moved, floor) else problem


def of_values(found: Value, wanted: Value, floor: float = 0.0) -> str | None:
    """The difference between two values of one variable."""
    if found.dtype != wanted.dtype:
        return f"dtype {found.dtype}, should be {wanted.dtype}"
    if found.values.shape != wanted.values.shape:
        return f"shape {found.values.shape}, should be {wanted.values.shape}"
    if found.dtype in EPSILON and found.requires_grad != wanted.requires_grad:
        return f"requires_grad {found.requires_grad}, should be {wanted.requires_grad}"
    if not close(found.values, wanted.values, EPSILON.get(found.dtype), floor):
        apart = furthest(found.values, wanted.values)
        return f"values {shown(found.values, apart)}, should be {shown(wanted.values, apart)}"
    if found.grad is None or wanted.grad is None:
        return given("grad", found.grad, wanted.grad)
    problem = of_values(*where_defined(found.grad, wanted.grad, wanted), floor or CANCELLED)
    return problem and problem.replace(" ", " of the gradient ", 1)


def given(what: str, found: Value | None, wanted: Value | None) -> str | None:
    """The difference where at most one of them is there."""
    texts = ["None" if v is None else "zeros" if nothing(v.values) else shown(v.values) for v in (found, wanted)]
    return None if found is wanted else f"{what} is {texts[0]}, should be {texts[1]}"


def nothing(values: Any) -> bool:
    return not np.nan_to_num(values.astype(np.float64)).any()


def where_defined(found: Value, wanted: Value, of: Value) -> tuple[Value, Value]:
    """Two gradients without the elements in which PyTorch's, or the operand itself, is NaN or beyond all bounds.

    What rules make of infinity times 0 says nothing about them.
    """
    if found.values.shape != wanted.values.shape or wanted.dtype not in EPSILON:
        return found, wanted
    left_out = np.isnan(wanted.values) | np.isinf(wanted.values) & ~np.isfinite(found.values)
    if of.values.shape == wanted.values.shape:
        left_out |= np.isnan(of.values)
    mine, its = (v._replace(values=np.where(left_out, 0, v.values)) for v in (found, wanted))
    return mine, its


def jumps(name: str, lines: tuple[str, ...], exact: Callable[..., Outcome]) -> bool:
    """Whether a second derivative is at a point where it is not continuous: any value is as good as PyTorch's there."""
    if not any("create_graph" in line for line in lines):
        return False
    here = exact().values.get(name)
    for there in (exact(1e-4).values.get(name), exact(-1e-4).values.get(name)):
        if here is None or there is None or here.grad is None or there.grad is None:
            return False
        a, b = here.grad.values, there.grad.values
        with np.errstate(all="ignore"):
            if a.shape == b.shape and not (np.abs(a - b) <= 0.05 * np.abs(a).max(initial=0.0)).all():
                return True
    return False


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


def nearer(found: Value, wanted: Value, best: Value, moved: Sequence[Value], floor: float) -> bool:
    """Whether ours is not much further from the float64 result than PyTorch's, or `moved`, those of moved inputs."""
    if not near(found, wanted, best, moved, floor):
        return False
    if found.grad is None or wanted.grad is None or best.grad is None:
        return True
    mine, its = where_defined(found.grad, wanted.grad, wanted)
    return near(mine, its, best.grad, [v.grad for v in moved if v.grad is not None], floor or CANCELLED)


def near(found: Value, wanted: Value, best: Value, moved: Sequence[Value], floor: float) -> bool:
    epsilon = EPSILON.get(found.dtype)
    if epsilon is None or best.values.shape != found.values.shape:
        return False
    with np.errstate(all="ignore"):
        right = best.values.astype(np.float64)
        right = np.where(np.abs(right) > LARGEST[found.dtype], np.sign(right) * np.inf, right)
        a, b = found.values.astype(np.float64), wanted.values.astype(np.float64)
        ok = (a == right) | (np.isnan(a) & np.isnan(right)) | (a == b) | (np.isnan(a) & np.isnan(b))
        size = np.abs(np.where(np.isfinite(right), right, 0)).max(initial=0.0)
        lost = LOST * largest_gap(b, right)
        gaps = [largest_gap(v.values.astype(np.float64), right) for v in moved if v.values.shape == right.shape]
        lost += ALLOWED * max(gaps, default=0.0)
        ok |= np.abs(a - right) <= lost + epsilon * (ALLOWED * (np.abs(right) + size / 4) + floor)
        return bool(ok.all())


def largest_gap(a: Any, b: Any) -> float:
    gap = np.abs(a - b)
    return float(np.where(np.isfinite(gap), gap, 0).max(initial=0.0))


def furthest(a: Any, b: Any) -> Any:
    """The places where two arrays differ most, the furthest first, in flat order."""
    with np.errstate(all="ignore"):
        gap = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64)).reshape(-1)
    gap = np.where(np.asarray((a == b) | ((a != a) & (b != b))).reshape(-1), 0, np.nan_to_num(gap, nan=np.inf))
    return np.argsort(-gap, kind="stable")


def shown(values: Any, order: Any = None) -> str:
    flat = np.asarray(values).reshape(-1)
    flat = flat if order is None else flat[order]
    text = ", ".join(repr(v.item()) for v in flat[:6])
    return f"[{text}{', ...' if flat.size > 6 else ''}]"
