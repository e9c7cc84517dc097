"""Every step of an optimiser against its formula in NumPy: for core's decompositions and for a backend's kernels.

for step in STEPS.values():
    check_step(step, "my_device")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import ops
from ..device import Device
from ..dtype import DType, bfloat16, float16, float32, float64

Array = np.ndarray[Any, Any]

SHAPES = ((), (1,), (0,), (3, 5), (17,), (64,), (129, 3))
DTYPES = (float64, float32, float16, bfloat16)
_BOUNDS = {float64: 1e-12, float32: 4e-6, float16: 6e-3, bfloat16: 5e-2}


class Step(NamedTuple):
    """A step with options: its function, which states it has and whether they are positive, and its formula.

    `formula(p, g, *states)` returns the new parameter and states, in float64.
    """

    function: str
    states: dict[str, bool]
    options: dict[str, Any]
    formula: Callable[..., Sequence[Array]]


STEPS: dict[str, Step] = {}
"""By name: the function's, and the options that differ."""


def check_step(
    step: Step, device: str | Device, dtypes: Sequence[DType] = DTYPES, shapes: Sequence[tuple[int, ...]] = SHAPES
) -> None:
    """Makes the step twice for parameters of all shapes, and compares with the formula. Raises AssertionError."""
    for dtype in dtypes:
        # Multiples of 1/64 are exact in each dtype, and so are their signs.
        rng = np.random.default_rng(5)
        signs = [False, *step.states.values(), False]
        lists = [[_draw(rng, shape, positive) for shape in shapes] for positive in signs]
        moved = [[ops.tensor(a, dtype=dtype).to(device) for a in arrays] for arrays in lists]
        params, *states, grads = moved
        named = dict(zip(step.states, states, strict=True))
        for _ in range(2):
            getattr(ops, step.function)(params, grads, **named, **step.options)
            rows = [step.formula(row[0], row[-1], *row[1:-1]) for row in zip(*lists, strict=True)]
            lists[:-1] = [list(column) for column in zip(*rows, strict=True)]
        bound = _BOUNDS[dtype]
        for name, tensors, arrays in zip(["params", *step.states, "grads"], moved, lists, strict=True):
            for t, a in zip(tensors, arrays, strict=True):
                np.testing.assert_allclose(
                    t.to("cpu").double().numpy(),
                    a,
                    bound,
                    bound,
                    err_msg=f"{step.function} {step.options}: {name}, {dtype}",
                )


def _draw(rng: np.random.Generator, shape: tuple[int, ...], positive: bool) -> Array:
    low, high = (64, 128) if positive else (-64, 65)
    return rng.integers(low, high, shape) / 64


def _steps(function: str, states: dict[str, bool], *variants: dict[str, Any]) -> Callable[[Any], Any]:
    """Enters the formula for the default options and for each variant; a state given as None is not there."""

    def enter(formula: Callable[..., Sequence[Array]]) -> Callable[..., Sequence[Array]]:
        for variant in variants:
            without = {k for k, v in variant.items() if v is None}
            options = {k: v for k, v in variant.items() if k not in without}
            kept = {k: v for k, v in states.items() if k not in without}
            there = [k not in without for k in states]

            def bound(p: Array, g: Array, *rows: Array, options: Any = options, there: Any = there) -> Sequence[Array]:
                given = iter(rows)
                found = formula(p, g, *(next(given) if is_there else None for is_there in there), **options)
                return [found[0], *(x for x, is_there in zip(found[1:], there, strict=True) if is_there)]

            label = " ".join(k if v is None or v is True else f"{k}={v}" for k, v in variant.items())
            STEPS[f"{function}({label})"] = Step(function, kept, options, bound)
        return formula

    return enter


def _decayed(p: Array, g: Array, weight_decay: float, maximize: bool) -> Array:
    return (-g if maximize else g) + weight_decay * p


_DECAY = dict(weight_decay=0.25)
_UP = dict(maximize=True, weight_decay=0.125)


