"""Tensors of random numbers within bounds, as tests want them."""

from __future__ import annotations

from typing import Any

from .. import ops
from ..dtype import bool_, finfo
from ..tensor import Tensor


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Random numbers of `shape` from `low` to below `high`: -9 and 9 by default, -9 and 10 for integers, 0 and 10 for
    unsigned ones, 0 and 2 for bool.

    noncontiguous: every other element of a larger tensor. exclude_zero: what is 0 becomes 1, or the smallest positive
    number. memory_format: as of `contiguous`. Raises ValueError where `low` is not below `high`, or where both
    `noncontiguous` and `memory_format` are given.
    """
    if noncontiguous and memory_format is not None:
        raise ValueError("make_tensor(): noncontiguous and memory_format exclude each other")
    size = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
    lowest, highest = (0, 2) if dtype is bool_ else (-9, 9 if dtype.is_floating_point else 10)
    low = (lowest if dtype.is_signed else 0) if low is None else low
    high = highest if high is None else high
    if low >= high:
        raise ValueError(f"make_tensor(): low {low} is not below high {high}")
    drawn = (*size[:-1], 2 * size[-1]) if noncontiguous and size else size
    if dtype.is_floating_point:
        out = (ops.rand(drawn, device=device) * (high - low) + low).to(dtype)
    else:
        out = ops.randint(int(low), int(high), drawn, device=device).to(dtype)
    if exclude_zero:
        least = finfo(dtype).tiny if dtype.is_floating_point else 1
        out = out.masked_fill(out == 0, least)
    out = out[..., ::2] if noncontiguous and size else out
    if memory_format is not None:
        out = out.contiguous(memory_format=memory_format)
    return out.requires_grad_(requires_grad)
