"""`quantize_dynamic`, PyTorch's way to a model with 8-bit weights, by the layers of `norch.nn.quantized`."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import norch

from .linear import Linear
from .module import Module
from .quantized import quantize_


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