@_steps(
    "sgd_step_",
    {"momentum_buffers": False},
    dict(lr=0.5, momentum_buffers=None),
    dict(lr=0.5, momentum_buffers=None, **_UP),
    dict(lr=0.5, momentum=0.75, dampening=0.25, **_DECAY),
    dict(lr=0.5, momentum=0.75, nesterov=True, **_UP),
)
def _sgd(p, g, b, lr, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False):  # type: ignore[no-untyped-def]
    d = _decayed(p, g, weight_decay, maximize)
    if b is not None:
        b = momentum * b + (1 - dampening) * d
        d = d + momentum * b if nesterov else b
    return p - lr * d, b


@_steps("update_averages_", {}, dict(weight=0.25), dict(weight=1.0))
def _averages(p, g, weight):  # type: ignore[no-untyped-def]
    return (p + weight * (g - p),)


@_steps(
    "asgd_step_", {"axs": False}, dict(eta=0.5), dict(eta=0.5, mu=0.25, lambd=0.125, **_DECAY), dict(eta=0.5, **_UP)
)
def _asgd(p, g, a, eta, mu=1.0, lambd=1e-4, weight_decay=0.0, maximize=False):  # type: ignore[no-untyped-def]
    p = (1 - lambd * eta) * p - eta * _decayed(p, g, weight_decay, maximize)
    return p, a + mu * (p - a)


@_steps(
    "rprop_step_",
    {"prevs": False, "step_sizes": True},
    dict(),
    dict(maximize=True, etaminus=0.25, etaplus=1.5, step_size_min=0.5, step_size_max=1.25),
)
def _rprop(p, g, q, s, etaminus=0.5, etaplus=1.2, step_size_min=1e-6, step_size_max=50.0, maximize=False):  # type: ignore[no-untyped-def]
    g = -g if maximize else g
    s = np.clip(s * np.choose(np.sign(g * q).astype(int) + 1, [etaminus, 1.0, etaplus]), step_size_min, step_size_max)
    q = np.where(g * q < 0, 0.0, g)
    return p - np.sign(q) * s, q, s


