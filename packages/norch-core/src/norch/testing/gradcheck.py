"""Gradients against numerical differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.engine import grad
from ..dtype import float64
from ..errors import AutogradError, DTypeError

if TYPE_CHECKING:
    from ..tensor import Tensor


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether the gradients of `func` agree with central differences of step `eps`.

    inputs: the arguments; those that are tensors and require grad must be float64 (else DTypeError), and are checked.
    `func` returns a tensor or several. Each is compared as numeric to within atol + rtol * |numeric|, for a fixed
    random combination of the results' elements and every element of every input.

    Raises AutogradError with the worst element, or returns False where `raise_exception` is False.
    """
    return _check(func, func, inputs, eps, atol, rtol, raise_exception)


def _check(
    func: Callable[..., Any],
    values_of: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    eps: float,
    atol: float,
    rtol: float,
    raise_exception: bool,
) -> bool:
    """`gradcheck`, by differences of `values_of`, which computes what `func` does and need not record it."""
    arguments = list(_tuple(inputs))
    checked = _requiring_grad(arguments)
    if not checked:
        raise AutogradError("gradcheck(): no input requires grad")
    for i in checked:
        if arguments[i].dtype is not float64:
            raise DTypeError(f"gradcheck(): input {i} must be float64, got {arguments[i].dtype}")
    results = _tuple(func(*arguments))
    differentiable = _requiring_grad(results)
    outputs = [results[i] for i in differentiable]
    if not outputs:
        raise AutogradError("gradcheck(): no result requires grad")
    draw = np.random.default_rng(0)
    weights = [draw.uniform(0.5, 1.5, tuple(o.shape)) * draw.choice([-1, 1], tuple(o.shape)) for o in outputs]
    seeds = [o.new_tensor(w) for o, w in zip(outputs, weights, strict=True)]
    found = grad(outputs, [arguments[i] for i in checked], seeds, allow_unused=True)

    def value() -> float:
        results = _tuple(values_of(*arguments))
        pairs = zip(differentiable, weights, strict=True)
        return sum(float((results[i].detach().cpu().numpy() * w).sum()) for i, w in pairs)

    for i, analytic in zip(checked, found, strict=True):
        numeric = central_differences(value, arguments[i], eps)
        got = np.zeros_like(numeric) if analytic is None else analytic.detach().cpu().numpy()
        wrong = ~np.isclose(got, numeric, rtol, atol, equal_nan=True)
        if got.shape != numeric.shape or wrong.any():
            if not raise_exception:
                return False
            at = np.unravel_index(int(np.argmax(np.where(wrong, np.abs(got - numeric), -1))), wrong.shape)
            where = tuple(int(n) for n in at)
            raise AutogradError(
                f"gradcheck(): input {i} at {where}: the gradient is {got[at]:.8g}, numerically {numeric[at]:.8g}"
            )
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """`gradcheck` of the gradients of `func`: its second derivatives. Raises AutogradError and DTypeError alike."""
    arguments = list(_tuple(inputs))
    checked = _requiring_grad(arguments)

    def outputs_of(*values: Any) -> list[Any]:
        results = _tuple(func(*values))
        return [results[i] for i in _requiring_grad(results)]

    results = outputs_of(*arguments)
    if not results:
        raise AutogradError("gradgradcheck(): no result requires grad")
    draw = np.random.default_rng(1)
    seeds = [o.detach().new_tensor(draw.uniform(-1, 1, tuple(o.shape))).requires_grad_() for o in results]

    def first(*values: Any, create_graph: bool = False) -> tuple[Any, ...]:
        given, weights = values[: len(arguments)], values[len(arguments) :]
        by = [given[i] for i in checked]
        found = grad(outputs_of(*given), by, weights, create_graph=create_graph, allow_unused=True)
        return tuple(f for f in found if f is not None)

    def recorded(*values: Any) -> tuple[Any, ...]:
        # A part that is zero throughout has no graph; it is added to one that has.
        found = first(*values, create_graph=True)
        return tuple(f if f.requires_grad else f + 0 * values[checked[0]].sum() for f in found)

    return _check(recorded, first, [*arguments, *seeds], eps, atol, rtol, raise_exception)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _requiring_grad(values: Sequence[Any]) -> list[int]:
    """Which of them are tensors that require grad, by position."""
    return [i for i, value in enumerate(values) if getattr(value, "requires_grad", False)]


def central_differences(value: Callable[[], float], at: Any, eps: float) -> np.ndarray[Any, Any]:
    """(f(x + eps) - f(x - eps)) / 2 eps for every element of `at`, a tensor or an array that `value` depends on.

    It is changed in place and put back.
    """
    is_tensor = not isinstance(at, np.ndarray)
    elements = at.detach().cpu().numpy() if is_tensor else at  # on the CPU the tensor's own memory
    result = np.zeros(elements.shape)

    def change(place: tuple[int, ...], element: float) -> None:
        elements[place] = element
        if is_tensor and at.device.type != "cpu":
            at.detach().copy_(at.new_tensor(elements))

    for place in np.ndindex(elements.shape):
        before = float(elements[place])
        change(place, before + eps)
        above = value()
        change(place, before - eps)
        result[place] = (above - value()) / (2 * eps)
        change(place, before)
    return result
