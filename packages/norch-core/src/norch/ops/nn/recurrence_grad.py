"""recurrence_grad: the gradients of a recurrent layer. Those of its weights are one product over all steps each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...spec import Spec
from ..creation import zeros_like
from ..elementwise.arithmetic import where
from ..families import composite
from ..shape.joining import cat
from .linear import linear_weight_grad

if TYPE_CHECKING:
    from ...tensor import Tensor

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def steps(count: int, reverse: bool) -> range:
    """The time steps in the order in which they are computed."""
    return range(count - 1, -1, -1) if reverse else range(count)


def _infer(
    g_states: Spec | None,
    g_h: Spec | None,
    g_c: Spec | None,
    input: Spec,
    hx: Spec,
    cx: Spec | None,
    weight_ih: Spec,
    weight_hh: Spec,
    weight_hr: Spec | None,
    mask: Spec | None,
    states: Spec,
    gates: Spec | None,
    cells: Spec | None,
    mode: str,
    reverse: bool,
    bias: bool,
    needs_input: bool,
    needs_weights: bool,
) -> tuple[Spec, ...]:
    found = [hx] if cx is None else [hx, cx]
    if needs_input:
        found.append(input)
    shapes: list[Any] = []
    if needs_weights:
        rows = tuple(weight_ih.shape[:1])
        shapes = [weight_ih.shape, weight_hh.shape, *[rows] * (bias + (bias and mode == "GRU"))]
        shapes += [] if weight_hr is None else [weight_hr.shape]
    return (*[s.like(s.shape) for s in found], *[weight_ih.like(s) for s in shapes])


class _Backward:
    """The gradients of the states, from the last step to the first, and what each step's gates contribute."""

    def __init__(self, g_states: Any, g_h: Any, g_c: Any, hx: Any, cx: Any, w_hh: Tensor, w_hr: Any, mask: Any) -> None:
        self.given = None if g_states is None else g_states.unbind(0)
        self.g = zeros_like(hx) if g_h is None else g_h
        self.g_c = g_c if g_c is not None or cx is None else zeros_like(cx)
        self.w_hh, self.w_hr, self.mask = w_hh, w_hr, mask
        self.kept = None if mask is None else mask.unbind(0)

    def masked(self, x: Tensor, other: float = 0.0) -> Tensor:
        mask = self.mask
        if mask is None:
            return x
        return where(mask if x.spec.ndim == mask.spec.ndim else mask.unsqueeze(-1), x, other)

    def total(self, t: int) -> Tensor:
        """The gradient of h after step t."""
        return self.g if self.given is None else self.g + self.given[t]

    def pass_on(self, t: int, g: Tensor, back: Tensor) -> None:
        self.g = back if self.kept is None else where(self.kept[t], back, g)

    def rnn(self, states: Tensor, mode: str, order: range) -> Tensor:
        slopes = 1 - states * states if mode == "RNN_TANH" else (states > 0).to(states.dtype)
        each, found = self.masked(slopes).unbind(0), [self.g] * len(order)
        for t in order:
            g = self.total(t)
            found[t] = each[t] * g
            self.pass_on(t, g, found[t] @ self.w_hh)
        return _joined(found)

    def gru(self, gates: Tensor, before: Tensor, order: range) -> tuple[Tensor, Tensor]:
        """Those of the input's part of r, z and n, and of the state's."""
        r, z, n, from_state = gates.chunk(4, -1)
        by_n = (1 - z) * (1 - n * n)
        by_state = by_n * r
        # What the gradient of h is multiplied by for those of r, z, the state's part of n, and n.
        parts = [by_state * from_state * (1 - r), (before - n) * z * (1 - z), by_state, by_n]
        each = self.masked(cat([p.unsqueeze(2) for p in parts], 2)).unbind(0)
        passed, found = self.masked(z, 1.0).unbind(0), [self.g] * len(order)
        for t in order:
            g = self.total(t)
            slopes = found[t] = each[t] * g.unsqueeze(1)
            self.g = slopes.narrow(1, 0, 3).flatten(1) @ self.w_hh + g * passed[t]
        slopes = _joined(found)
        of_state = slopes.narrow(2, 0, 3).flatten(2)
        return cat([slopes.narrow(2, 0, 2).flatten(2), slopes.select(2, 3)], -1), of_state

    def lstm(self, gates: Tensor, before: Tensor, now: Tensor, order: range) -> tuple[Tensor, Tensor]:
        """Those of the gates, and of h as it comes out of a projection."""
        i, f, new, o = gates.chunk(4, -1)
        # What the gradients of c (for i, f and g) and of h (for o) are multiplied by.
        parts = [new * i * (1 - i), before * f * (1 - f), i * (1 - new * new), now * o * (1 - o)]
        each = self.masked(cat([p.unsqueeze(2) for p in parts], 2)).unbind(0)
        from_h, passed = self.masked(o * (1 - now * now)).unbind(0), self.masked(f, 1.0).unbind(0)
        found, projected = [self.g] * len(order), [self.g] * len(order)
        for t in order:
            g = projected[t] = self.total(t)
            g_h = g if self.w_hr is None else g @ self.w_hr
            g_c = self.g_c + g_h * from_h[t]
            of_c = each[t].narrow(1, 0, 3) * g_c.unsqueeze(1)
            found[t] = cat([of_c.flatten(1), each[t].select(1, 3) * g_h], -1)
            self.g_c = g_c * passed[t]
            self.pass_on(t, g, found[t] @ self.w_hh)
        return _joined(found), _joined(projected)


