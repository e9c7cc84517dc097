"""Gradients against numerical differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np

from ..autograd.engine import grad
from ..dtype import float64
from ..errors import AutogradError

if TYPE_CHECKING:
    from ..tensor import Tensor


ROUNDING = 1e-13
"""How far sums in another order may be apart, relative to the largest element."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of `func` agree with central differences of step `eps`.

    inputs: the arguments; those that are tensors and require grad are checked. They should be float64: differences of
    others are rounded, which a UserWarning says. `func` returns a tensor or several. Complex numbers count as their
    real and imaginary parts. Each is compared as numeric to within atol + rtol * |numeric|, for a fixed random
    combination of the results' elements and every element of every input. With `fast_mode` the elements of an input
    are first moved together, along a fixed random direction: where that agrees to a hundredth of what the least of them
    may be off, they are not compared one by one.

    nondet_tol: how far, beyond rounding, the gradients of a second backward pass may be from the first's.

    check_undefined_grad, check_grad_dtypes, check_batched_grad, check_batched_forward_grad, check_forward_ad,
    check_backward_ad and masked are PyTorch's and change nothing.

    Raises AutogradError with the worst element, or returns False where `raise_exception` is False.
    """
    of_parts, parts = _of_parts(func, inputs)
    return _check(of_parts, of_parts, parts, eps, atol, rtol, raise_exception, fast_mode, nondet_tol)


def _of_parts(func: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], list[Any]]:
    """`func` and its arguments with tensors of parts in the place of complex numbers."""
    given = _tuple(inputs)
    kinds = [type(value) if hasattr(value, "pair") else None for value in given]

    def of_parts(*values: Any) -> tuple[Any, ...]:
        results = func(*[kind(value) if kind else value for kind, value in zip(kinds, values, strict=True)])
        return tuple([getattr(result, "pair", result) for result in _tuple(results)])

    return of_parts, [getattr(value, "pair", value) for value in given]


def _check(
    func: Callable[..., Any],
    values_of: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    eps: float,
    atol: float,
    rtol: float,
    raise_exception: bool,
    fast_mode: bool,
    nondet_tol: float,
) -> bool:
    """`gradcheck`, by differences of `values_of`, which computes what `func` does and need not record it."""
    arguments = list(_tuple(inputs))
    checked = _requiring_grad(arguments)
    if not checked:
        raise AutogradError("gradcheck(): no input requires grad")
    for i in checked:
        if arguments[i].dtype is not float64:
            text = (
                f"gradcheck(): input {i} is {arguments[i].dtype}, whose rounding may exceed the tolerances; use float64"
            )
            warn(text, stacklevel=3)
    results = _tuple(func(*arguments))
    recorded = _requiring_grad(results)
    differentiable = recorded or [i for i, r in enumerate(results) if getattr(r, "is_floating_point", bool)()]
    outputs = [results[i] for i in differentiable]
    if not outputs:
        raise AutogradError("gradcheck(): no result requires grad")
    draw = np.random.default_rng(0)
    weights = [draw.uniform(0.5, 1.5, tuple(o.shape)) * draw.choice([-1, 1], tuple(o.shape)) for o in outputs]
    seeds = [o.new_tensor(w) for o, w in zip(outputs, weights, strict=True)]
    by = [arguments[i] for i in checked]
    if recorded:
        found = grad(outputs, by, seeds, retain_graph=True, allow_unused=True)
        second = grad(outputs, by, seeds, allow_unused=True)
    else:  # no result may change with an input
        found = second = (None,) * len(by)

    def value() -> float:
        results = _tuple(values_of(*arguments))
        pairs = zip(differentiable, weights, strict=True)
        return sum(float((results[i].detach().cpu().numpy() * w).sum()) for i, w in pairs)

    for i, analytic, again in zip(checked, found, second, strict=True):
        got = _array(analytic, arguments[i])
        apart = float(np.abs(got - _array(again, arguments[i])).max(initial=0))
        if apart > nondet_tol + ROUNDING * np.abs(got).max(initial=0):
            if not raise_exception:
                return False
            raise AutogradError(
                f"gradcheck(): Backward is not reentrant: run again, it gave input {i} gradients that are {apart:.3g} "
                f"from the first, more than nondet_tol, {nondet_tol:.3g}"
            )
        if fast_mode and got.shape == tuple(arguments[i].shape):
            direction = draw.uniform(0.5, 1.5, got.shape) * draw.choice([-1, 1], got.shape)
            along = _difference_along(value, arguments[i], direction, eps)
            least = np.abs(got).min(initial=np.inf)  # so that no large element hides a small one
            if np.isclose((got * direction).sum(), along, 0, (atol + rtol * min(least, 1)) / 100, equal_nan=True):
                continue
        numeric = central_differences(value, arguments[i], eps)
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
    grad_outputs: Tensor | Sequence[Any] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func`: its second derivatives. Raises AutogradError alike.

    grad_outputs: the gradients that come in, in the place of random ones. gen_non_contig_grad_outputs,
    check_undefined_grad, check_grad_dtypes, check_batched_grad, check_fwd_over_rev, check_rev_over_rev and masked are
    PyTorch's and change nothing.
    """
    func, arguments = _of_parts(func, inputs)
    checked = _requiring_grad(arguments)

    def outputs_of(*values: Any) -> list[Any]:
        results = _tuple(func(*values))
        return [results[i] for i in _requiring_grad(results)]

    results = outputs_of(*arguments)
    if not results:
        raise AutogradError("gradgradcheck(): no result requires grad")
    draw = np.random.default_rng(1)
    seeds = (
        [o.detach().new_tensor(draw.uniform(-1, 1, tuple(o.shape))).requires_grad_() for o in results]
        if grad_outputs is None
        else [getattr(g, "pair", g) for g in _tuple(grad_outputs)]
    )

    def first(*values: Any, create_graph: bool = False) -> tuple[Any, ...]:
        given, weights = values[: len(arguments)], values[len(arguments) :]
        by = [given[i] for i in checked]
        found = grad(outputs_of(*given), by, weights, create_graph=create_graph, allow_unused=True)
        return tuple(f for f in found if f is not None)

    def recorded(*values: Any) -> tuple[Any, ...]:
        # A part that is zero throughout has no graph; it is added to one that has.
        found = first(*values, create_graph=True)
        return tuple(f if f.requires_grad else f + 0 * values[checked[0]].sum() for f in found)

    return _check(recorded, first, [*arguments, *seeds], eps, atol, rtol, raise_exception, fast_mode, nondet_tol)


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _requiring_grad(values: Sequence[Any]) -> list[int]:
    """Which of them are tensors that require grad, by position."""
    return [i for i, value in enumerate(values) if getattr(value, "requires_grad", False)]


