"""How gradients are brought to the shape of their operand and gathered in `.grad`."""

from __future__ import annotations

import sys
from threading import RLock
from typing import TYPE_CHECKING, Any

from ..spec import Spec, contiguous_strides, dense_strides, is_packed

if TYPE_CHECKING:
    from ..tensor import Tensor


shared_ops: dict[str, Any] = {}
"""What autograd needs of the ops, which are above it: `as_strided`, the op that all views are cases of, how `sum` and
`fill` are called, and the function `stack`. They put themselves here."""


leaf_lock = RLock()
"""Held while a `.grad` changes, since several threads may run backward passes that end at the same leaf."""


def unbroadcast(value: Tensor, spec: Spec) -> Tensor:
    """A gradient in the shape and dtype of its operand: summed over the dims that were broadcast."""
    shape = value.spec.shape
    if shape != spec.shape:
        lead = len(shape) - len(spec.shape)
        if shape[lead:] == spec.shape:
            value = shared_ops["sum"](value, tuple(range(lead)), False, None)
        else:
            dims = tuple([i for i, n in enumerate(shape) if i < lead or n != spec.shape[i - lead]])
            value = shared_ops["sum"](value, dims, True, None)
            if lead:
                value = value.reshape(spec.shape)
    if value.spec.dtype is not spec.dtype or value.spec.device is not spec.device:
        value = value.to(spec.device, spec.dtype)
    return value


def _laid_out(value: Tensor, leaf: Spec) -> Tensor:
    """A gradient with its leaf's strides, or contiguous where those have gaps, as in PyTorch."""
    spec = value.spec
    if type(leaf) is not Spec or type(spec) is not Spec or spec.shape != leaf.shape:
        return value
    wanted = dense_strides(leaf.shape, leaf.strides) or contiguous_strides(leaf.shape)
    if is_packed(leaf.shape, spec.strides, wanted):
        return value
    order = sorted(range(leaf.ndim), key=lambda d: (-wanted[d], d))
    return value.permute(order).contiguous().permute([order.index(d) for d in range(leaf.ndim)])


def accumulate(tensor: Tensor, value: Tensor, create: bool, alone: int = sys.maxsize) -> None:
    """Adds `value` to `tensor.grad`, in place unless `create` (the backward pass is recorded).

    alone: what `sys.getrefcount` says here of a value that nothing but its callers holds: its memory is then taken over
    without a copy.
    """
    with leaf_lock:
        old = tensor._grad
        if old is not None:
            if create or type(old.spec) is not type(value.spec):  # sparse and dense
                tensor._grad = old + value
            else:
                old.add_(value)
            return
        if value.spec is not tensor.spec:
            value = _laid_out(value, tensor.spec)
        if not create:
            spec = value.spec
            kept = None if type(spec) is Spec else getattr(value, "kept", None)
            if kept is not None:  # a sparse one
                value = kept()
            elif (
                sys.getrefcount(value) > alone
                or sys.getrefcount(value.buffer) > ALONE_BUFFER
                or value.buffer.nbytes != spec.nbytes
                or spec.overlaps
            ):
                value = value.detach().clone()
            elif value.node is not None or value.base is not None:
                value = value.detach()
        tensor._grad = value


ALONE_BUFFER = 2
"""What `sys.getrefcount` says of a buffer that one tensor alone holds."""


def _count(value: object) -> int:
    return sys.getrefcount(value)


def _of_one_variable() -> int:
    value = object()
    return _count(value)


ALONE = _of_one_variable()
"""What it says in a function of its argument, which one variable of the caller holds. Versions of Python differ."""
