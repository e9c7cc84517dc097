"""Flat shards: tensors laid one after the other and cut into as many equal parts as a group has members.

A cut may go through the middle of a tensor, so that the parts are equal whatever the tensors are: whole tensors dealt
out to members leave one large weight with one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import norch
from norch import Tensor

from . import collectives

ALIGN = 8
"""Tensors begin at multiples of so many elements, where the kernels of every backend are at their best."""


class Shard:
    """Which elements of a tensor this member has: `start` to `stop` of it laid flat. The attribute `shard` of what
    `fully_shard` makes of a parameter.

    shape: that of the whole tensor. group: the members. layout, index: where the tensor lies among others.
    """

    __slots__ = ("group", "index", "layout", "shape", "start", "stop")

    def __init__(self, layout: Layout, index: int) -> None:
        self.layout, self.index, self.group = layout, index, layout.group
        self.shape = layout.shapes[index]
        self.start, self.stop = layout.pieces[index]

    def cut(self, whole: Tensor) -> Tensor:
        """This member's elements of a whole tensor."""
        return whole.detach().reshape(-1)[self.start : self.stop]

    def gather(self, piece: Tensor) -> Tensor:
        """The whole tensor, of the pieces of all members, which call it too."""
        pieces = [self.layout.pieces_of(member)[self.index] for member in range(self.layout.size)]
        longest = max(stop - start for start, stop in pieces)
        given = norch.zeros(longest, dtype=piece.dtype, device=piece.device)
        given[: piece.numel()] = piece.detach()
        found = norch.empty((self.layout.size, longest), dtype=piece.dtype, device=piece.device)
        collectives.all_gather_into_tensor(found, given, self.group)
        return norch.cat([part[: b - a] for part, (a, b) in zip(found.unbind(0), pieces, strict=True)]).view(self.shape)

    def all_reduce(self, value: Tensor, op: str) -> Tensor:
        """A value that each member has found of its own elements, made that of all: the same bits on each."""
        value = value.clone()
        collectives.all_reduce(value, op, self.group)
        return value


def cut_state(state: Mapping[str, Any], shard: Shard) -> dict[str, Any]:
    """An optimiser's state of a parameter, whole or this member's, as this member's."""
    found = {}
    for name, value in state.items():
        is_whole = isinstance(value, Tensor) and not hasattr(value, "shard") and tuple(value.shape) == shard.shape
        found[name] = shard.cut(value) if is_whole else value
    return found


class Layout:
    """Where tensors of these shapes lie, and which part of each a member has.

    length: elements of one member's part. pieces: by tensor, (start, stop) of the elements that this member has.
    """

    def __init__(self, shapes: Sequence[tuple[int, ...]], group: Any) -> None:
        self.shapes, self.group = [tuple(shape) for shape in shapes], group
        self.counts = [_count(shape) for shape in self.shapes]
        self.starts: list[int] = []
        end = 0
        for count in self.counts:
            self.starts.append(end)
            end += -(-count // ALIGN) * ALIGN
        self.size = group.size()
        self.length = -(-end // self.size)
        self.pieces = self.pieces_of(group.rank())

    def pieces_of(self, member: int) -> list[tuple[int, int]]:
        """By tensor the elements that `member` has."""
        first, last = member * self.length, (member + 1) * self.length
        found = []
        for start, count in zip(self.starts, self.counts, strict=True):
            begin = min(max(first - start, 0), count)
            found.append((begin, max(begin, min(last - start, count))))
        return found

    def shards(self) -> list[Shard]:
        return [Shard(self, index) for index in range(len(self.shapes))]

    def part(self, pieces: Sequence[Tensor]) -> Tensor:
        """This member's part, of its pieces of all tensors."""
        first = self.group.rank() * self.length
        places = [start + begin - first for start, (begin, _) in zip(self.starts, self.pieces, strict=True)]
        return _joined(places, pieces, self.length)

    def whole(self, tensors: Sequence[Tensor]) -> Tensor:
        """All parts, of the tensors themselves."""
        return _joined(self.starts, [tensor.reshape(-1) for tensor in tensors], self.length * self.size)

    def split(self, whole: Tensor) -> list[Tensor]:
        """The tensors in what `whole` made, on its memory."""
        return [
            whole[start : start + count].view(shape)
            for start, count, shape in zip(self.starts, self.counts, self.shapes, strict=True)
        ]

    def split_part(self, part: Tensor) -> list[Tensor]:
        """This member's pieces in its part, on its memory."""
        first = self.group.rank() * self.length
        found = []
        for start, (begin, end) in zip(self.starts, self.pieces, strict=True):
            at = min(max(start + begin - first, 0), self.length)
            found.append(part[at : at + end - begin])
        return found

    def gather(self, part: Tensor, async_op: bool = False) -> tuple[Tensor, Any]:
        """What the parts of all members make, and the Work that fills it where `async_op`."""
        whole = norch.empty(self.length * self.size, dtype=part.dtype, device=part.device)
        return whole, collectives.all_gather_into_tensor(whole, part, self.group, async_op)

    def gather_to(self, part: Tensor, member: int) -> list[Tensor] | None:
        """The tensors that the parts of all members make, for one member only."""
        mine = self.group.rank() == member
        parts = [norch.empty_like(part) for _ in range(self.size)] if mine else None
        collectives.gather(part, parts, group=self.group, group_dst=member)
        return None if parts is None else self.split(norch.cat(parts))


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _joined(places: Sequence[int], tensors: Sequence[Tensor], length: int) -> Tensor:
    """Flat tensors at their places in one of `length` elements, zeros between them."""
    like, pieces, end = tensors[0], [], 0
    for place, tensor in zip([*places, length], [*tensors, None], strict=True):
        if place > end and (tensor is None or tensor.numel()):
            pieces.append(norch.zeros(place - end, dtype=like.dtype, device=like.device))
            end = place
        if tensor is not None and tensor.numel():
            pieces.append(tensor)
            end = place + tensor.numel()
    return norch.cat(pieces)
