"""One time step of a recurrent layer.

Every function takes weights as the modules keep them: `w_ih` of shape (gates * hidden, input), `w_hh` (gates * hidden,
hidden), biases (gates * hidden) or None.
"""

from __future__ import annotations

import norch

Weight = norch.Tensor | None


def rnn_tanh_cell(
    input: norch.Tensor, hx: norch.Tensor, w_ih: norch.Tensor, w_hh: norch.Tensor, b_ih: Weight, b_hh: Weight
) -> norch.Tensor:
    """tanh(w_ih x + b_ih + w_hh h + b_hh): from (N, input) and (N, hidden), N optional, to (N, hidden)."""
    return _step("RNN_TANH", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


def rnn_relu_cell(
    input: norch.Tensor, hx: norch.Tensor, w_ih: norch.Tensor, w_hh: norch.Tensor, b_ih: Weight, b_hh: Weight
) -> norch.Tensor:
    """The same with max(·, 0) for tanh."""
    return _step("RNN_RELU", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


def lstm_cell(
    input: norch.Tensor,
    hx: tuple[norch.Tensor, norch.Tensor],
    w_ih: norch.Tensor,
    w_hh: norch.Tensor,
    b_ih: Weight = None,
    b_hh: Weight = None,
) -> tuple[norch.Tensor, norch.Tensor]:
    """The next (h, c) of a long short-term memory (Hochreiter and Schmidhuber, 1997), gates in the order i, f, g, o."""
    h, c = _step("LSTM", input, hx, (w_ih, w_hh, b_ih, b_hh))
    return h, c


def gru_cell(
    input: norch.Tensor,
    hx: norch.Tensor,
    w_ih: norch.Tensor,
    w_hh: norch.Tensor,
    b_ih: Weight = None,
    b_hh: Weight = None,
) -> norch.Tensor:
    """The next h of a gated recurrent unit (Cho et al., 2014), gates in the order r, z, n; r gates w_hn h + b_hn."""
    return _step("GRU", input, (hx,), (w_ih, w_hh, b_ih, b_hh))[0]


def _step(
    mode: str, input: norch.Tensor, states: tuple[norch.Tensor, ...], weights: tuple[Weight, ...]
) -> tuple[norch.Tensor, ...]:
    w_ih, w_hh, b_ih, b_hh = weights
    h = states[0]
    if not (input.dtype is h.dtype is w_ih.dtype) or norch.is_autocast_enabled(input.device.type):
        return _mixed_step(mode, input, states, weights)
    if input.ndim == 1:
        found = norch.recurrence(
            input.unsqueeze(0), *[x.unsqueeze(0) for x in states], *[None] * (2 - len(states)), *weights, mode=mode
        )
        return tuple([x.squeeze(0) for x in found])
    return norch.recurrence(input, h, states[1] if mode == "LSTM" else None, w_ih, w_hh, b_ih, b_hh, mode=mode)


def _mixed_step(
    mode: str, input: norch.Tensor, states: tuple[norch.Tensor, ...], weights: tuple[Weight, ...]
) -> tuple[norch.Tensor, ...]:
    """A step of which autocast takes the products alone in 16 bits, or whose operands are of several dtypes."""
    w_ih, w_hh, b_ih, b_hh = weights
    of_input, of_state = norch.linear(input, w_ih, b_ih), norch.linear(states[0], w_hh, b_hh)
    if mode == "LSTM":
        i, f, g, o = (of_input + of_state).chunk(4, -1)
        c = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if mode == "GRU":
        size = states[0].shape[-1]
        r, z = (of_input[..., : 2 * size] + of_state[..., : 2 * size]).sigmoid().chunk(2, -1)
        n = (of_input[..., 2 * size :] + r * of_state[..., 2 * size :]).tanh()
        return (n + z * (states[0] - n),)
    return ((of_input + of_state).tanh() if mode == "RNN_TANH" else (of_input + of_state).relu(),)


norch.check_functions(globals())  # which is where autocast finds them