def _joined(each: list[Tensor]) -> Tensor:
    return cat(each).reshape(len(each), *each[0].spec.shape)


def _before(first: Tensor, states: Tensor, reverse: bool) -> Tensor:
    """The state that each step started from."""
    first = first.unsqueeze(0)
    count = len(states) - 1
    return cat([states.narrow(0, 1, count), first] if reverse else [first, states.narrow(0, 0, count)])


@composite(_infer)
def recurrence_grad(
    g_states: Tensor | None,
    g_h: Tensor | None,
    g_c: Tensor | None,
    input: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_hr: Tensor | None,
    mask: Tensor | None,
    states: Tensor,
    gates: Tensor | None,
    cells: Tensor | None,
    mode: str,
    reverse: bool,
    bias: bool,
    needs_input: bool,
    needs_weights: bool,
) -> Any:
    """The gradients of hx; of cx if there is one; of input if `needs_input`; and if `needs_weights` those of weight_ih
    and weight_hh, of the bias if there is one (of a GRU of both, which differ there), of weight_hr if there is one.

    states, gates, cells: results of `recurrence`. For one step, states is h after it.
    """
    if input.spec.ndim == 2:
        input, states = input.unsqueeze(0), states.unsqueeze(0)
        gates = gates if gates is None else gates.unsqueeze(0)
        cells = cells if cells is None else cells.unsqueeze(0)
        found = recurrence_grad(
            g_states, g_h, g_c, input, hx, cx, weight_ih, weight_hh, weight_hr, mask, states, gates, cells, mode,
            reverse, bias, needs_input, needs_weights,
        )  # fmt: skip
        if not needs_input:
            return found
        at = 1 if cx is None else 2
        return (*found[:at], found[at].squeeze(0), *found[at + 1 :])
    run = _Backward(g_states, g_h, g_c, hx, cx, weight_hh, weight_hr, mask)
    order = steps(len(input), reverse)[::-1]
    before = _before(hx, states, reverse)
    now = projected = None
    if mode == "GRU":
        assert gates is not None
        of_input, of_state = run.gru(gates, before, order)
    elif mode == "LSTM":
        assert gates is not None
        assert cells is not None
        assert cx is not None
        now = cells.tanh()
        of_input, projected = run.lstm(gates, _before(cx, cells, reverse), now, order)
        of_state = of_input
    else:
        of_input = of_state = run.rnn(states, mode, order)
    results = [run.g] if cx is None else [run.g, run.g_c]
    if needs_input:
        results.append(of_input @ weight_ih)
    if needs_weights:
        results += [linear_weight_grad(of_input, input), linear_weight_grad(of_state, before)]
        if bias:
            results.append(of_input.sum((0, 1)))
            if mode == "GRU":
                results.append(of_state.sum((0, 1)))
        if weight_hr is not None:
            assert gates is not None
            assert now is not None
            assert projected is not None
            size = now.spec.shape[-1]
            results.append(linear_weight_grad(run.masked(projected), gates.narrow(-1, 3 * size, size) * now))
    return tuple(results) if len(results) > 1 else results[0]