@_steps(
    "lion_step_",
    {"exp_avgs": False},
    dict(lr=0.5, beta1=0.5, beta2=0.75),
    dict(lr=0.5, beta1=0.5, beta2=0.5, **_DECAY),
    dict(lr=0.25, beta1=0.5, beta2=0.5, **_UP),
)
def _lion(p, g, m, lr, beta1, beta2, weight_decay=0.0, maximize=False):  # type: ignore[no-untyped-def]
    g = -g if maximize else g
    p = p - lr * (np.sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
    return p, beta2 * m + (1 - beta2) * g


def _moments(p: Array, g: Array, m: Array, v: Array, o: dict[str, Any]) -> tuple[Array, ...]:
    """The parameter, its gradient and the averages of Adam's relatives, for their options and the defaults."""
    decay = o.get("weight_decay", 0.0)
    if o.get("decoupled", False):
        p, decay = p - o["lr"] * decay * p, 0.0
    g = _decayed(p, g, decay, o.get("maximize", False))
    return p, g, o["beta1"] * m + (1 - o["beta1"]) * g, o["beta2"] * v + (1 - o["beta2"]) * g * g


_BETAS: dict[str, Any] = dict(lr=0.5, beta1=0.75, beta2=0.875, eps=0.125)
_VARIANTS = (_BETAS, {**_BETAS, **_DECAY}, {**_BETAS, **_UP, "decoupled": True})


@_steps(
    "adam_step_",
    {"exp_avgs": False, "exp_avg_sqs": True, "max_exp_avg_sqs": True},
    *({"step": 3, "max_exp_avg_sqs": None, **v} for v in _VARIANTS),
    {"step": 1, **_BETAS},
    {"step": 2, **_VARIANTS[2]},
)
def _adam(p, g, m, v, largest, step, lr, eps, **o):  # type: ignore[no-untyped-def]
    p, g, m, v = _moments(p, g, m, v, {"lr": lr, **o})
    largest = None if largest is None else np.maximum(largest, v)
    root = np.sqrt((v if largest is None else largest) / (1 - o["beta2"] ** step))
    return p - lr * m / (1 - o["beta1"] ** step) / (root + eps), m, v, largest


@_steps(
    "nadam_step_",
    {"exp_avgs": False, "exp_avg_sqs": True},
    *({"step": 3, "mu": 0.5, "mu_next": 0.625, "mu_product": 0.25, **v} for v in _VARIANTS),
)
def _nadam(p, g, m, v, step, mu, mu_next, mu_product, lr, eps, **o):  # type: ignore[no-untyped-def]
    p, g, m, v = _moments(p, g, m, v, {"lr": lr, **o})
    d = (1 - mu) * g / (1 - mu_product) + mu_next * m / (1 - mu_product * mu_next)
    return p - lr * d / (np.sqrt(v / (1 - o["beta2"] ** step)) + eps), m, v


@_steps(
    "radam_step_",
    {"exp_avgs": False, "exp_avg_sqs": True},
    *({"step": step, **v} for v in _VARIANTS for step in (2, 20)),
)
def _radam(p, g, m, v, step, lr, eps, **o):  # type: ignore[no-untyped-def]
    p, g, m, v = _moments(p, g, m, v, {"lr": lr, **o})
    d = m / (1 - o["beta1"] ** step)
    longest, kept = 2 / (1 - o["beta2"]) - 1, o["beta2"] ** step
    length = longest - 2 * step * kept / (1 - kept)
    if length > 5:
        rest = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        d = d * np.sqrt(rest) * np.sqrt(1 - kept) / (np.sqrt(v) + eps)
    return p - lr * d, m, v


@_steps(
    "adamax_step_",
    {"exp_avgs": False, "exp_infs": True},
    *({"step": 3, **{k: x for k, x in v.items() if k != "decoupled"}} for v in _VARIANTS),
)
def _adamax(p, g, m, u, step, lr, beta1, beta2, eps, weight_decay=0.0, maximize=False):  # type: ignore[no-untyped-def]
    g = _decayed(p, g, weight_decay, maximize)
    m, u = beta1 * m + (1 - beta1) * g, np.maximum(beta2 * u, np.abs(g) + eps)
    return p - lr / (1 - beta1**step) * m / u, m, u


@_steps("adagrad_step_", {"state_sums": True}, dict(lr=0.5), dict(lr=0.5, eps=0.5, **_DECAY), dict(lr=0.5, **_UP))
def _adagrad(p, g, s, lr, eps=1e-10, weight_decay=0.0, maximize=False):  # type: ignore[no-untyped-def]
    g = _decayed(p, g, weight_decay, maximize)
    s = s + g * g
    return p - lr * g / (np.sqrt(s) + eps), s


@_steps(
    "adadelta_step_",
    {"square_avgs": True, "acc_deltas": True},
    dict(lr=0.5),
    dict(lr=0.5, rho=0.5, eps=0.125, **_DECAY),
    dict(lr=0.5, **_UP),
)
def _adadelta(p, g, v, u, lr, rho=0.9, eps=1e-6, weight_decay=0.0, maximize=False):  # type: ignore[no-untyped-def]
    g = _decayed(p, g, weight_decay, maximize)
    v = rho * v + (1 - rho) * g * g
    d = np.sqrt(u + eps) / np.sqrt(v + eps) * g
    return p - lr * d, v, rho * u + (1 - rho) * d * d


@_steps(
    "rmsprop_step_",
    {"square_avgs": True, "grad_avgs": False, "momentum_buffers": False},
    dict(lr=0.5, grad_avgs=None, momentum_buffers=None),
    dict(lr=0.5, alpha=0.75, eps=0.125, momentum_buffers=None, **_DECAY),
    dict(lr=0.5, momentum=0.5, grad_avgs=None, **_UP),
    dict(lr=0.25, alpha=0.75, eps=0.25, momentum=0.5, **_UP),
)
def _rmsprop(p, g, v, m, b, lr, alpha=0.99, eps=1e-8, momentum=0.0, weight_decay=0.0, maximize=False):  # type: ignore[no-untyped-def]
    g = _decayed(p, g, weight_decay, maximize)
    v = alpha * v + (1 - alpha) * g * g
    m = None if m is None else alpha * m + (1 - alpha) * g
    d = g / (np.sqrt(v if m is None else v - m * m) + eps)
    b = None if b is None else momentum * b + d
    return p - lr * (d if b is None else b), v, m, b
