"""The collectives: what they check, and the plain parts that they hand an engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import norch
from norch import Tensor

from .engine import DONE, Communicator, Request
from .process_group import ProcessGroup, Work
from .reduce_op import ReduceOp
from .world import resolve, world

Finish = Callable[[], Any] | None


def _group(group: Any) -> ProcessGroup | None:
    return world() if group is None else resolve(group)


def _op(op: Any, tensor: Tensor, call: str) -> str:
    how = op.value if isinstance(op, ReduceOp) else str(op).lower()
    if how not in ReduceOp._value2member_map_:
        raise ValueError(f"{call}(): op must be a ReduceOp, got {op!r}")
    if how == "avg" and not tensor.dtype.is_floating_point:
        raise norch.DTypeError(f"{call}(): AVG is for floating dtypes, the tensor is {tensor.dtype}")
    if how in ("band", "bor", "bxor") and tensor.dtype.is_floating_point:
        raise norch.DTypeError(f"{call}(): {how.upper()} is for integers and bool, the tensor is {tensor.dtype}")
    return str(how)


def _check(call: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{call}(): expected a tensor, got {type(tensor).__name__}")


def _check_list(call: str, tensors: Any, count: int, like: Tensor | None = None) -> None:
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"{call}(): expected a list of tensors, got {type(tensors).__name__}")
    if len(tensors) != count:
        raise ValueError(f"{call}(): a list of {len(tensors)} tensors for a group of {count}")
    for tensor in tensors:
        _check(call, tensor)
        if like is not None and (tensor.dtype is not like.dtype or tensor.numel() != like.numel()):
            raise norch.ShapeError(
                f"{call}(): the list has a tensor of {tensor.dtype} {tuple(tensor.shape)}, this rank's is {like.dtype} "
                f"{tuple(like.shape)}"
            )


def _of(tensor: Tensor) -> str:
    return f"{tensor.dtype.name} {tuple(tensor.shape)}"


def _changed(tensor: Tensor, call: str) -> None:
    norch.autograd.graph.increment_version(tensor, call)


def _plain(tensor: Tensor) -> Tensor:
    """A tensor's values as an engine reads them."""
    data = tensor.detach() if tensor.requires_grad else tensor
    return data if data.is_contiguous() else data.contiguous()


def _into(tensor: Tensor, call: str) -> tuple[Tensor, Finish]:
    """What an engine writes in place of `tensor`, and what then brings it there."""
    if tensor.is_contiguous():
        data = tensor.detach() if tensor.requires_grad else tensor
        return data, lambda: _changed(tensor, call)
    data = norch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return data, lambda: _copy(tensor, data)


def _copy(tensor: Tensor, data: Tensor) -> None:
    with norch.no_grad():
        tensor.copy_(data.reshape(tensor.shape))


def _reduced(comm: Communicator, tensor: Tensor, how: str, size: int) -> tuple[Tensor, str, Callable[[Tensor], Tensor]]:
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


def _peer(group: ProcessGroup, rank: int | None, group_rank: int | None, call: str, default: int | None = None) -> int:
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


