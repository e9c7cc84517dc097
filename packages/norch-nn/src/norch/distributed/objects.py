"""Collectives of Python objects: numbers, strings, containers and tensors, written as norch's checkpoints are.

What another process sends is read as a file of others is: nothing in it is run, and other objects are refused.
"""

from __future__ import annotations

import io
from collections.abc import MutableSequence, Sequence
from typing import Any

import norch

from . import collectives, point_to_point
from .operands import peer_of
from .process_group import ProcessGroup
from .world import resolve


def _pack(value: Any) -> norch.Tensor:
    file = io.BytesIO()
    norch.save([value], file, format="pytorch")
    return norch.frombuffer(bytearray(file.getbuffer()), dtype=norch.uint8)


def _unpack(data: norch.Tensor) -> Any:
    return norch.load(io.BytesIO(data.cpu().numpy().tobytes()))[0]


def _kind(group: ProcessGroup) -> str:
    return next(iter(group.comms), None) or next(iter(group.engines))


def _gathered(found: ProcessGroup, value: Any, call: str) -> list[Any]:
    """The objects of all members."""
    kind = _kind(found)
    data = _pack(value).to(kind)
    sizes = norch.empty(found.size(), dtype=norch.int64, device=kind)
    collectives.all_gather_into_tensor(sizes, norch.tensor([data.numel()], device=kind), found)
    lengths = sizes.tolist()
    padded = norch.zeros(max(lengths), dtype=norch.uint8, device=kind)
    padded[: data.numel()] = data
    out = norch.empty((found.size(), max(lengths)), dtype=norch.uint8, device=kind)
    collectives.all_gather_into_tensor(out, padded, found)
    return [_unpack(part[:n]) for part, n in zip(out.unbind(0), lengths, strict=True)]


def all_gather_object(object_list: MutableSequence[Any], obj: Any, group: Any = None) -> None:
    """`object_list[member]` becomes the object of each member.

    Raises DTypeError for objects that are not numbers, strings, bytes, None, containers of these, or tensors.
    """
    found = resolve(group)
    if found is not None:
        object_list[:] = _gathered(found, obj, "all_gather_object")


def gather_object(
    obj: Any,
    object_gather_list: MutableSequence[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """`object_gather_list[member]` of the process `dst` becomes the object of each member.

    Raises ValueError where `dst` has no list.
    """
    found = resolve(group)
    if found is None:
        return
    root = peer_of(found, dst, group_dst, "gather_object", 0)
    if found.member == root and object_gather_list is None:
        raise ValueError("gather_object(): the destination rank needs an object_gather_list")
    values = _gathered(found, obj, "gather_object")
    if found.member == root and object_gather_list is not None:
        object_gather_list[:] = values


def broadcast_object_list(
    object_list: MutableSequence[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """`object_list` becomes that of the process `src`."""
    found = resolve(group)
    if found is None:
        return
    root = peer_of(found, src, group_src, "broadcast_object_list", 0)
    kind = _kind(found)
    data = _pack(list(object_list)).to(kind) if found.member == root else norch.empty(0, dtype=norch.uint8, device=kind)
    size = norch.tensor([data.numel()], device=kind)
    collectives.broadcast(size, group=found, group_src=root)
    if found.member != root:
        data = norch.empty(int(size), dtype=norch.uint8, device=kind)
    collectives.broadcast(data, group=found, group_src=root)
    object_list[:] = _unpack(data)


def scatter_object_list(
    scatter_object_output_list: MutableSequence[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """The first of `scatter_object_output_list` becomes `scatter_object_input_list[member]` of the process `src`.

    Raises ValueError where `src` has not one object for each member.
    """
    found = resolve(group)
    if found is None:
        return
    root = peer_of(found, src, group_src, "scatter_object_list", 0)
    whole = [list(scatter_object_input_list or ())]
    if found.member == root and len(whole[0]) != found.size():
        raise ValueError(f"scatter_object_list(): {len(whole[0])} objects for a group of {found.size()}")
    broadcast_object_list(whole, group=found, group_src=root)
    scatter_object_output_list[0] = whole[0][found.member]


def send_object_list(
    object_list: Sequence[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
) -> None:
    """Sends objects to the process `dst`, which must `recv_object_list`."""
    found = resolve(group)
    if found is not None:
        data = _pack(list(object_list)).to(_kind(found))
        for tensor in (norch.tensor([data.numel()], device=data.device), data):
            point_to_point.send(tensor, dst, group, group_dst=group_dst)


def recv_object_list(
    object_list: MutableSequence[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> int:
    """`object_list` becomes what the process `src` (any by default) sends. Returns the sender's rank."""
    found = resolve(group)
    if found is None:
        return -1
    kind = _kind(found)
    size = norch.empty(1, dtype=norch.int64, device=kind)
    sender = point_to_point.recv(size, src, group, group_src=group_src)
    data = norch.empty(int(size), dtype=norch.uint8, device=kind)
    point_to_point.recv(data, sender, group)
    object_list[:] = _unpack(data)
    return sender
