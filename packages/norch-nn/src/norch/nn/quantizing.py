"""PyTorch's names of quantisation: `quantize_dynamic`, by the layers of `norch.nn.quantized`, and the parts of models
that are prepared for it, which compute with floats."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import norch

from .linear import Linear
from .module import Module
from .quantized import quantize_


class QuantStub(Module):
    """Where PyTorch begins to quantise once a model is converted; until then, and here, its input as it is.

    qconfig: taken for PyTorch's sake.
    """

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Where PyTorch ends to quantise: its input as it is. qconfig: taken for PyTorch's sake."""


class FloatFunctional(Module):
    """Arithmetic as methods, so that PyTorch can replace it when it converts a model. Shapes, dtypes and errors are
    those of the functions."""

    def forward(self, x: Any) -> None:
        """Raises RuntimeError: its methods are what is called."""
        raise RuntimeError("FloatFunctional is not intended to use the 'forward'. Please use the underlying operation")

    def add(self, x: norch.Tensor, y: norch.Tensor) -> norch.Tensor:
        """x + y"""
        return norch.add(x, y)

    def add_scalar(self, x: norch.Tensor, y: float) -> norch.Tensor:
        """x + y for a number y"""
        return norch.add(x, y)

    def mul(self, x: norch.Tensor, y: norch.Tensor) -> norch.Tensor:
        """x * y"""
        return norch.mul(x, y)

    def mul_scalar(self, x: norch.Tensor, y: float) -> norch.Tensor:
        """x * y for a number y"""
        return norch.mul(x, y)

    def cat(self, x: list[norch.Tensor], dim: int = 0) -> norch.Tensor:
        """The tensors of the list x along `dim`."""
        return norch.cat(x, dim)

    def add_relu(self, x: norch.Tensor, y: norch.Tensor) -> norch.Tensor:
        """relu(x + y)"""
        return norch.relu(norch.add(x, y))

    def matmul(self, x: norch.Tensor, y: norch.Tensor) -> norch.Tensor:
        """x @ y"""
        return norch.matmul(x, y)


def quantize_dynamic(
    model: Module,
    qconfig_spec: Any = None,
    dtype: Any = None,
    mapping: Any = None,
    inplace: bool = False,
) -> Module:
    """A model whose linear layers have weights of 8 bits with a scale for each row, see `quantized.quantize_`.

    qconfig_spec: which layers, a set of classes and of dotted names, whose submodules are meant too, or a dict of these
    that maps those that are left out to None; by default all linear layers. Others that are named, such as recurrent
    ones, stay as they are, as do activations. dtype: `qint8`. inplace: whether `model` itself is changed.

    Raises NotImplementedError for another dtype, and for a `mapping` to layers of one's own.
    """
    if dtype not in (None, norch.qint8) or mapping is not None:
        raise NotImplementedError(f"quantize_dynamic(): norch has qint8 without a mapping, got {dtype}, {mapping}")
    spec: Any = {Linear} if qconfig_spec is None else qconfig_spec
    wanted = {key for key in spec if not isinstance(spec, Mapping) or spec[key] is not None}
    without = set(spec) - wanted

    def chosen(module: Module, name: str) -> bool:
        paths = name.split(".")
        for at in range(len(paths), 0, -1):
            path = ".".join(paths[:at])
            if path in wanted or path in without:
                return path in wanted and (type(module) is Linear or type(module) in wanted)
        return type(module) in wanted

    return quantize_(model if inplace else deepcopy(model), "int8", chosen)
