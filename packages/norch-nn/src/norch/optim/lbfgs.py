"""L-BFGS, with and without a line search."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import norch

from .multi_tensor import MultiTensorOptimizer

SUFFICIENT, FLAT = 1e-4, 0.9
"""The constants of the strong Wolfe conditions (Nocedal and Wright, "Numerical Optimization", 2006, (3.7))."""


class LBFGS(MultiTensorOptimizer):
    """Limited-memory BFGS (Nocedal and Wright, "Numerical Optimization", 2006, algorithm 7.4): a quasi-Newton method
    for gradients of all data. `step` needs a closure that computes the loss and its gradients, and calls it often.

    A step makes up to `max_iter` iterations and `max_eval` (5/4 of max_iter) evaluations, with the last `history_size`
    changes as memory. It ends early where the largest gradient is at most `tolerance_grad`, or loss or parameters
    change by less than `tolerance_change`. `line_search_fn` is None, for steps of lr, or "strong_wolfe".

    One parameter group; each iteration waits for the device. Raises ValueError for negative lr, more than one group, or
    a line search that there is not.
    """

    elementwise = False

    lr: float | norch.Tensor = 1
    max_iter: int = 20
    max_eval: int | None = None
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 100
    line_search_fn: str | None = None

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        if self.param_groups:
            raise ValueError("LBFGS has one group of parameters: it does not support options of their own")
        if group["max_eval"] is None:
            group["max_eval"] = group["max_iter"] * 5 // 4
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise ValueError(f"LBFGS: line_search_fn must be None or 'strong_wolfe', got {group['line_search_fn']!r}")

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Minimises for up to `max_iter` iterations; returns the loss that `closure` gave at the beginning."""
        if closure is None:
            raise ValueError("LBFGS: step needs a closure that computes the loss and its gradients")
        with norch.no_grad():
            return _Minimisation(self, self.param_groups[0], closure).run()


