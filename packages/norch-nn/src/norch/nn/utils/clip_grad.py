"""Gradients kept from growing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import norch

Tensors = norch.Tensor | Iterable[norch.Tensor]


def _list(tensors: Tensors) -> list[norch.Tensor]:
    return [tensors] if isinstance(tensors, norch.Tensor) else list(tensors)


def _each_once(tensor: Any) -> Any:
    """A tensor's elements; of a sparse one those that it has."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def _norm(tensor: norch.Tensor, p: float) -> norch.Tensor:
    flat = tensor.detach().reshape(-1)
    return norch.norm(flat.to(norch.float32) if flat.dtype.itemsize < 4 else flat, p)


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> norch.Tensor:
    """The `norm_type`-norm of all elements of all tensors, a 0-d tensor on the device of the first; 0 for none.

    It waits for nothing unless `error_if_nonfinite`, which raises RuntimeError for NaN and infinities. `foreach` is
    accepted and changes nothing.
    """
    given, p = [_each_once(t) for t in _list(tensors)], float(norm_type)
    if not given:
        return norch.tensor(0.0)
    device = given[0].device
    with norch.no_grad():
        if p == 2:
            total = norch.total_norm(given)
        else:
            total = norch.norm(norch.stack([_norm(t, p).to(device) for t in given]), p)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(
            f"clip_grad_norm_(): the total norm of order {p} of the gradients is {total.item()}, so that they cannot "
            "be clipped; error_if_nonfinite=False scales them by it anyway"
        )
    return total


def _parts(parameter: norch.Tensor) -> list[Any]:
    """How a parameter is shared out among ranks: by `fully_shard`, by `parallelize_module`, by both or not."""
    shard, cut = getattr(parameter, "shard", None), getattr(parameter, "cut", None)
    return [] if shard is cut is None else [part for part in (shard, cut) if part is not None]


def _norms_of_parts(parameters: list[norch.Tensor], p: float) -> list[norch.Tensor]:
    """The norms of all ranks' gradients of parameters of which each has a part, one for each group of ranks."""
    groups: dict[Any, list[norch.Tensor]] = {}
    for parameter in parameters:
        groups.setdefault(tuple(id(part.group) for part in _parts(parameter)), []).append(parameter)
    found = []
    with norch.no_grad():
        for members in groups.values():
            mine = get_total_norm([m.grad for m in members if m.numel()], p).to(members[0].device)  # type: ignore[misc]
            mine = mine if p == math.inf else mine**p
            for part in _parts(members[0]):
                mine = part.all_reduce(mine, "max" if p == math.inf else "sum")
            found.append(mine if p == math.inf else mine ** (1 / p))
    return found


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: norch.Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients in place by max_norm / total_norm, if that is below 1.

    parameters: a tensor or several, of any shape. `foreach` changes nothing.
    """
    found: list[Any] = [grad for p in _list(parameters) if (grad := p.grad) is not None]
    grads = [grad._values() if grad.is_sparse else grad for grad in found]
    if not grads:
        return
    with norch.no_grad():
        factor: Any = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
        norch.scale_(grads, factor)


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> norch.Tensor:
    """Scales the gradients in place (Pascanu et al., 2013) so that their `norm_type`-norm, all taken as one vector, is
    at most `max_norm`.

    Returns the norm as it was, a 0-d tensor. It waits for nothing unless `error_if_nonfinite`, which raises
    RuntimeError for NaN and infinities, the gradients unchanged. `foreach` is accepted and changes nothing.

    Of parameters that `fully_shard` or `parallelize_module` of norch.distributed left a part of here, the norm is that
    of all ranks' elements: all of them call it. Warns of an iterator that has no parameters, as after a first call.
    """
    given = _list(parameters)
    if not given and isinstance(parameters, Iterator):
        warnings.warn("clip_grad_norm_(): the iterator has no parameters, nothing is clipped", stacklevel=2)
    shards = [p for p in given if _parts(p) and p.grad is not None]
    parts = {id(p) for p in shards}
    whole = [grad for p in given if (grad := p.grad) is not None and id(p) not in parts]
    if shards:
        whole += _norms_of_parts(shards, float(norm_type))
    total = get_total_norm(whole, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(given, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> norch.Tensor:
    """`clip_grad_norm_`, under its old name, which warns. Raises as that does."""
    warnings.warn("clip_grad_norm() is deprecated: use clip_grad_norm_()", FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Holds every element of the gradients between -clip_value and clip_value, in place.

    parameters: a tensor or several, of any shape. `foreach` changes nothing.
    """
    bound = float(clip_value)
    with norch.no_grad():
        for p in _list(parameters):
            grad: Any = p.grad
            if grad is not None:
                if grad.is_sparse:
                    p.grad = grad = grad.coalesce()
                (grad._values() if grad.is_sparse else grad).clamp_(-bound, bound)
