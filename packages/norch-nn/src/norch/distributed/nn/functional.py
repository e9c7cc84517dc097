"""Collectives that gradients pass through: each returns its result, and its backward pass is its adjoint.

What is differentiated is the sum of all members' losses. The backward pass is made of collectives too, so all members
must come to it: a result that one of them does not use for its loss leaves the others waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import norch
from norch import Tensor
from norch.autograd import Function

from .. import collectives
from ..reduce_op import ReduceOp
from ..world import get_rank, get_world_size

SUM = ReduceOp.SUM


def _how(op: Any) -> str:
    return op.value if isinstance(op, ReduceOp) else str(op).lower()


def _own(tensor: Tensor) -> Tensor:
    """A contiguous copy."""
    return tensor.detach().clone(memory_format=norch.contiguous_format)


# --- Reductions -----------------------------------------------------------------------------------------------------


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        out = _own(tensor)
        collectives.all_reduce(out, op, group)
        if _how(op) in ("min", "max"):
            ctx.save_for_backward(tensor, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        how = _how(ctx.op)
        if how in ("sum", "avg"):
            return None, None, all_reduce(grad, ctx.op, ctx.group)
        if how not in ("min", "max"):
            raise NotImplementedError(f"all_reduce({how}) has no gradient; SUM, AVG, MIN and MAX have")
        tensor, out = ctx.saved_tensors  # equal ones share, as they do in amax
        chosen = (tensor == out).to(grad.dtype)
        return None, None, chosen * all_reduce(grad, SUM, ctx.group) / all_reduce(chosen, SUM, ctx.group)


def all_reduce(tensor: Tensor, op: Any = SUM, group: Any = None) -> Tensor:
    """The reduction of all members' tensors, in each of them. Backward: that of their gradients."""
    return _AllReduce.apply(op, group, tensor)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        out = _own(tensor)
        collectives.reduce(out, dst, op, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        how = _how(ctx.op)
        if how not in ("sum", "avg"):
            raise NotImplementedError(f"reduce({how}) has no gradient; SUM and AVG have")
        found = broadcast(grad, ctx.dst, ctx.group)
        return None, None, None, found / get_world_size(ctx.group) if how == "avg" else found


def reduce(tensor: Tensor, dst: int, op: Any = SUM, group: Any = None) -> Tensor:
    """The reduction of all members' tensors in the process `dst`, their own in others. Backward: `broadcast`."""
    return _Reduce.apply(dst, op, group, tensor)


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, dim: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.dim, ctx.op, ctx.group = dim, op, group
        size = get_world_size(group)
        if tensor.shape[dim] % size:
            raise norch.ShapeError(
                f"reduce_scatter_tensor(): dim {dim} of {tuple(tensor.shape)} cannot be split among {size} members"
            )
        first = tensor.detach().movedim(dim, 0).contiguous()
        out = norch.empty((first.shape[0] // size, *first.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        collectives.reduce_scatter_tensor(out, first, op, group)
        return out.movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        how = _how(ctx.op)
        if how not in ("sum", "avg"):
            raise NotImplementedError(f"reduce_scatter({how}) has no gradient; SUM and AVG have")
        found = all_gather_tensor(grad, ctx.dim, ctx.group)
        return None, None, None, found / get_world_size(ctx.group) if how == "avg" else found


def reduce_scatter_tensor(tensor: Tensor, dim: int = 0, op: Any = SUM, group: Any = None) -> Tensor:
    """This member's part, along `dim`, of the reduction of all members' tensors. Backward: `all_gather_tensor`."""
    return _ReduceScatter.apply(dim, op, group, tensor)


def reduce_scatter(output: Tensor | None, input_list: Sequence[Tensor], op: Any = SUM, group: Any = None) -> Tensor:
    """The reduction of all members' `input_list[member]`. `output` is PyTorch's, and not written."""
    return reduce_scatter_tensor(norch.stack(list(input_list)), 0, op, group).squeeze(0)


# --- Copies ---------------------------------------------------------------------------------------------------------


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        out = _own(tensor)
        collectives.broadcast(out, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        found = reduce(grad, ctx.src, SUM, ctx.group)
        return None, None, found if get_rank() == ctx.src else norch.zeros_like(found)


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of the process `src`, in all members. Backward: `reduce` to `src`, zeros in others."""
    return _Broadcast.apply(src, group, tensor)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, dim: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.dim, ctx.group = dim, group
        first = tensor.detach().movedim(dim, 0).contiguous()
        shape = (first.shape[0] * get_world_size(group), *first.shape[1:])
        out = norch.empty(shape, dtype=tensor.dtype, device=tensor.device)
        collectives.all_gather_into_tensor(out, first, group)
        return out.movedim(0, dim).contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, reduce_scatter_tensor(grad, ctx.dim, SUM, ctx.group)


def all_gather_tensor(tensor: Tensor, dim: int = 0, group: Any = None) -> Tensor:
    """The tensors of all members, joined along `dim`. Backward: `reduce_scatter_tensor`."""
    return _AllGather.apply(dim, group, tensor)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all members. Backward: `reduce_scatter`."""
    return tuple(all_gather_tensor(tensor.unsqueeze(0), 0, group).unbind(0))


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, group
        out = norch.zeros((get_world_size(group), *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        collectives.gather(tensor, list(out.unbind(0)) if get_rank() == dst else None, dst, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, grad)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all members in the process `dst`, zeros in others. Backward: `scatter`."""
    return tuple(_Gather.apply(dst, group, tensor).unbind(0))


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        out = norch.empty(tensors.shape[1:], dtype=tensors.dtype, device=tensors.device)
        mine = [part.contiguous() for part in tensors.detach().unbind(0)] if get_rank() == src else None
        collectives.scatter(out, mine, src, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, _Gather.apply(ctx.src, ctx.group, grad)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """`tensors[member]` of the process `src`; those of others say shape and dtype. Backward: `gather` to `src`."""
    return _Scatter.apply(src, group, norch.stack(list(tensors)))


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, out_sizes: Any, in_sizes: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.out_sizes, ctx.in_sizes, ctx.group = out_sizes, in_sizes, group
        count = tensor.shape[0] if out_sizes is None else sum(out_sizes)
        out = norch.empty((count, *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
        collectives.all_to_all_single(out, tensor.contiguous(), out_sizes, in_sizes, group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, None, _AllToAll.apply(ctx.in_sizes, ctx.out_sizes, ctx.group, grad)


def all_to_all_single(
    output: Tensor | None,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """Part j along dim 0 of member i becomes part i of member j. `output` is PyTorch's, and not written. Backward: the
    same the other way.

    output_split_sizes, input_split_sizes: the sizes of the parts, equal unless given.
    """
    return _AllToAll.apply(output_split_sizes, input_split_sizes, group, input)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None
) -> tuple[Tensor, ...]:
    """Member j gets tensor j of each member's `input_tensor_list`. `output_tensor_list` says shapes, and is not
    written.
    """
    sizes = [[t.numel() for t in tensors] for tensors in (output_tensor_list, input_tensor_list)]
    joined = norch.cat([t.reshape(-1) for t in input_tensor_list])
    parts = _AllToAll.apply(*sizes, group, joined).split(sizes[0])
    return tuple(part.reshape(t.shape) for part, t in zip(parts, output_tensor_list, strict=True))
