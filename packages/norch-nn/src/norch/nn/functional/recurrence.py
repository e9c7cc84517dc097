"""Recurrent layers over all steps of a sequence, in one direction, by the names that autocast knows.

All take the input as (T, N, input), states as (N, hidden), and `mask`, None or a bool tensor of shape (T, N, 1), False
for the steps after a sequence's end, in which its states stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import norch

Tensor = norch.Tensor


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
    return _layer("RNN_TANH", input, states, weights, mask, reverse)


def rnn_relu(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return _layer("RNN_RELU", input, states, weights, mask, reverse)


def gru(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return _layer("GRU", input, states, weights, mask, reverse)


def lstm(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return _layer("LSTM", input, states, weights, mask, reverse)


def _layer(mode: str, input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    w_ih, w_hh, b_ih, b_hh, *w_hr = weights
    h, *c = states
    cx, projection = c[0] if c else None, w_hr[0] if w_hr else None
    return norch.recurrence(input, h, cx, w_ih, w_hh, b_ih, b_hh, projection, mask, mode=mode, reverse=reverse)


norch.check_functions(globals())  # which is where autocast finds them
_LAYERS = {"RNN_TANH": rnn_tanh, "RNN_RELU": rnn_relu, "GRU": gru, "LSTM": lstm}
