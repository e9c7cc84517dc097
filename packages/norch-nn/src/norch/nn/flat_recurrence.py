"""Recurrent layers of any number, in one direction or both, as functions of their weights: what `torch._VF` has.

`lstm`, `gru`, `rnn_tanh` and `rnn_relu` take `(input, hx, params, has_biases, num_layers, dropout, train,
bidirectional, batch_first)`, or of packed sequences `(data, batch_sizes, hx, params, has_biases, num_layers, dropout,
train, bidirectional)`, and give `(output, *states)`: what RNN, LSTM and GRU compute. input: (T, N, input), or (N, T,
input) if batch_first. hx: the states, (num_layers * directions, N, hidden), a pair for lstm. params: the weights of
each layer and direction one after another, as `_flat_weights` of a module lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import norch

from . import functional as F
from .functional.recurrence import recurrence
from .utils.rnn import PackedSequence, pack, steps_of, unpack

Tensor = norch.Tensor


def through_layers(
    mode: str,
    input: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Sequence[Tensor | None]],
    mask: Tensor | None,
    directions: int,
    dropout: float,
) -> tuple[Tensor, list[Tensor]]:
    """(T, N, *) through all layers: the states h of the last, and the last states of all layers and directions.

    weights: of each layer and direction, as `recurrence` takes them. dropout: the share of each layer's results but the
    last's that becomes 0.
    """
    first = [x.unbind(0) for x in states]
    last = []
    for i in range(0, len(weights), directions):
        if i and dropout:
            input = F.dropout(input, dropout)
        outputs = []
        for d in range(directions):
            out, *rest = recurrence(mode, input, [x[i + d] for x in first], weights[i + d], mask, d == 1)
            outputs.append(out)
            last.append(rest)
        input = outputs[0] if directions == 1 else norch.cat(outputs, -1)
    return input, [norch.stack(x) for x in zip(*last)]


def _layers(params: Sequence[Tensor], has_biases: bool, count: int) -> list[list[Tensor | None]]:
    """The weights of each layer and direction: w_ih, w_hh, b_ih, b_hh and, where there is one, w_hr."""
    size = len(params) // count
    groups: list[list[Any]] = [list(params[i : i + size]) for i in range(0, count * size, size)]
    return groups if has_biases else [[*group[:2], None, None, *group[2:]] for group in groups]


def _flat(mode: str, input: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, ...]:
    names = "hx params has_biases num_layers dropout train bidirectional batch_first".split()
    packed = "batch_sizes" in named or (bool(rest) and _is_sizes(rest[0]))
    given: dict[str, Any] = dict(zip(["batch_sizes", *names[:-1]] if packed else names, rest), **named)
    directions = 1 + bool(given["bidirectional"])
    weights = _layers(given["params"], given["has_biases"], given["num_layers"] * directions)
    states = list(given["hx"]) if mode == "LSTM" else [given["hx"]]
    dropout = given["dropout"] if given["train"] else 0.0
    if packed:
        sequence = PackedSequence(input, given["batch_sizes"])
        steps = steps_of(sequence)
        mask = None if len(input) == steps.numel() else steps.unsqueeze(-1).to(input.device)
        out, last = through_layers(mode, unpack(sequence, steps), states, weights, mask, directions, dropout)
        return pack(out, steps), *last
    input = input.transpose(0, 1) if given["batch_first"] else input
    out, last = through_layers(mode, input, states, weights, None, directions, dropout)
    return out.transpose(0, 1) if given["batch_first"] else out, *last


def _is_sizes(value: Any) -> bool:
    """Whether an argument is the sizes of a packed sequence's batches, and no state."""
    return isinstance(value, Tensor) and not value.is_floating_point()


lstm: Callable[..., tuple[Tensor, ...]] = partial(_flat, "LSTM")
gru: Callable[..., tuple[Tensor, ...]] = partial(_flat, "GRU")
rnn_tanh: Callable[..., tuple[Tensor, ...]] = partial(_flat, "RNN_TANH")
rnn_relu: Callable[..., tuple[Tensor, ...]] = partial(_flat, "RNN_RELU")