class _Minimisation:
    """One call of `step`. Vectors are flat and of all parameters; those that last are in the first one's state."""

    def __init__(self, optimizer: LBFGS, group: dict[str, Any], closure: Callable[[], Any]) -> None:
        self.params: list[norch.Tensor] = group["params"]
        self.options = group
        self.lr = float(group["lr"])
        self.tolerance: float = group["tolerance_change"]
        self.state = optimizer.state[self.params[0]]
        self.evaluate = lambda: optimizer._evaluate(closure)

    def run(self) -> Any:
        options, state = self.options, self.state
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = self.evaluate()
        loss, grad, evals = float(first), self.gradient(), 1
        state["func_evals"] += 1
        if self.is_optimal(grad):
            return first
        for i in range(1, options["max_iter"] + 1):
            state["n_iter"] += 1
            self.choose_direction(grad)
            direction = state["d"]
            state["prev_flat_grad"], state["prev_loss"] = grad, loss
            before = loss
            state["t"] = self.lr
            if state["n_iter"] == 1:
                state["t"] *= 1.0 / max(1.0, float(grad.abs().sum()))
            slope = float(grad.dot(direction))
            if slope > -self.tolerance:
                break
            count, is_optimal = 0, False
            if options["line_search_fn"] is not None:
                found, count = self.search(_Point(0.0, loss, slope, grad), options["max_eval"] - evals)
                loss, grad, state["t"] = found.loss, found.grad, found.at
                self.move(state["t"])
                is_optimal = self.is_optimal(grad)
            else:
                self.move(state["t"])
                if i != options["max_iter"]:
                    loss, grad, count = float(self.evaluate()), self.gradient(), 1
                    is_optimal = self.is_optimal(grad)
            evals += count
            state["func_evals"] += count
            if (
                evals >= options["max_eval"]
                or is_optimal
                or float(direction.abs().max()) * abs(state["t"]) <= self.tolerance
                or abs(loss - before) < self.tolerance
            ):
                break
        return first

    def gradient(self) -> norch.Tensor:
        parts = [(norch.zeros_like(p) if p.grad is None else p.grad.detach()).reshape(-1) for p in self.params]
        return norch.cat(parts) if len(parts) > 1 else parts[0].clone()

    def is_optimal(self, grad: norch.Tensor) -> bool:
        return float(grad.abs().max()) <= self.options["tolerance_grad"]

    def move(self, t: float) -> None:
        """Adds t times the direction to the parameters."""
        parts = self.state["d"].split([p.numel() for p in self.params])
        norch.sgd_step_(self.params, [d.reshape(p.shape) for d, p in zip(parts, self.params, strict=True)], lr=-t)

    def choose_direction(self, grad: norch.Tensor) -> None:
        """The product of the inverse Hessian, as past changes show it, and the negative gradient: two loops."""
        state = self.state
        if state["n_iter"] == 1:
            state.update(d=-grad, old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return
        old_dirs, old_stps, ro = state["old_dirs"], state["old_stps"], state["ro"]
        y, s = grad - state["prev_flat_grad"], state["d"] * state["t"]
        product = y.dot(s)
        if float(product) > 1e-10:
            for kept, new in ((old_dirs, y), (old_stps, s), (ro, 1.0 / product)):
                if len(kept) == self.options["history_size"]:
                    del kept[0]
                kept.append(new)
            state["H_diag"] = product / y.dot(y)
        d, shares = -grad, []
        for y, s, r in zip(reversed(old_dirs), reversed(old_stps), reversed(ro), strict=True):
            shares.append(s.dot(d) * r)
            d = d - y * shares[-1]
        d = d * state["H_diag"]
        for y, s, r, share in zip(old_dirs, old_stps, ro, reversed(shares), strict=True):
            d = d + s * (share - y.dot(d) * r)
        state["d"] = d

    def search(self, start: _Point, max_evals: int) -> tuple[_Point, int]:
        """A point of the line that meets the strong Wolfe conditions, from `state["t"]` on."""
        direction, kept = self.state["d"], [p.clone() for p in self.params]

        def probe(t: float) -> _Point:
            self.move(t)
            loss, grad = float(self.evaluate()), self.gradient()
            for p, old in zip(self.params, kept, strict=True):
                p.copy_(old)
            return _Point(t, loss, float(grad.dot(direction)), grad)

        return strong_wolfe(probe, start, self.state["t"], float(direction.abs().max()), self.tolerance, max_evals)


# --- The line search --------------------------------------------------------------------------------------------------


class _Point(NamedTuple):
    """A point of the line: where, and the loss, its slope along the line and its gradient there."""

    at: float
    loss: float
    slope: float
    grad: Any


def strong_wolfe(
    probe: Callable[[float], _Point],
    start: _Point,
    t: float,
    size: float,
    tolerance: float,
    max_steps: int,
    sufficient: float = SUFFICIENT,
    flat: float = FLAT,
) -> tuple[_Point, int]:
    """Searches the line from `start`, t first, for a point of sufficient decrease and of a flat slope (Nocedal and
    Wright, 2006, algorithms 3.5 and 3.6, with cubic interpolation). `size` is the largest element of the direction.

    Returns the point, the best one where none was found in time, and how often the line was probed.
    """

    def is_high(point: _Point) -> bool:
        return point.loss > start.loss + sufficient * point.at * start.slope

    def is_flat(point: _Point) -> bool:
        return abs(point.slope) <= -flat * start.slope

    # First a bracket: two points that have such a point between them.
    previous, point, steps = start, probe(t), 0
    bracket = [start, point]
    while steps < max_steps:
        bracket = [previous, point]
        if is_high(point) or (steps > 1 and point.loss >= previous.loss):
            break
        if is_flat(point):
            return point, steps + 1
        if point.slope >= 0:
            break
        bounds = point.at + 0.01 * (point.at - previous.at), point.at * 10
        previous, point = point, probe(_cubic_minimum(previous, point, bounds))
        steps += 1
    else:
        bracket = [start, point]

    # Then smaller ones. The lower end has the lower loss, whichever side it is on.
    low, high = (bracket[0], bracket[1]) if bracket[0].loss <= bracket[1].loss else (bracket[1], bracket[0])
    is_slow = False
    while steps < max_steps:
        left, right = min(low.at, high.at), max(low.at, high.at)
        if (right - left) * size < tolerance:
            break
        ends = (low, high) if low.at < high.at else (high, low)
        t = _cubic_minimum(*ends, (left, right))
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:  # next to an end: not twice, and not at the end
            if is_slow or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                is_slow = False
            else:
                is_slow = True
        else:
            is_slow = False
        point = probe(t)
        steps += 1
        if is_high(point) or point.loss >= low.loss:
            high = point
            if high.loss < low.loss:
                low, high = high, low
            continue
        if is_flat(point):
            low = point
            break
        if point.slope * (high.at - low.at) >= 0:
            high = low
        low = point
    return low, steps + 1


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through two points with their slopes is least (Nocedal and Wright, 2006, (3.59)), a.at < b.at:
    within bounds, and in their middle where it has no minimum."""
    low, high = bounds
    middle = (low + high) / 2
    if a.at == b.at:
        return middle
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return middle
    d2 = math.sqrt(square)
    below = b.slope - a.slope + 2 * d2
    if below == 0:
        return middle
    return min(max(b.at - (b.at - a.at) * ((b.slope + d2 - d1) / below), low), high)


# --- As programs take them from PyTorch's file ----------------------------------------------------------------------


def _cubic_interpolate(
    x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None
) -> float:
    ends = sorted([_Point(float(x1), float(f1), float(g1), None), _Point(float(x2), float(f2), float(g2), None)])
    return _cubic_minimum(ends[0], ends[1], (ends[0].at, ends[1].at) if bounds is None else bounds)


def _strong_wolfe(
    obj_func: Callable[..., Any],
    x: Any,
    t: float,
    d: norch.Tensor,
    f: Any,
    g: norch.Tensor,
    gtd: Any,
    c1: float = SUFFICIENT,
    c2: float = FLAT,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[float, norch.Tensor, float, int]:
    def probe(at: float) -> _Point:
        loss, grad = obj_func(x, at, d)
        return _Point(at, float(loss), float(grad.dot(d)), grad)

    start, size = _Point(0.0, float(f), float(gtd), g), d.abs().max().item()
    found, count = strong_wolfe(probe, start, float(t), size, tolerance_change, max_ls, c1, c2)
    return found.loss, found.grad, found.at, count
