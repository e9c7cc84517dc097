"""What all collectives do with their arguments: checks, and the plain tensors that an engine reads and writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import norch
from norch import Tensor

from .engine import DONE, Communicator, Request
from .process_group import ProcessGroup
from .reduce_op import ReduceOp
from .world import resolve, world

Finish = Callable[[], Any] | None


def group_of(group: Any) -> ProcessGroup | None:
    return world() if group is None else resolve(group)


def reduction(op: Any, tensor: Tensor, call: str) -> str:
    how = op.value if isinstance(op, ReduceOp) else str(op).lower()
    if how not in ReduceOp._value2member_map_:
        raise ValueError(f"{call}(): op must be a ReduceOp, got {op!r}")
    if how == "avg" and not tensor.dtype.is_floating_point:
        raise norch.DTypeError(f"{call}(): AVG is for floating dtypes, the tensor is {tensor.dtype}")
    if how in ("band", "bor", "bxor") and tensor.dtype.is_floating_point:
        raise norch.DTypeError(f"{call}(): {how.upper()} is for integers and bool, the tensor is {tensor.dtype}")
    return str(how)


def check(call: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{call}(): expected a tensor, got {type(tensor).__name__}")


def check_list(call: str, tensors: Any, count: int, like: Tensor | None = None) -> None:
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"{call}(): expected a list of tensors, got {type(tensors).__name__}")
    if len(tensors) != count:
        raise ValueError(f"{call}(): a list of {len(tensors)} tensors for a group of {count}")
    for tensor in tensors:
        check(call, tensor)
        if like is not None and (tensor.dtype is not like.dtype or tensor.numel() != like.numel()):
            raise norch.ShapeError(
                f"{call}(): the list has a tensor of {tensor.dtype} {tuple(tensor.shape)}, this rank's is {like.dtype} "
                f"{tuple(like.shape)}"
            )


def check_alike(call: str, tensors: Any) -> None:
    if not isinstance(tensors, list | tuple) or not tensors:
        raise TypeError(f"{call}(): expected a list of tensors, got {type(tensors).__name__}")
    for tensor in tensors:
        check(call, tensor)
        if tensor.dtype is not tensors[0].dtype or tensor.device != tensors[0].device:
            raise norch.DTypeError(
                f"{call}(): the list has a tensor of {tensor.dtype} on {tensor.device}, the first is "
                f"{tensors[0].dtype} on {tensors[0].device}"
            )


def shown(tensor: Tensor) -> str:
    return f"{tensor.dtype.name} {tuple(tensor.shape)}"


def changed(tensor: Tensor, call: str) -> None:
    norch.autograd.graph.increment_version(tensor, call)


def plain(tensor: Tensor) -> Tensor:
    """A tensor's values as an engine reads them."""
    data = tensor.detach() if tensor.requires_grad else tensor
    return data if data.is_contiguous() else data.contiguous()


def writable(tensor: Tensor, call: str) -> tuple[Tensor, Finish]:
    """What an engine writes in place of `tensor`, and what then brings it there."""
    if tensor.is_contiguous():
        data = tensor.detach() if tensor.requires_grad else tensor
        return data, lambda: changed(tensor, call)
    data = norch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return data, lambda: copy_into(tensor, data)


def copy_into(tensor: Tensor, data: Tensor) -> None:
    with norch.no_grad():
        tensor.copy_(data.reshape(tensor.shape))


def reducible(
    comm: Communicator, tensor: Tensor, how: str, size: int
) -> tuple[Tensor, str, Callable[[Tensor], Tensor]]:
    """Values that an engine can reduce, by which op, and what makes the result of what comes back."""
    data = tensor.detach() if tensor.requires_grad else tensor
    native = how
    if not comm.reduces(tensor.dtype, how):
        if tensor.dtype is norch.bool:
            data = data.to(norch.uint8)
            native = {"sum": "max", "bor": "max", "product": "min", "band": "min"}.get(how, how)
        elif how == "avg":
            native = "sum"
        if not comm.reduces(data.dtype, native) and tensor.dtype.itemsize == 2 and tensor.dtype.is_floating_point:
            data = data.float()
    if not data.is_contiguous():
        data = data.contiguous()
    if native == how or how != "avg":
        return data, native, lambda values: values
    return data, native, lambda values: values.div_(size)


def peer_of(
    group: ProcessGroup, rank: int | None, group_rank: int | None, call: str, default: int | None = None
) -> int:
    """The member that a rank in the job, or in the group, means."""
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ValueError(f"{call}(): the group has no member {group_rank}")
        return group_rank
    chosen = default if rank is None else rank
    if chosen is None:
        raise ValueError(f"{call}(): name a rank")
    if chosen not in group.ranks:
        raise ValueError(f"{call}(): rank {chosen} is not in the group of ranks {list(group.ranks)}")
    return group.ranks.index(chosen)


def exchange(
    found: ProcessGroup, comm: Communicator, sends: list[tuple[Tensor, int]], receipts: list[tuple[Tensor, int]]
) -> tuple[Request, Finish]:
    """An exchange in which a member may also give itself something."""
    me = found.member
    own = [tensor for tensor, peer in sends if peer == me]
    finishes: list[Any] = []
    into = []
    for tensor, peer in receipts:
        if peer == me:
            given = own.pop(0)
            finishes.append(lambda t=tensor, g=given: copy_into(t, g))
        else:
            data, finish = writable(tensor, "recv")
            into.append((data, peer))
            finishes.append(finish)
    out = [(plain(tensor), peer) for tensor, peer in sends if peer != me]
    request = comm.exchange(out, into) if out or into else DONE
    return request, lambda: [finish() for finish in finishes]
