"""Messages from one process to another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from norch import Tensor

from .operands import check, exchange, group_of, peer_of, plain, shown, writable
from .process_group import ProcessGroup, Work


def _one(
    call: str, tensor: Tensor, peer: int | None, group: ProcessGroup, tag: int, sends: bool, async_op: bool
) -> Work | None:
    check(call, tensor)
    if peer == group.member:
        raise ValueError(f"{call}(): a process cannot send to itself")
    whom = "anyone" if peer is None else f"rank {group.ranks[peer]}"
    text = f"{call} {'to' if sends else 'from'} {whom} of {shown(tensor)}"
    comm = group.comm(tensor.device.type)
    group.begin_alone(text)
    if sends:
        assert peer is not None
        data = plain(tensor)
        return group.end(text, comm.exchange([(data, peer)], [], tag), None, data, async_op, alone=True)
    data, finish = writable(tensor, call)
    return group.end(text, comm.exchange([], [(data, peer)], tag), finish, data, async_op, alone=True)


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Sends `tensor` to the process `dst`, which must `recv` one of its size and dtype."""
    found = group_of(group)
    if found is not None:
        _one("send", tensor, peer_of(found, dst, group_dst, "send"), found, tag, True, False)


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """`send` that returns a Work at once; `tensor` must not be changed before it is done."""
    found = group_of(group)
    return (
        None
        if found is None
        else _one("isend", tensor, peer_of(found, dst, group_dst, "isend"), found, tag, True, True)
    )


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """`recv` that returns a Work at once."""
    found = group_of(group)
    if found is None:
        return None
    anyone = src is None and group_src is None
    return _one("irecv", tensor, None if anyone else peer_of(found, src, group_src, "irecv"), found, tag, False, True)


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """`tensor` becomes what the process `src` (any by default) sends. Returns the sender's rank, -1 for no member."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return int(src) if src is not None else work.group.ranks[group_src] if group_src is not None else work.source_rank()


class P2POp:
    """One send or receipt of `batch_isend_irecv`: `op` is `isend` or `irecv`.

    peer, or group_peer of the group's: the other's rank. Raises ValueError for another op.
    """

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
    """Starts sends and receipts, a list of P2POp (`p2p_op_list`), together, so that none waits for the order of
    another. All are of one group.
    """
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("batch_isend_irecv(): expected a list of P2POp that is not empty")
    found = group_of(p2p_op_list[0].group)
    if found is None:
        return []
    if any(group_of(p.group) is not found for p in p2p_op_list):
        raise ValueError("batch_isend_irecv(): all must be of one group")
    tensors = [p.tensor for p in p2p_op_list]
    peers = [peer_of(found, p.peer, p.group_peer, "batch_isend_irecv") for p in p2p_op_list]
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
    request, finish = exchange(found, comm, sends, receipts)
    work = found.end(text, request, finish, tensors, True, alone=True)
    assert work is not None
    return [work]