# --- Reductions -----------------------------------------------------------------------------------------------------


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor`, of any shape, becomes the reduction of all members' in each of them, the same bits everywhere.

    float16 and bfloat16 are reduced in float32 where the engine has no 16-bit floats. Returns a Work with `async_op`,
    else None, when it is done. Raises DTypeError for an op that the dtype has not; DistributedError, as all collectives
    do, where another member calls something else, has another shape or dtype, does not come in time, or dies.
    """
    found = _group(group)
    if found is None:
        return None
    _check("all_reduce", tensor)
    how = _op(op, tensor, "all_reduce")
    call = f"all_reduce({how}) of {_of(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    data, native, made = _reduced(comm, tensor, how, found.size())
    if data.data_ptr() == tensor.data_ptr() and native == how:
        return found.end(call, comm.all_reduce(data, native), lambda: _changed(tensor, "all_reduce"), tensor, async_op)
    return found.end(call, comm.all_reduce(data, native), lambda: _copy(tensor, made(data)), tensor, async_op)


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """`tensor` of the process `dst` becomes the reduction of all members'; the others keep theirs."""
    found = _group(group)
    if found is None:
        return None
    _check("reduce", tensor)
    how, root = _op(op, tensor, "reduce"), _peer(found, dst, group_dst, "reduce", 0)
    call = f"reduce({how}) to rank {found.ranks[root]} of {_of(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    data, native, made = _reduced(comm, tensor, how, found.size())
    mine = found.member == root
    if not mine and data.data_ptr() == tensor.data_ptr():
        data = data.clone()
    finish = (lambda: _copy(tensor, made(data))) if mine else None
    return found.end(call, comm.reduce(data, native, root), finish, tensor, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` becomes this member's part of the reduction of `input`, which has as many such parts as members."""
    found = _group(group)
    if found is None:
        return None
    _check("reduce_scatter_tensor", output)
    _check("reduce_scatter_tensor", input)
    how = _op(op, input, "reduce_scatter_tensor")
    if input.numel() != output.numel() * found.size() or input.dtype is not output.dtype:
        raise norch.ShapeError(
            f"reduce_scatter_tensor(): {found.size()} parts of {_of(output)} cannot be made of {_of(input)}"
        )
    call = f"reduce_scatter({how}) of {_of(input)}"
    comm = found.comm(input.device.type)
    found.begin(call)
    data, native, made = _reduced(comm, input, how, found.size())
    part = norch.empty(output.shape, dtype=data.dtype, device=data.device)
    request = comm.reduce_scatter(part, data, native)
    return found.end(call, request, lambda: _copy(output, made(part)), (output, input, data), async_op)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output` becomes the reduction of all members' `input_list[member]`."""
    found = _group(group)
    if found is None:
        return None
    _check_list("reduce_scatter", input_list, found.size(), output)
    joined = norch.cat([t.detach().reshape(-1) for t in input_list])
    return reduce_scatter_tensor(output, joined, op, group, async_op)


# --- Copies ---------------------------------------------------------------------------------------------------------


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """`tensor` becomes that of the process `src`."""
    found = _group(group)
    if found is None:
        return None
    _check("broadcast", tensor)
    root = _peer(found, src, group_src, "broadcast", 0)
    call = f"broadcast from rank {found.ranks[root]} of {_of(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    if found.member == root:
        return found.end(call, comm.broadcast(_plain(tensor), root), None, tensor, async_op)
    data, finish = _into(tensor, "broadcast")
    return found.end(call, comm.broadcast(data, root), finish, tensor, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """`output_tensor` becomes the tensors of all members, one after the other: joined along dim 0, or stacked."""
    found = _group(group)
    if found is None:
        return None
    _check("all_gather_into_tensor", output_tensor)
    _check("all_gather_into_tensor", input_tensor)
    if output_tensor.numel() != input_tensor.numel() * found.size() or output_tensor.dtype is not input_tensor.dtype:
        raise norch.ShapeError(
            f"all_gather_into_tensor(): {found.size()} times {_of(input_tensor)} does not fit {_of(output_tensor)}"
        )
    call = f"all_gather of {_of(input_tensor)}"
    comm = found.comm(input_tensor.device.type)
    found.begin(call)
    data, finish = _into(output_tensor, "all_gather_into_tensor")
    given = _plain(input_tensor)
    return found.end(call, comm.all_gather(data, given), finish, (output_tensor, given), async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """`tensor_list[member]` becomes the tensor of each member."""
    found = _group(group)
    if found is None:
        return None
    _check("all_gather", tensor)
    _check_list("all_gather", tensor_list, found.size(), tensor)
    call = f"all_gather of {_of(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    data = norch.empty((found.size(), *tensor.shape), dtype=tensor.dtype, device=tensor.device)

    def finish() -> None:
        for out, part in zip(tensor_list, data.unbind(0), strict=True):
            _copy(out, part)

    given = _plain(tensor)
    return found.end(call, comm.all_gather(data, given), finish, (tensor_list, given), async_op)


# --- From one to one ------------------------------------------------------------------------------------------------


def _exchange(
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
            finishes.append(lambda t=tensor, g=given: _copy(t, g))
        else:
            data, finish = _into(tensor, "recv")
            into.append((data, peer))
            finishes.append(finish)
    out = [(_plain(tensor), peer) for tensor, peer in sends if peer != me]
    request = comm.exchange(out, into) if out or into else DONE
    return request, lambda: [finish() for finish in finishes]


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """Member j receives `input_tensor_list[j]` of each member i as its `output_tensor_list[i]`."""
    found = _group(group)
    if found is None:
        return None
    _check_list("all_to_all", output_tensor_list, found.size())
    _check_list("all_to_all", input_tensor_list, found.size())
    call = f"all_to_all of {input_tensor_list[0].dtype.name}"
    comm = found.comm(input_tensor_list[0].device.type)
    found.begin(call)
    request, finish = _exchange(
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
    found = _group(group)
    if found is None:
        return None
    _check("all_to_all_single", output)
    _check("all_to_all_single", input)

    def parts(tensor: Tensor, sizes: Sequence[int] | None) -> list[Tensor]:
        n = tensor.shape[0]
        if sizes is None and n % found.size():
            raise norch.ShapeError(f"all_to_all_single(): dim 0 of {_of(tensor)} cannot be split among {found.size()}")
        chosen = [n // found.size()] * found.size() if sizes is None else [int(s) for s in sizes]
        if len(chosen) != found.size() or sum(chosen) != n:
            raise norch.ShapeError(f"all_to_all_single(): split sizes {chosen} do not make dim 0 of {_of(tensor)}")
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
    """`gather_list[member]` of the process `dst` becomes the tensor of each member."""
    found = _group(group)
    if found is None:
        return None
    _check("gather", tensor)
    root = _peer(found, dst, group_dst, "gather", 0)
    mine = found.member == root
    if mine:
        _check_list("gather", gather_list, found.size(), tensor)
    elif gather_list:
        raise ValueError("gather(): gather_list is for the destination rank only")
    call = f"gather to rank {found.ranks[root]} of {_of(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    receipts = [(out, peer) for peer, out in enumerate(gather_list or ())] if mine else []
    request, finish = _exchange(found, comm, [(tensor, root)], receipts)
    return found.end(call, request, finish, (tensor, gather_list), async_op)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """`tensor` of each member becomes `scatter_list[member]` of the process `src`."""
    found = _group(group)
    if found is None:
        return None
    _check("scatter", tensor)
    root = _peer(found, src, group_src, "scatter", 0)
    mine = found.member == root
    if mine:
        _check_list("scatter", scatter_list, found.size(), tensor)
    elif scatter_list:
        raise ValueError("scatter(): scatter_list is for the source rank only")
    call = f"scatter from rank {found.ranks[root]} of {_of(tensor)}"
    comm = found.comm(tensor.device.type)
    found.begin(call)
    sends = [(given, peer) for peer, given in enumerate(scatter_list or ())] if mine else []
    request, finish = _exchange(found, comm, sends, [(tensor, root)])
    return found.end(call, request, finish, (tensor, scatter_list), async_op)


def _one(
    call: str, tensor: Tensor, peer: int | None, group: ProcessGroup, tag: int, sends: bool, async_op: bool
) -> Work | None:
    _check(call, tensor)
    if peer == group.member:
        raise ValueError(f"{call}(): a process cannot send to itself")
    whom = "anyone" if peer is None else f"rank {group.ranks[peer]}"
    text = f"{call} {'to' if sends else 'from'} {whom} of {_of(tensor)}"
    comm = group.comm(tensor.device.type)
    group.begin_alone(text)
    if sends:
        assert peer is not None
        data = _plain(tensor)
        return group.end(text, comm.exchange([(data, peer)], [], tag), None, data, async_op, alone=True)
    data, finish = _into(tensor, call)
    return group.end(text, comm.exchange([], [(data, peer)], tag), finish, data, async_op, alone=True)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends `tensor` to the process `dst`, which must `recv` one of its size and dtype."""
    found = _group(group)
    if found is not None:
        _one("send", tensor, _peer(found, dst, group_dst, "send"), found, tag, True, False)


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """`send` that returns a Work at once; `tensor` must not be changed before it is done."""
    found = _group(group)
    return (
        None if found is None else _one("isend", tensor, _peer(found, dst, group_dst, "isend"), found, tag, True, True)
    )


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """`recv` that returns a Work at once."""
    found = _group(group)
    if found is None:
        return None
    anyone = src is None and group_src is None
    return _one("irecv", tensor, None if anyone else _peer(found, src, group_src, "irecv"), found, tag, False, True)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """`tensor` becomes what the process `src` (any by default) sends. Returns the sender's rank, -1 for no member."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return int(src) if src is not None else work.group.ranks[group_src] if group_src is not None else work.source_rank()


class P2POp:
    """One send or receipt of `batch_isend_irecv`: `op` is `isend` or `irecv`."""

    def __init__(
        self,
        op: Callable[..., Any],
        tensor: Tensor,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError("P2POp: op must be norch.distributed.isend or norch.distributed.irecv")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = (
            op,
            tensor,
            peer,
            group,
            tag,
            group_peer,
        )


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Starts sends and receipts together, so that none waits for the order of another. All are of one group."""
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv(): expected a list of P2POp that is not empty")
    found = _group(p2p_op_list[0].group)
    if found is None:
        return []
    if any(_group(p.group) is not found for p in p2p_op_list):
        raise ValueError("batch_isend_irecv(): all must be of one group")
    tensors = [p.tensor for p in p2p_op_list]
    peers = [_peer(found, p.peer, p.group_peer, "batch_isend_irecv") for p in p2p_op_list]
    named = ", ".join(
        f"{p.op.__name__} {'to' if p.op is isend else 'from'} rank {found.ranks[peer]}"
        for p, peer in zip(p2p_op_list, peers, strict=True)
    )
    text = f"batch of {named}"
    comm = found.comm(tensors[0].device.type)
    found.begin_alone(text[:160])
    pairs = list(zip(p2p_op_list, peers, strict=True))
    sends = [(p.tensor, peer) for p, peer in pairs if p.op is isend]
    receipts = [(p.tensor, peer) for p, peer in pairs if p.op is irecv]
    request, finish = _exchange(found, comm, sends, receipts)
    work = found.end(text, request, finish, tensors, True, alone=True)
    assert work is not None
    return [work]


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until all members have come to it."""
    found = _group(group)
    if found is None:
        return None
    return found.barrier(async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """`barrier` with a timeout (a timedelta) of its own; the error names the ranks that did not come, as all do."""
    work = barrier(group, async_op=True)
    if work is not None:
        work.wait(timeout)
