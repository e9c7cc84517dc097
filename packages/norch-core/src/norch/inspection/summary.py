"""`norch.summary`: what a model consists of."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..autograd.mode import no_grad
from ..dispatch.arguments import describe
from ..dtype import get_default_dtype
from ..errors import DTypeError
from ..func.trees import tree_map
from ..observing import observed_by
from ..ops.creation import ones
from ..ops.from_data import as_tensor
from ..tensor import Tensor
from .flops import FlopCounter
from .keeping import kept
from .layers import Layer, Recorder, add_uncalled, count_parameters, tensors
from .summary_text import summary_html, summary_text


@dataclass(frozen=True)
class Summary:
    """What `norch.summary` found. `str()` is the table, as wide as it needs to be; notebooks show it too.

    model: the model as the uppermost layer. parameters, trainable: how many numbers, those of shared parameters once.
    flops: of the forward pass (0 without an example). The rest is in bytes, memory that is shared counted once;
    activations: the results of the layers that have none below, which a training step keeps most of.
    """

    model: Layer
    depth: int
    parameters: int
    trainable: int
    flops: int
    parameter_bytes: int
    buffer_bytes: int
    input_bytes: int
    activation_bytes: int

    def __str__(self) -> str:
        return summary_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return summary_html(self)


def summary(model: Any, example: Any = None, *, depth: int = 3, mode: str = "eval", **kwargs: Any) -> Summary:
    """A table of a model's layers in the order in which a forward pass calls them: shapes, parameters and FLOPs.

    example: what the model is called with: a tensor, a tuple of arguments, a dict of keyword arguments, or a shape such
    as (1, 3, 224, 224), of which it gets ones. `kwargs` are passed to the model too. Without any it is not called, and
    there are neither shapes nor FLOPs.
    depth: of how many levels of layers there are rows; what is below is in theirs. mode: "eval", "train", or "same" for
    the modes that the modules have.

    FLOPs are two for each multiplication with its addition, in matrix products, convolutions, attention and recurrent
    layers, and nothing else, as PyTorch's FlopCounterMode counts.

    The model is run once, without gradients; modes, attributes, buffers and random numbers are afterwards what they
    were. Lazy modules stay lazy: a copy of the model is run. Raises DTypeError where `model` is no module, ValueError
    for another mode, and what the model raises, with the layer that it was in.
    """
    if not callable(getattr(type(model), "named_modules", None)):
        raise DTypeError(f"summary(): expected a module, got {describe(model)}")
    if mode not in ("eval", "train", "same"):
        raise ValueError(f'summary(): mode must be "eval", "train" or "same", got {mode!r}')
    args, kwargs = _arguments(model, example, kwargs)
    recorder = Recorder(model)
    if args or kwargs:
        if any(_is_lazy(m) for m in model.modules()):
            model = _materialised(model, args, kwargs, mode)
            recorder = Recorder(model)
        _run(model, args, kwargs, mode, recorder)
    root = recorder.root
    add_uncalled(root, model)
    count_parameters(root, model)
    parameters = {id(p): p for p in model.parameters()}.values()
    return Summary(
        root, depth,
        sum([p.numel() for p in parameters]), sum([p.numel() for p in parameters if p.requires_grad]), root.flops,
        _nbytes(parameters), _nbytes(model.buffers()), _nbytes(tensors((args, kwargs))), root.nbytes,
    )  # fmt: skip


def _run(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: str, recorder: Recorder | None) -> None:
    modules = list(model.modules())
    with kept(modules), no_grad():
        for module in modules:
            if mode != "same" and module.training != (mode == "train"):
                module.training = mode == "train"
            if getattr(module.__dict__.get("_hooks"), "compiled", None) is not None:  # whose replays call no layer
                module.__dict__["_hooks"] = None
            if recorder is not None:
                recorder.watch(module)
        args, kwargs = tree_map(_own, (args, kwargs))
        if recorder is None:
            model(*args, **kwargs)
            return
        with observed_by(FlopCounter(recorder.count)):
            model(*args, **kwargs)


def _own(value: Any) -> Any:
    """A copy, which a model may change in place."""
    return value.detach().clone() if isinstance(value, Tensor) else value


def _materialised(model: Any, args: Any, kwargs: Any, mode: str) -> Any:
    """A copy of a model with lazy modules whose shapes are known."""
    model = deepcopy(model)
    with kept([]), no_grad():
        for module in model.modules():
            if mode != "same":
                module.training = mode == "train"
        model(*tree_map(_own, args), **tree_map(_own, kwargs))
    return model


def _is_lazy(module: Any) -> bool:
    ask = getattr(module, "has_uninitialized_params", None)
    return ask is not None and bool(ask())


def _arguments(model: Any, example: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if example is None:
        return (), kwargs
    if isinstance(example, np.ndarray):
        example = as_tensor(example)
    if isinstance(example, Mapping):
        return (), {**example, **kwargs}
    if isinstance(example, tuple | list) and example and all(type(n) is int for n in example):
        return (_ones(model, tuple(example)),), kwargs
    return tuple(example) if isinstance(example, tuple | list) else (example,), kwargs


def _ones(model: Any, shape: tuple[int, ...]) -> Any:
    """Ones of the dtype and on the device of the model's first parameter."""
    first = next((p for p in model.parameters() if p.dtype.is_floating_point), None)
    if first is None:
        return ones(shape, dtype=get_default_dtype())
    return ones(shape, dtype=first.dtype, device=first.device)


def _nbytes(values: Any) -> int:
    """Bytes of the memory that tensors are on, each counted once."""
    return sum({id(x.buffer): int(x.buffer.nbytes) for x in values}.values())
