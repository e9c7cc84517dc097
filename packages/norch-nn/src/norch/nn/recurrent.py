"""RNN, LSTM and GRU over sequences."""

from __future__ import annotations

import math
import warnings
from dataclasses import InitVar
from typing import Any

import norch

from . import init
from .flat_recurrence import through_layers
from .layer import MAX_LAYERS, layer
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence, pack, steps_of, unpack

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


@layer()
class RNNBase(Module):
    """What the recurrent layers share. `mode`: "RNN_TANH", "RNN_RELU", "GRU" or "LSTM".

    input_size, hidden_size: the features of the input and of the states. num_layers: one above the other, with
    `dropout` between them in training. bidirectional: a second layer that reads backwards, whose states stand behind.

    The parameters of layer k are `weight_ih_lk`, `weight_hh_lk`, `bias_ih_lk`, `bias_hh_lk` and, with a projection,
    `weight_hr_lk`; those of the other direction end in `_reverse`. All start uniform between -1/sqrt(hidden_size) and
    1/sqrt(hidden_size).
    """

    mode: str
    input_size: int
    hidden_size: int
    num_layers: int = 1
    bias: bool = True
    batch_first: bool = False
    dropout: float = 0.0
    bidirectional: bool = False
    proj_size: int = 0
    device: InitVar[Any] = None
    dtype: InitVar[Any] = None

    def __post_init__(self, device: Any, dtype: Any) -> None:
        mode, input_size, hidden_size, proj_size = self.mode, self.input_size, self.hidden_size, self.proj_size
        _check_options(mode, input_size, hidden_size, self.num_layers, self.dropout, proj_size)
        self.dropout = float(self.dropout)
        directions = 2 if self.bidirectional else 1
        rows, width = _GATES[mode] * hidden_size, proj_size or hidden_size
        for depth in range(self.num_layers):
            columns = width * directions if depth else input_size
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, columns), "weight_hh": (rows, width)}
                if self.bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    parameter = Parameter(norch.empty(shape, device=device, dtype=dtype))
                    setattr(self, f"{name}_l{depth}{suffix}", parameter)
        self._complete()
        self.reset_parameters()

    def _complete(self) -> None:
        """The names of the parameters of each layer and direction, "" in place of those that it lacks."""
        order = _ORDER[: 5 if self.mode == "LSTM" else 4]
        ends = [f"_l{n}{end}" for n in range(self.num_layers) for end in ("", "_reverse")[: 1 + self.bidirectional]]
        known = self._parameter_names
        self._all_names = [[name + end if name + end in known else "" for name in order] for end in ends]

    def reset_parameters(self) -> None:
        """Draws every parameter again from the default generator."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Does nothing: here the parameters need not lie side by side."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[self.__dict__[name] for name in names if name] for names in self._all_names]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_names for name in names if name]

    @property
    def _flat_weights(self) -> list[norch.Tensor]:
        return [self.__dict__[name] for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: list[norch.Tensor]) -> None:
        self.__dict__.update(zip(self._flat_weights_names, weights, strict=True))

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """From (T, N, input_size), or (N, T, input_size) if batch_first, (T, input_size) or a PackedSequence, to the
        states of the last layer in the same form and the last states of each layer and direction.

        hx: the first states, (num_layers * directions, N, hidden_size), without N if the input has none; 0 by default.
        An LSTM takes and gives a pair of states, h (of width proj_size if there is one) and c. Raises ShapeError for
        shapes that do not fit.
        """
        if isinstance(input, PackedSequence):
            steps = steps_of(input)
            mask = None if len(input.data) == steps.numel() else steps.unsqueeze(-1).to(input.data.device)
            self._check_width(input.data)
            states = self._states(hx, input.data, steps.shape[1], input.sorted_indices)
            out, last = self._run(unpack(input, steps), states, mask)
            if input.unsorted_indices is not None:
                last = [x.index_select(1, input.unsorted_indices) for x in last]
            return input._replace(data=pack(out, steps)), tuple(last) if self.mode == "LSTM" else last[0]
        if not isinstance(input, norch.Tensor):
            raise norch.DTypeError(
                f"{type(self).__name__}(): input must be a Tensor or a PackedSequence, got {input!r}"
            )
        if input.ndim not in (2, 3):
            raise norch.ShapeError(f"{type(self).__name__}: expected input of 2 or 3 dims, got {tuple(input.shape)}")
        batched = input.ndim == 3
        if not batched:
            input = input.unsqueeze(1)
            hx = self._with_batch(hx)
        elif self.batch_first:
            input = input.transpose(0, 1)
        self._check_width(input)
        if not input.shape[0]:
            raise norch.ShapeError(f"{type(self).__name__}: expected at least one time step")
        out, last = self._run(input, self._states(hx, input, input.shape[1], None), None)
        if not batched:
            out, last = out.squeeze(1), [x.squeeze(1) for x in last]
        elif self.batch_first:
            out = out.transpose(0, 1)
        return out, tuple(last) if self.mode == "LSTM" else last[0]

    def _run(
        self, input: norch.Tensor, states: list[norch.Tensor], mask: norch.Tensor | None
    ) -> tuple[norch.Tensor, list[norch.Tensor]]:
        """(T, N, *) through all layers. The states are those of all layers and directions."""
        own, dropout = self.__dict__, self.dropout if self.training else 0.0
        weights = [[own[name] if name else None for name in names] for names in self._all_names]
        return through_layers(self.mode, input, states, weights, mask, 2 if self.bidirectional else 1, dropout)

    def _check_width(self, input: norch.Tensor) -> None:
        if input.shape[-1] != self.input_size:
            raise norch.ShapeError(
                f"{type(self).__name__}: the last dim of the input should be {self.input_size}, got "
                f"{tuple(input.shape)}"
            )

    def _with_batch(self, hx: Any) -> Any:
        """The states of an input without a batch dim, with one."""
        if hx is None:
            return None
        for x in hx if self.mode == "LSTM" else (hx,):
            if x.ndim != 2:
                raise norch.ShapeError(
                    f"{type(self).__name__}: for an input without a batch, states should have 2 dims, got "
                    f"{tuple(x.shape)}"
                )
        return tuple(x.unsqueeze(1) for x in hx) if self.mode == "LSTM" else hx.unsqueeze(1)

    def _states(self, hx: Any, input: norch.Tensor, count: int, order: norch.Tensor | None) -> list[norch.Tensor]:
        """The first states, checked, for `count` sequences put in `order`."""
        layers = len(self._all_names)
        shapes = [(layers, count, self.proj_size or self.hidden_size)]
        if self.mode == "LSTM":
            shapes.append((layers, count, self.hidden_size))
        if hx is None:
            return [norch.zeros(s, dtype=input.dtype, device=input.device) for s in shapes]
        given = list(hx) if self.mode == "LSTM" else [hx]
        if len(given) != len(shapes):
            raise norch.ShapeError(f"{type(self).__name__}: expected a pair of states (h, c), got {len(given)}")
        for x, shape in zip(given, shapes):
            if tuple(x.shape) != shape:
                raise norch.ShapeError(f"{type(self).__name__}: expected states {shape}, got {tuple(x.shape)}")
        return given if order is None else [x.index_select(1, order) for x in given]

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        usual = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0, "bidirectional": False,
        }  # fmt: skip
        shown += [f"{name}={own}" for name, value in usual.items() if (own := getattr(self, name)) != value]
        return ", ".join(shown)


_ORDER = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")


def _check_options(
    mode: str, input_size: int, hidden_size: int, num_layers: int, dropout: float, proj_size: int
) -> None:
    if mode not in _GATES:
        raise ValueError(f"unrecognized RNN mode: {mode}; expected one of {', '.join(_GATES)}")
    for name, value, least in (("input_size", input_size, 0), ("hidden_size", hidden_size, 1)):
        if not isinstance(value, int):
            raise TypeError(f"{mode}: {name} should be of type int, got {type(value).__name__}")
        if value < least:
            raise ValueError(f"{mode}: {name} must be at least {least}, got {value}")
    if num_layers < 1:
        raise ValueError(f"{mode}: num_layers must be greater than zero, got {num_layers}")
    if num_layers > MAX_LAYERS:
        raise ValueError(f"{mode}: num_layers must be at most {MAX_LAYERS}, got {num_layers}")
    if isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(f"{mode}: dropout should be a number from 0 to 1, got {dropout}")
    if proj_size and mode != "LSTM":
        raise ValueError(f"{mode}: proj_size is only there for LSTM")
    if not 0 <= proj_size < hidden_size:
        raise ValueError(f"{mode}: proj_size has to be from 0 to less than hidden_size, got {proj_size}")
    if dropout and num_layers == 1:
        warnings.warn(
            "dropout comes after all but the last recurrent layer, so that it needs num_layers greater than 1; got "
            f"dropout={dropout} and num_layers={num_layers}",
            stacklevel=6,
        )


class RNN(RNNBase):
    """Elman's layer (1990): h' = nonlinearity(W_ih x + b_ih + W_hh h + b_hh), "tanh" or "relu" (ValueError for
    another). For the call see `forward`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity {nonlinearity!r}. Select from 'tanh' or 'relu'.")
        mode = "RNN_" + nonlinearity.upper()
        super().__init__(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): i, f, o = sigmoid, g = tanh of W_ih x + b_ih + W_hh h
    + b_hh; c' = f c + i g; h' = o tanh(c'), times W_hr with a proj_size. For the call see `forward`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent unit (Cho et al., 2014): r, z = sigmoid of W_ih x + b_ih + W_hh h + b_hh; n = tanh(W_in x + b_in
    + r (W_hn h + b_hn)); h' = (1 - z) n + z h. For the call see `forward`.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