def central_differences(value: Callable[[], float], at: Any, eps: float) -> np.ndarray[Any, Any]:
    """(f(x + eps) - f(x - eps)) / 2 eps for every element of `at`, a tensor or an array that `value` depends on.

    It is changed in place and put back.
    """
    elements, store = _memory(at)
    result = np.zeros(elements.shape)
    for place in np.ndindex(elements.shape):
        before = float(elements[place])
        found = []
        for element in (before + eps, before - eps):
            elements[place] = element
            store()
            found.append(value())
        result[place] = (found[0] - found[1]) / (2 * eps)
        elements[place] = before
    store()
    return result


def _difference_along(value: Callable[[], float], at: Any, direction: np.ndarray[Any, Any], eps: float) -> float:
    """(f(x + eps d) - f(x - eps d)) / 2 eps for the direction d, in the same way."""
    elements, store = _memory(at)
    before, found = elements.copy(), []
    for step in (eps, -eps):
        elements[...] = before + step * direction
        store()
        found.append(value())
    elements[...] = before
    store()
    return (found[0] - found[1]) / (2 * eps)


def _memory(at: Any) -> tuple[np.ndarray[Any, Any], Callable[[], Any]]:
    """The elements of a tensor or an array, to be changed, and what to call when they have been."""
    if isinstance(at, np.ndarray):
        return at, lambda: None
    elements = at.detach().cpu().numpy()
    if at.device.type == "cpu":  # the tensor's own memory
        return elements, lambda: None
    return elements, lambda: at.detach().copy_(at.new_tensor(elements))


def _array(gradient: Tensor | None, of: Tensor) -> Any:
    return np.zeros(tuple(of.shape)) if gradient is None else gradient.detach().cpu().numpy()
