"""RNNCell, LSTMCell and GRUCell: one time step."""

from __future__ import annotations

import math
from typing import Any

import norch

from . import init
from .functional.cells import gru_cell, lstm_cell, rnn_relu_cell, rnn_tanh_cell
from .module import Module
from .parameter import optional_parameter


class RNNCellBase(Module):
    """What the cells share: `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh`, with `num_chunks * hidden_size` rows.

    All start uniform between -1/sqrt(hidden_size) and 1/sqrt(hidden_size). input_size, hidden_size: the features of the
    input and of the states.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        for name, shape in {
            "weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size), "bias_ih": (rows,), "bias_hh": (rows,),
        }.items():  # fmt: skip
            wanted = bias or name.startswith("weight")
            self.register_parameter(name, optional_parameter(wanted, shape, device, dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws every parameter again from the default generator."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _checked(self, input: norch.Tensor, *states: norch.Tensor) -> None:
        name = type(self).__name__
        if input.ndim not in (1, 2) or input.shape[-1] != self.input_size:
            raise norch.ShapeError(
                f"{name}: expected input (N, {self.input_size}), N optional, got {tuple(input.shape)}"
            )
        expected = (*input.shape[:-1], self.hidden_size)
        for state in states:
            if tuple(state.shape) != expected:
                raise norch.ShapeError(f"{name}: expected a state {expected}, got {tuple(state.shape)}")

    def _zeros(self, input: norch.Tensor) -> norch.Tensor:
        return norch.zeros((*input.shape[:-1], self.hidden_size), dtype=input.dtype, device=input.device)

    def extra_repr(self) -> str:
        shown = f"{self.input_size}, {self.hidden_size}"
        return shown if self.bias else f"{shown}, bias={self.bias}"


class RNNCell(RNNCellBase):
    """tanh, or relu, of W_ih x + b_ih + W_hh h + b_hh: (N, input_size) and hx (N, hidden_size), N optional, to the next
    h (Elman, 1990).

    h is 0 where it is not given. Raises ShapeError for shapes that do not fit, ValueError for another nonlinearity.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: norch.Tensor, hx: norch.Tensor | None = None) -> norch.Tensor:
        hx = self._zeros(input) if hx is None else hx
        self._checked(input, hx)
        cell = rnn_tanh_cell if self.nonlinearity == "tanh" else rnn_relu_cell
        return cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

    def extra_repr(self) -> str:
        shown = super().extra_repr()
        return shown if self.nonlinearity == "tanh" else f"{shown}, nonlinearity={self.nonlinearity}"


class LSTMCell(RNNCellBase):
    """One step of an LSTM (Hochreiter and Schmidhuber, 1997): (N, input_size) and hx, the states (h, c) of (N,
    hidden_size), N optional, to the next (h, c).

    The states are 0 where they are not given. Raises ShapeError for shapes that do not fit.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: norch.Tensor, hx: tuple[norch.Tensor, norch.Tensor] | None = None
    ) -> tuple[norch.Tensor, norch.Tensor]:
        if hx is None:
            zeros = self._zeros(input)
            hx = zeros, zeros
        self._checked(input, *hx)
        return lstm_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class GRUCell(RNNCellBase):
    """One step of a GRU (Cho et al., 2014): (N, input_size) and hx, the h of (N, hidden_size), N optional, to the next
    h.

    h is 0 where it is not given. Raises ShapeError for shapes that do not fit.
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: norch.Tensor, hx: norch.Tensor | None = None) -> norch.Tensor:
        hx = self._zeros(input) if hx is None else hx
        self._checked(input, hx)
        return gru_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
