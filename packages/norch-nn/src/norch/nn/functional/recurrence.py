"""Recurrent layers over all steps of a sequence, in one direction.

Each is a Function: the input's products of all steps are one, a step is a handful of ops, and the gradient of each
weight is one product over all steps. Where the backward pass is itself recorded, it goes through the cells instead.

All take the input as (T, N, input), states as (N, hidden), and `mask`, None or a bool tensor of shape (T, N, 1), False
for the steps after a sequence's end, in which its states stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch.autograd import Function

from .cells import gru_cell, lstm_cell, rnn_relu_cell, rnn_tanh_cell

Tensor = norch.Tensor
_CELLS: dict[str, Callable[..., Any]] = {"RNN_TANH": rnn_tanh_cell, "RNN_RELU": rnn_relu_cell, "GRU": gru_cell}


def recurrence(
    mode: str,
    input: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    mask: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """The states h of all steps, (T, N, hidden), and the last states.

    mode: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM". weights: w_ih, w_hh, b_ih, b_hh and, for an LSTM, w_hr. reverse: from
    the last step to the first.
    """
    out: tuple[Tensor, ...] = _LAYERS[mode](input, states, weights, mask, reverse)
    return out


def rnn_tanh(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return RNNTanh.apply(input, *states, *weights, mask, reverse)


def rnn_relu(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return RNNReLU.apply(input, *states, *weights, mask, reverse)


def gru(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return GRU.apply(input, *states, *weights, mask, reverse)


def lstm(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return LSTM.apply(input, *states, *weights, mask, reverse)


def _steps(count: int, reverse: bool) -> range:
    return range(count - 1, -1, -1) if reverse else range(count)


def _before(first: Tensor, states: Tensor, reverse: bool) -> Tensor:
    """The state that each step started from."""
    first = first.unsqueeze(0)
    return norch.cat([states[1:], first]) if reverse else norch.cat([first, states[:-1]])


def _unbind(x: Tensor | None, count: int) -> Sequence[Any]:
    return [None] * count if x is None else x.unbind(0)


def _masked(x: Tensor, mask: Tensor | None, other: float = 0.0) -> Tensor:
    return x if mask is None else norch.where(mask, x, other)


def _stack(steps: Sequence[Tensor]) -> Tensor:
    """stack(), by a shorter way."""
    return norch.cat(steps).unflatten(0, (len(steps), -1))


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def _weight_grad(slopes: Tensor, input: Tensor, needed: bool) -> Tensor | None:
    return _rows(slopes).mT @ _rows(input) if needed else None


def _bias_grad(slopes: Tensor, bias: Tensor | None) -> Tensor | None:
    return None if bias is None else slopes.sum((0, 1))


def _save(ctx: Any, reverse: bool, states: int, *tensors: Tensor | None) -> None:
    ctx.reverse, ctx.states = reverse, states
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _through_cells(ctx: Any, mode: str, grads: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The gradients as results of recorded ops, so that they can be differentiated again."""
    saved = ctx.saved_tensors[: len(ctx.needs_input_grad) - 1]
    input, states, weights, mask = saved[0], saved[1 : 1 + ctx.states], saved[1 + ctx.states : -1], saved[-1]
    xs, kept = input.unbind(0), _unbind(mask, len(input))
    out: list[Any] = [None] * len(xs)
    for t in _steps(len(xs), ctx.reverse):
        new = lstm_cell(xs[t], states, *weights) if mode == "LSTM" else (_CELLS[mode](xs[t], *states, *weights),)
        states = new if mask is None else [norch.where(kept[t], a, b) for a, b in zip(new, states)]
        out[t] = states[0]
    pairs = [(r, g) for r, g in zip((norch.stack(out), *states), grads) if g is not None]
    wanted = [x for x, needed in zip(saved, ctx.needs_input_grad) if needed]
    found = norch.autograd.grad(
        [r for r, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True
    )
    each = iter(found)
    return tuple(next(each) if needed else None for needed in ctx.needs_input_grad)


class RNNTanh(Function):
    mode = "RNN_TANH"

    @classmethod
    def forward(cls, ctx: Any, input: Tensor, first: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        w_ih, w_hh, b_ih, b_hh, mask, reverse = rest
        given = norch.linear(input, w_ih, None if b_ih is None else b_ih + b_hh).unbind(0)
        kept, h, out = _unbind(mask, len(input)), first, list(given)
        tanh = cls.mode == "RNN_TANH"
        for t in _steps(len(given), reverse):
            new = given[t] + norch.linear(h, w_hh)
            new = new.tanh() if tanh else new.relu()
            out[t] = h = new if mask is None else norch.where(kept[t], new, h)
        states = _stack(out)
        _save(ctx, reverse, 1, input, first, w_ih, w_hh, b_ih, b_hh, mask, states)
        return states, h

    @classmethod
    def backward(cls, ctx: Any, g_states: Tensor | None, g: Tensor | None) -> tuple[Any, ...]:
        if norch.is_grad_enabled():
            return _through_cells(ctx, cls.mode, (g_states, g))
        input, first, w_ih, w_hh, b_ih, _, mask, states = ctx.saved_tensors
        needs, count = ctx.needs_input_grad, len(input)
        slopes = 1 - states * states if cls.mode == "RNN_TANH" else (states > 0).to(states.dtype)
        slopes = _masked(slopes, mask)
        g = norch.zeros_like(first) if g is None else g
        each, given, kept = slopes.unbind(0), _unbind(g_states, count), _unbind(mask, count)
        for t in reversed(_steps(count, ctx.reverse)):
            if g_states is not None:
                g = g + given[t]
            back = each[t].mul_(g) @ w_hh
            g = back if mask is None else norch.where(kept[t], back, g)
        return (
            slopes @ w_ih if needs[0] else None,
            g,
            _weight_grad(slopes, input, needs[2]),
            _weight_grad(slopes, _before(first, states, ctx.reverse), needs[3]),
            *[_bias_grad(slopes, b_ih)] * 2,
            None,
            None,
        )


class RNNReLU(RNNTanh):
    mode = "RNN_RELU"


class GRU(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, first: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        w_ih, w_hh, b_ih, b_hh, mask, reverse = rest
        count, size = len(input), first.shape[-1]
        gates = norch.linear(input, w_ih, b_ih)
        gates_rz, gates_n = gates[..., : 2 * size].unbind(0), gates[..., 2 * size :].unbind(0)
        kept, h, out, from_state = _unbind(mask, count), first, list(gates_n), list(gates_n)
        kept_gates = any(ctx.needs_input_grad)  # in the memory of the product, for the gradient
        for t in _steps(count, reverse):
            of_h = norch.linear(h, w_hh, b_hh)
            of_rz = of_h.narrow(-1, 0, 2 * size)
            rz = (gates_rz[t].add_(of_rz) if kept_gates else gates_rz[t] + of_rz).sigmoid()
            from_state[t] = of_n = of_h.narrow(-1, 2 * size, size)
            n = (gates_n[t] + rz.narrow(-1, 0, size) * of_n).tanh()
            new = n + rz.narrow(-1, size, size) * (h - n)
            out[t] = h = new if mask is None else norch.where(kept[t], new, h)
        states = _stack(out)
        if kept_gates:
            _save(ctx, reverse, 1, input, first, w_ih, w_hh, b_ih, b_hh, mask, states, gates, _stack(from_state))
        return states, h

    @staticmethod
    def backward(ctx: Any, g_states: Tensor | None, g: Tensor | None) -> tuple[Any, ...]:
        if norch.is_grad_enabled():
            return _through_cells(ctx, "GRU", (g_states, g))
        input, first, w_ih, w_hh, b_ih, b_hh, mask, states, gates, from_state = ctx.saved_tensors
        needs, count, size = ctx.needs_input_grad, len(input), first.shape[-1]
        before = _before(first, states, ctx.reverse)
        r, z = gates[..., : 2 * size].sigmoid().chunk(2, -1)
        n = (gates[..., 2 * size :] + r * from_state).tanh()
        by_n = (1 - z) * (1 - n * n)
        by_state = by_n * r
        # What the gradient of h is multiplied by for those of r, z, the state's part of n, and n.
        slopes = norch.stack([by_state * from_state * (1 - r), (before - n) * z * (1 - z), by_state, by_n], 2)
        slopes = _masked(slopes, None if mask is None else mask.unsqueeze(-1))
        of_state = slopes[:, :, :3].flatten(2)
        g = norch.zeros_like(first) if g is None else g
        each, each_state, given = slopes.unbind(0), of_state.unbind(0), _unbind(g_states, count)
        passed = _masked(z, mask, 1.0).unbind(0)
        for t in reversed(_steps(count, ctx.reverse)):
            if g_states is not None:
                g = g + given[t]
            each[t].mul_(g.unsqueeze(1))
            g = each_state[t] @ w_hh + g * passed[t]
        of_input = norch.cat([slopes[:, :, :2].flatten(2), slopes[:, :, 3]], -1)
        return (
            of_input @ w_ih if needs[0] else None,
            g,
            _weight_grad(of_input, input, needs[2]),
            _weight_grad(of_state, before, needs[3]),
            _bias_grad(of_input, b_ih),
            _bias_grad(of_state, b_hh),
            None,
            None,
        )


class LSTM(Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, first: Tensor, first_c: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        w_ih, w_hh, b_ih, b_hh, w_hr, mask, reverse = rest
        count, size = len(input), first_c.shape[-1]
        gates = norch.linear(input, w_ih, None if b_ih is None else b_ih + b_hh)
        each, kept = gates.unbind(0), _unbind(mask, count)
        kept_gates = any(ctx.needs_input_grad)  # in the memory of the product, for the gradient
        h, c, out, cells = first, first_c, list(each), list(each)
        for t in _steps(count, reverse):
            of_h = norch.linear(h, w_hh)
            gate = each[t].add_(of_h) if kept_gates else each[t] + of_h
            open = gate.sigmoid()
            new_c = open.narrow(-1, size, size) * c
            new_c = new_c + open.narrow(-1, 0, size) * gate.narrow(-1, 2 * size, size).tanh()
            new = open.narrow(-1, 3 * size, size) * new_c.tanh()
            if w_hr is not None:
                new = norch.linear(new, w_hr)
            if mask is not None:
                new, new_c = norch.where(kept[t], new, h), norch.where(kept[t], new_c, c)
            out[t], cells[t] = h, c = new, new_c
        states = _stack(out)
        if kept_gates:
            saved = (input, first, first_c, w_ih, w_hh, b_ih, b_hh, w_hr, mask, states, gates, _stack(cells))
            _save(ctx, reverse, 2, *saved)
        return states, h, c

    @staticmethod
    def backward(ctx: Any, g_states: Tensor | None, g: Tensor | None, g_c: Tensor | None) -> tuple[Any, ...]:
        if norch.is_grad_enabled():
            return _through_cells(ctx, "LSTM", (g_states, g, g_c))
        input, first, first_c, w_ih, w_hh, b_ih, _, w_hr, mask, states, gates, cells = ctx.saved_tensors
        needs, count = ctx.needs_input_grad, len(input)
        gates = gates.unflatten(-1, (4, -1))
        i, f, _, o = gates.sigmoid().unbind(2)
        new, now, before = gates[:, :, 2].tanh(), cells.tanh(), _before(first_c, cells, ctx.reverse)
        # What the gradients of c (for i, f and g) and of h (for o) are multiplied by.
        slopes = norch.stack([new * i * (1 - i), before * f * (1 - f), i * (1 - new * new), now * o * (1 - o)], 2)
        slopes = _masked(slopes, None if mask is None else mask.unsqueeze(-1))
        of_gates, from_h = slopes.flatten(2), _masked(o * (1 - now * now), mask).unbind(0)
        each_c, each_h, each = slopes[:, :, :3].unbind(0), slopes[:, :, 3].unbind(0), of_gates.unbind(0)
        passed, given, kept = _masked(f, mask, 1.0).unbind(0), _unbind(g_states, count), _unbind(mask, count)
        g = norch.zeros_like(first) if g is None else g
        g_c = norch.zeros_like(first_c) if g_c is None else g_c
        projected: list[Any] = [None] * count
        for t in reversed(_steps(count, ctx.reverse)):
            if g_states is not None:
                g = g + given[t]
            projected[t] = g
            g_h = g if w_hr is None else g @ w_hr
            g_c = g_c + g_h * from_h[t]
            each_c[t].mul_(g_c.unsqueeze(1))
            each_h[t].mul_(g_h)
            g_c = g_c * passed[t]
            back = each[t] @ w_hh
            g = back if mask is None else norch.where(kept[t], back, g)
        g_w_hr = None
        if w_hr is not None and needs[7]:
            g_w_hr = _weight_grad(_masked(_stack(projected), mask), o * now, True)
        return (
            of_gates @ w_ih if needs[0] else None,
            g,
            g_c,
            _weight_grad(of_gates, input, needs[3]),
            _weight_grad(of_gates, _before(first, states, ctx.reverse), needs[4]),
            *[_bias_grad(of_gates, b_ih)] * 2,
            g_w_hr,
            None,
            None,
        )


norch.check_functions(globals())  # which is where autocast finds them
_LAYERS = {"RNN_TANH": rnn_tanh, "RNN_RELU": rnn_relu, "GRU": gru, "LSTM": lstm}
