"""The collectives: what they check, and the plain parts that they hand an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import norch
from norch import Tensor

from .operands import (
    changed,
    check,
    check_alike,
    check_list,
    copy_into,
    exchange,
    group_of,
    peer_of,
    plain,
    reducible,
    reduction,
    shown,
    writable,
)
from .process_group import Work
from .reduce_op import ReduceOp

# --- Reductions -----------------------------------------------------------------------------------------------------


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor`, of any shape, becomes the reduction of all members' in each of them, the same bits everywhere.

    float16 and bfloat16 are reduced in float32 where the engine has no 16-bit floats. Returns a Work with `async_op`,
    else None, when it is done. Raises DTypeError for an op that the dtype has not; DistributedError, as all collectives
    do, where another member calls something else, has another shape or dtype, does not come in time, or dies.
    """
    found = group_of(group)
    if found is None:
        return None
    check("all_reduce", tensor)
    how = reduction(op, tensor, "all_reduce")
    call = f"all_reduce({how}) of {shown(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    data, native, made = reducible(comm, tensor, how, found.size())
    if data.buffer is not tensor.buffer:
        return found.end(call, comm.all_reduce(data, native), lambda: copy_into(tensor, made(data)), tensor, async_op)

    def finish() -> None:
        made(data)  # in place
        changed(tensor, "all_reduce")

    return found.end(call, comm.all_reduce(data, native), finish, tensor, async_op)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`all_reduce` of each of several tensors of one dtype and device, together."""
    found = group_of(group)
    if found is None:
        return None
    check_alike("all_reduce_coalesced", tensors)
    first = tensors[0]
    how = reduction(op, first, "all_reduce_coalesced")
    call = f"all_reduce_coalesced({how}) of {first.dtype.name} {', '.join([str(tuple(t.shape)) for t in tensors])}"
    comm = found.comm(first.device.type)
    found.begin(call)
    kept = list(tensors)
    native = "sum" if how == "avg" and not comm.reduces(first.dtype, how) else how
    if comm.reduces_together and comm.reduces(first.dtype, native) and all(t.is_contiguous() for t in tensors):
        values = [t.detach() if t.requires_grad else t for t in tensors]

        def finish() -> None:
            for tensor, value in zip(kept, values, strict=True):
                if native != how:
                    value.div_(found.size())
                changed(tensor, "all_reduce_coalesced")

        return found.end(call, comm.all_reduce_together(values, native), finish, kept, async_op)
    with norch.no_grad():
        flat = norch.cat([t.reshape(-1) for t in tensors])
    data, native, made = reducible(comm, flat, how, found.size())

    def hand_out() -> None:
        for tensor, part in zip(kept, made(data).split([t.numel() for t in kept]), strict=True):
            copy_into(tensor, part)

    return found.end(call, comm.all_reduce(data, native), hand_out, kept, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """`tensor` of the process `dst` becomes the reduction of all members'; the others keep theirs."""
    found = group_of(group)
    if found is None:
        return None
    check("reduce", tensor)
    how, root = reduction(op, tensor, "reduce"), peer_of(found, dst, group_dst, "reduce", 0)
    call = f"reduce({how}) to rank {found.ranks[root]} of {shown(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    data, native, made = reducible(comm, tensor, how, found.size())
    mine = found.member == root
    if not mine and data.buffer is tensor.buffer:
        data = data.clone()
    finish = (lambda: copy_into(tensor, made(data))) if mine else None
    return found.end(call, comm.reduce(data, native, root), finish, tensor, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` becomes this member's part of the reduction of `input`, which has as many such parts as members."""
    found = group_of(group)
    if found is None:
        return None
    check("reduce_scatter_tensor", output)
    check("reduce_scatter_tensor", input)
    how = reduction(op, input, "reduce_scatter_tensor")
    if input.numel() != output.numel() * found.size() or input.dtype is not output.dtype:
        raise norch.ShapeError(
            f"reduce_scatter_tensor(): {found.size()} parts of {shown(output)} cannot be made of {shown(input)}"
        )
    call = f"reduce_scatter({how}) of {shown(input)}"
    comm = found.comm(input.device.type)
    found.begin(call)
    data, native, made = reducible(comm, input, how, found.size())
    part = norch.empty(output.shape, dtype=data.dtype, device=data.device)
    request = comm.reduce_scatter(part, data, native)
    return found.end(call, request, lambda: copy_into(output, made(part)), (output, input, data), async_op)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` becomes the reduction of all members' `input_list[member]`."""
    found = group_of(group)
    if found is None:
        return None
    check_list("reduce_scatter", input_list, found.size(), output)
    joined = norch.cat([t.detach().reshape(-1) for t in input_list])
    return reduce_scatter_tensor(output, joined, op, group, async_op)


# --- Copies ---------------------------------------------------------------------------------------------------------


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """`tensor` becomes that of the process `src`."""
    found = group_of(group)
    if found is None:
        return None
    check("broadcast", tensor)
    root = peer_of(found, src, group_src, "broadcast", 0)
    call = f"broadcast from rank {found.ranks[root]} of {shown(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    if found.member == root:
        return found.end(call, comm.broadcast(plain(tensor), root), None, tensor, async_op)
    data, finish = writable(tensor, "broadcast")
    return found.end(call, comm.broadcast(data, root), finish, tensor, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output_tensor` becomes the `input_tensor` of all members, one after another: joined along dim 0, or stacked."""
    found = group_of(group)
    if found is None:
        return None
    check("all_gather_into_tensor", output_tensor)
    check("all_gather_into_tensor", input_tensor)
    if output_tensor.numel() != input_tensor.numel() * found.size() or output_tensor.dtype is not input_tensor.dtype:
        raise norch.ShapeError(
            f"all_gather_into_tensor(): {found.size()} times {shown(input_tensor)} does not fit {shown(output_tensor)}"
        )
    call = f"all_gather of {shown(input_tensor)}"
    comm = found.comm(input_tensor.device.type)
    found.begin(call)
    data, finish = writable(output_tensor, "all_gather_into_tensor")
    given = plain(input_tensor)
    return found.end(call, comm.all_gather(data, given), finish, (output_tensor, given), async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor_list[member]` becomes the tensor of each member."""
    found = group_of(group)
    if found is None:
        return None
    check("all_gather", tensor)
    check_list("all_gather", tensor_list, found.size(), tensor)
    call = f"all_gather of {shown(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    data = norch.empty((found.size(), *tensor.shape), dtype=tensor.dtype, device=tensor.device)

    def finish() -> None:
        for out, part in zip(tensor_list, data.unbind(0), strict=True):
            copy_into(out, part)

    given = plain(tensor)
    return found.end(call, comm.all_gather(data, given), finish, (tensor_list, given), async_op)


# --- From one to one ------------------------------------------------------------------------------------------------


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Member j receives `input_tensor_list[j]` of each member i as its `output_tensor_list[i]`.

    Tensors may be of any shapes, those of a pair of the same.
    """
    found = group_of(group)
    if found is None:
        return None
    check_list("all_to_all", output_tensor_list, found.size())
    check_list("all_to_all", input_tensor_list, found.size())
    call = f"all_to_all of {input_tensor_list[0].dtype.name}"
    comm = found.comm(input_tensor_list[0].device.type)
    found.begin(call)
    request, finish = exchange(
        found,
        comm,
        [(tensor, peer) for peer, tensor in enumerate(input_tensor_list)],
        [(tensor, peer) for peer, tensor in enumerate(output_tensor_list)],
    )
    return found.end(call, request, finish, (output_tensor_list, input_tensor_list), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """`all_to_all` of the parts of `input` along dim 0: equal ones, or of the sizes given."""
    found = group_of(group)
    if found is None:
        return None
    check("all_to_all_single", output)
    check("all_to_all_single", input)

    def parts(tensor: Tensor, sizes: Sequence[int] | None) -> list[Tensor]:
        n = tensor.shape[0]
        if sizes is None and n % found.size():
            raise norch.ShapeError(
                f"all_to_all_single(): dim 0 of {shown(tensor)} cannot be split among {found.size()}"
            )
        chosen = [n // found.size()] * found.size() if sizes is None else [int(s) for s in sizes]
        if len(chosen) != found.size() or sum(chosen) != n:
            raise norch.ShapeError(f"all_to_all_single(): split sizes {chosen} do not make dim 0 of {shown(tensor)}")
        return list(tensor.detach().split(chosen))

    return all_to_all(parts(output, output_split_sizes), parts(input, input_split_sizes), group, async_op)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """`gather_list[member]` of the process `dst` becomes the tensor of each member.

    Raises ValueError for a list in another process than `dst`.
    """
    found = group_of(group)
    if found is None:
        return None
    check("gather", tensor)
    root = peer_of(found, dst, group_dst, "gather", 0)
    mine = found.member == root
    if mine:
        check_list("gather", gather_list, found.size(), tensor)
    elif gather_list:
        raise ValueError("gather(): gather_list is for the destination rank only")
    call = f"gather to rank {found.ranks[root]} of {shown(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    receipts = [(out, peer) for peer, out in enumerate(gather_list or ())] if mine else []
    request, finish = exchange(found, comm, [(tensor, root)], receipts)
    return found.end(call, request, finish, (tensor, gather_list), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """`tensor` of each member becomes `scatter_list[member]` of the process `src`.

    Raises ValueError for a list in another process than `src`.
    """
    found = group_of(group)
    if found is None:
        return None
    check("scatter", tensor)
    root = peer_of(found, src, group_src, "scatter", 0)
    mine = found.member == root
    if mine:
        check_list("scatter", scatter_list, found.size(), tensor)
    elif scatter_list:
        raise ValueError("scatter(): scatter_list is for the source rank only")
    call = f"scatter from rank {found.ranks[root]} of {shown(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    sends = [(given, peer) for peer, given in enumerate(scatter_list or ())] if mine else []
    request, finish = exchange(found, comm, sends, [(tensor, root)])
    return found.end(call, request, finish, (tensor, scatter_list), async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until all members have come to it. device_ids: ignored."""
    found = group_of(group)
    if found is None:
        return None
    return found.barrier(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier` with a timeout (a timedelta) of its own; the error names the ranks that did not come, as all do.

    wait_all_ranks: they are all named in any case.
    """
    work = barrier(group, async_op=True)
    if work is not None:
        work.wait(timeout)
