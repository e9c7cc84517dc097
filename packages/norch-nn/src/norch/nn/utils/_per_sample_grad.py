"""Gradients by each sample of a batch, in one backward pass: PyTorch's `torch.nn.utils._per_sample_grad`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import norch

from ..module import Module
from ..parameter import Parameter
from .stateless import functional_call


def call_for_per_sample_grads(
    module: Module, *, batch_size: int | None = None, loss_reduction: str = "sum", batch_first: bool = True
) -> Callable[..., Any]:
    """The call of a module whose backward pass gives `grad_sample`, (n, *parameter), to each parameter, and no `grad`.

    batch_size: n, by default the size of the tensors among the arguments, of which all have a batch dim: 0, or 1 unless
    `batch_first`. loss_reduction: of the loss, "sum", or "mean", whose gradients are multiplied by n.

    Raises TypeError for what is no Module, RuntimeError for another reduction, for arguments without a batch or of
    several, and where parameters have a `grad_sample` already.
    """
    if not isinstance(module, Module):
        raise TypeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}")
    dim = 0 if batch_first else 1

    def call(*args: Any, **kwargs: Any) -> Any:
        wanted = {name: p for name, p in module.named_parameters() if p.requires_grad}
        if any(getattr(p, "grad_sample", None) is not None for p in wanted.values()):
            raise RuntimeError("parameters have a grad_sample already: set it to None before the next call")
        count = _count((*args, *kwargs.values()), dim) if batch_size is None else batch_size
        scale = count if loss_reduction == "mean" else 1
        copies = {}
        for name, p in wanted.items():
            copies[name] = own = p.detach().expand(count, *p.shape).requires_grad_()
            own.register_hook(partial(_keep, p, scale))

        def of_one(params: dict[str, norch.Tensor], positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
            one = [v.unsqueeze(dim) if isinstance(v, norch.Tensor) else v for v in positional]
            more = {k: v.unsqueeze(dim) if isinstance(v, norch.Tensor) else v for k, v in named.items()}
            found = functional_call(module, params, tuple(one), more)
            return norch.func.trees.tree_map(lambda v: v.squeeze(dim), found)

        places: Any = [dim if isinstance(v, norch.Tensor) else None for v in args]
        named_places = {k: dim if isinstance(v, norch.Tensor) else None for k, v in kwargs.items()}
        mapped = norch.vmap(of_one, (0, tuple(places), named_places), dim, randomness="different")
        return mapped(copies, args, kwargs)

    return call


def _count(values: Any, dim: int) -> int:
    sizes = {v.shape[dim] for v in values if isinstance(v, norch.Tensor) and v.ndim > dim}
    if len(sizes) != 1:
        raise RuntimeError(f"the arguments must have tensors of one batch size, found {sorted(sizes)}")
    return int(sizes.pop())


def _keep(parameter: Parameter, scale: int, grad: norch.Tensor) -> norch.Tensor:
    """Adds to a parameter's `grad_sample` what reached the copies of it."""
    own: Any = parameter
    share, before = grad.detach() * scale, getattr(own, "grad_sample", None)
    own.grad_sample = share if before is None else before + share
    return grad
