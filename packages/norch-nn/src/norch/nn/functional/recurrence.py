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
    return norch.recurrence(input, *states, None, *weights, None, mask, mode="RNN_TANH", reverse=reverse)


def rnn_relu(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return norch.recurrence(input, *states, None, *weights, None, mask, mode="RNN_RELU", reverse=reverse)


def gru(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return norch.recurrence(input, *states, None, *weights, None, mask, mode="GRU", reverse=reverse)


def lstm(input: Tensor, states: Any, weights: Any, mask: Tensor | None, reverse: bool) -> Any:
    return norch.recurrence(input, *states, *weights, mask, mode="LSTM", reverse=reverse)


norch.check_functions(globals())  # which is where autocast finds them
_LAYERS = {"RNN_TANH": rnn_tanh, "RNN_RELU": rnn_relu, "GRU": gru, "LSTM": lstm}
