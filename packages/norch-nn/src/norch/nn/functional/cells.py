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
    """tanh(w_ih x + b_ih + w_hh h + b_hh): from (N, input) and (N, hidden) to (N, hidden)."""
    return (norch.linear(input, w_ih, b_ih) + norch.linear(hx, w_hh, b_hh)).tanh()


def rnn_relu_cell(
    input: norch.Tensor, hx: norch.Tensor, w_ih: norch.Tensor, w_hh: norch.Tensor, b_ih: Weight, b_hh: Weight
) -> norch.Tensor:
    """The same with max(·, 0) for tanh."""
    return (norch.linear(input, w_ih, b_ih) + norch.linear(hx, w_hh, b_hh)).relu()


def lstm_cell(
    input: norch.Tensor,
    hx: tuple[norch.Tensor, norch.Tensor],
    w_ih: norch.Tensor,
    w_hh: norch.Tensor,
    b_ih: Weight = None,
    b_hh: Weight = None,
    w_hr: Weight = None,
) -> tuple[norch.Tensor, norch.Tensor]:
    """The next (h, c) of a long short-term memory (Hochreiter and Schmidhuber, 1997), gates in the order i, f, g, o.

    `w_hr`, of shape (proj, hidden), projects h (Sak et al., 2014).
    """
    h, c = hx
    i, f, g, o = (norch.linear(input, w_ih, b_ih) + norch.linear(h, w_hh, b_hh)).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return h if w_hr is None else norch.linear(h, w_hr), c


def gru_cell(
    input: norch.Tensor,
    hx: norch.Tensor,
    w_ih: norch.Tensor,
    w_hh: norch.Tensor,
    b_ih: Weight = None,
    b_hh: Weight = None,
) -> norch.Tensor:
    """The next h of a gated recurrent unit (Cho et al., 2014), gates in the order r, z, n; r gates w_hn h + b_hn."""
    from_input, from_state = norch.linear(input, w_ih, b_ih), norch.linear(hx, w_hh, b_hh)
    size = hx.shape[-1]
    r, z = (from_input[..., : 2 * size] + from_state[..., : 2 * size]).sigmoid().chunk(2, -1)
    n = (from_input[..., 2 * size :] + r * from_state[..., 2 * size :]).tanh()
    return n + z * (hx - n)


norch.check_functions(globals())  # which is where autocast finds them
