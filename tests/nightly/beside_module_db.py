"""One of PyTorch's module samples, run by PyTorch and by norch with the same weights, and what came out compared.

A ModuleInfo of `module_db` says which arguments a module is worth making and calling with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from beside_op_db import attempt, clone, difference, in_float64, over, tensors, to_norch
from torch.testing._internal.common_modules import module_db

import norch

DTYPES = (torch.float64, torch.float32, torch.bfloat16)
MODULES = {info.module_cls.__name__: info for info in module_db}


def _converted(x: Any) -> Any:
    """A sample's arguments for norch: functions and layers too, which some constructors take."""

    def convert(v: Any) -> Any:
        if isinstance(v, torch.nn.TransformerEncoderLayer):
            return _like(v)
        if callable(v) and not isinstance(v, (type, torch.Tensor)):
            return getattr(norch.nn.functional, v.__name__)
        return to_norch(v)

    return over(x, convert)


def _like(layer: torch.nn.TransformerEncoderLayer) -> Any:
    attention = layer.self_attn
    own = norch.nn.TransformerEncoderLayer(
        attention.embed_dim,
        attention.num_heads,
        layer.linear1.out_features,
        layer.dropout.p,
        _converted(layer.activation),
        layer.norm1.eps,
        attention.batch_first,
        layer.norm_first,
        layer.linear1.bias is not None,
    )
    own.load_state_dict(to_norch(dict(layer.state_dict())))
    return own


class Run:
    """A module called once: its results, and the gradients of its inputs and parameters for weighted results."""

    def __init__(self, module: Any, args: Any, kwargs: Any) -> None:
        self.module, self.given = module, (args, kwargs)
        torch.manual_seed(1)
        self.result, self.error = attempt(lambda: module(*args, **kwargs))

    def backward(self) -> list[Any]:
        outputs = [y for y in tensors(self.result) if y.requires_grad]
        draw = np.random.default_rng(1)
        weights = [torch.tensor(draw.standard_normal(tuple(y.shape))) for y in outputs]
        if outputs and isinstance(outputs[0], torch.Tensor):
            torch.autograd.backward(outputs, [w.to(y.dtype) for y, w in zip(outputs, weights)])
        elif outputs:
            norch.autograd.backward(outputs, [to_norch(w).to(y.dtype) for y, w in zip(outputs, weights)])
        leaves = [v for v in tensors(self.given) if v.requires_grad] + list(self.module.parameters())
        return [v.new_zeros(tuple(v.shape)) if v.grad is None else v.grad for v in leaves]


def _made(info: Any, sample: Any, dtype: torch.dtype, training: bool) -> Any:
    made = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).to(dtype).train(training)
    if info.is_lazy:
        made(*clone(sample.forward_input.args), **clone(sample.forward_input.kwargs))
    return made


def failures(name: str, dtype: torch.dtype) -> Iterator[str]:
    """A line for each sample in which norch's module is not PyTorch's."""
    info = MODULES[name]
    for training in (True, False) if info.train_and_eval_differ else (True,):
        torch.manual_seed(0)
        samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for sample in samples:
            if sample.forward_input is not None:
                for why in _differences(info, sample, dtype, training):
                    given = sample.constructor_input
                    shapes = over(sample.forward_input.args, lambda v: tuple(v.shape) if hasattr(v, "shape") else v)
                    yield f"{name}{given.args}{given.kwargs} of {shapes}, training={training}: {why}"


def _differences(info: Any, sample: Any, dtype: torch.dtype, training: bool) -> Iterator[str]:
    module, error = attempt(_made, info, sample, dtype, training)
    if error is not None:
        return  # not for this dtype
    state = {k: v.clone() for k, v in module.state_dict().items()}
    arguments = sample.forward_input.args, sample.forward_input.kwargs
    theirs = Run(module, *clone(arguments))
    if theirs.error is not None:
        return
    own = getattr(norch.nn, info.module_cls.__name__)

    def make() -> Any:
        made = own(*_converted(sample.constructor_input.args), **_converted(sample.constructor_input.kwargs))
        made = made.to(to_norch(dtype)).train(training)
        if info.is_lazy:
            made(*_converted(arguments[0]), **_converted(arguments[1]))
        made.load_state_dict(to_norch(state))
        return made

    twin, error = attempt(make)
    if error is not None:
        yield f"cannot be made: {type(error).__name__}: {error}"
        return
    ours = Run(twin, *_converted(arguments))
    if ours.error is not None:
        yield f"{type(ours.error).__name__}: {ours.error}"
        return
    exact = [module.state_dict(), theirs.result]

    def exactly() -> Run:
        again = _made(info, sample, dtype, training)
        again.load_state_dict(state)
        run = Run(again.double(), *in_float64(arguments))
        exact[:] = [again.state_dict(), run.result]
        return run

    if why := difference(theirs.result, ours.result, dtype, True, lambda: exactly().result):
        yield why
        return
    gradients, error = attempt(theirs.backward)
    if error is None:
        found, error = attempt(ours.backward)
        if error is not None:
            yield f"backward: {type(error).__name__}: {error}"
        elif why := difference(gradients, found, dtype, True, lambda: exactly().backward()):
            yield f"gradients: {why}"
    if list(module.state_dict()) != list(twin.state_dict()):
        yield f"state {list(twin.state_dict())}, PyTorch {list(module.state_dict())}"
    elif why := difference(dict(module.state_dict()), dict(twin.state_dict()), dtype):
        yield f"state afterwards: {why}"
    if repr(module) != repr(twin):
        yield f"shown as {twin!r}, PyTorch {module!r}"
