"""Where replicated values become cut ones, and back. Each function's gradient is the other one's value.

    what it gives                 forward            backward
    enter      the same           nothing            all-reduce
    leave      the sum            all-reduce         nothing
    join       the whole          all-gather         this process's part
    part       a part             this one's part    all-gather

Between `enter` and `leave` each process computes something else of one replicated loss; what is outside of them is
computed by all alike. Of a cut sequence `all_gather_tensor` and `reduce_scatter_tensor` take their places.
"""

from __future__ import annotations

from typing import Any

import norch
from norch import Tensor
from norch.autograd import Function

from ...nn import functional as D
from ...world import get_rank, get_world_size


def own_part(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """This process's part of a tensor that each has whole. Raises ShapeError where it cannot be cut evenly."""
    size = get_world_size(group)
    if tensor.shape[dim] % size:
        raise norch.ShapeError(f"dim {dim} of {tuple(tensor.shape)} cannot be cut among {size} processes")
    return tensor.chunk(size, dim)[get_rank(group)]


class _Enter(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, leave(grad, ctx.group)


class _Leave(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.group = group
        return D.all_reduce(tensor, group=group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, enter(grad, ctx.group)


class _Join(Function):
    @staticmethod
    def forward(ctx: Any, dim: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return D.all_gather_tensor(tensor, dim, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, part(grad, ctx.dim, ctx.group)


class _Part(Function):
    @staticmethod
    def forward(ctx: Any, dim: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return own_part(tensor, dim, group).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, join(grad, ctx.dim, ctx.group)


def enter(tensor: Tensor, group: Any) -> Tensor:
    """A replicated tensor, for processes that each make something else of it: their gradients are summed."""
    return _Enter.apply(group, tensor)


def leave(tensor: Tensor, group: Any) -> Tensor:
    """The sum of what the processes have, replicated."""
    return _Leave.apply(group, tensor)


def join(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """The parts of all processes along `dim`, replicated."""
    return _Join.apply(dim, group, tensor)


def part(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """This process's part along `dim` of a replicated tensor."""
    return _Part.apply(dim, group, tensor)
