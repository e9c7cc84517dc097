"""Buckets: gradients of several parameters in one piece of memory, to be reduced together."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import norch

MB = 1 << 20

IN_PLACE = 1 << 16
"""Bytes from which a gradient is reduced where it lies, by engines that reduce several together."""

ALIGNMENT = 16
"""Bytes to a multiple of which each gradient lies in its bucket, so that kernels can use wide loads."""


class GradBucket:
    """What a communication hook is given: the gradients of some parameters, one after the other in `buffer()`."""

    def __init__(self, index: int, parameters: Sequence[norch.Tensor], numbers: Sequence[int]) -> None:
        self._index, self._parameters, self.numbers = index, list(parameters), list(numbers)
        self.last = False
        self.waiting = 0
        """How many of the gradients are not known yet."""
        self.numel = sum(map(self._room, parameters))
        self.flat: Any = None
        self.views: list[norch.Tensor] = []
        self.pieces: list[norch.Tensor] = []
        """What is reduced: `flat`, or large gradients each by itself and the others in one."""
        self.pending: Any = None
        """The Work or Future of its reduction."""

    # --- What PyTorch's have ----------------------------------------------------------------------------------------

    def index(self) -> int:
        """Which bucket this is; they are reduced in this order."""
        return self._index

    def buffer(self) -> norch.Tensor:
        """The gradients, flat; between them there may be zeros."""
        found: norch.Tensor = self.flat
        return found

    def set_buffer(self, tensor: norch.Tensor) -> None:
        """Puts the values of `tensor` in the place of the gradients."""
        if tensor is not self.flat:
            self.flat.copy_(tensor.reshape(self.flat.shape))

    def gradients(self) -> list[norch.Tensor]:
        """The gradients of `parameters()`: views of `buffer()`."""
        return list(self.views)

    def parameters(self) -> list[norch.Tensor]:
        """The parameters whose gradients these are."""
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether no bucket comes after this one."""
        return self.last

    # --- For the reducer --------------------------------------------------------------------------------------------

    def fill(self, keep: bool, in_place: bool = False) -> None:
        """Brings the gradients together, where they stay. Those that lie here since the last time need no copy.

        keep: in the same memory each time. Else it is new, so that nobody's old gradients change. in_place: large ones
        are left where they are, and there is no `flat`.
        """
        grads = [g if g is None or not g.is_sparse else g.to_dense() for g in (p.grad for p in self._parameters)]
        if self.views and all(g is v for g, v in zip(grads, self.views, strict=True)):
            return
        first = grads[0]
        if len(grads) == 1 and first is not None and first.is_contiguous() and not (keep and self.views):
            self.flat, self.views = first.view(-1), [first]
            self.pieces = [self.flat]
            return
        if not keep or not self.views:
            self._allocate(in_place, grads)
        for parameter, view, grad in zip(self._parameters, self.views, grads, strict=True):
            if grad is None:
                view.zero_()
            elif grad is not view:
                view.copy_(grad)
                parameter.grad = view  # now, so that the memory of the other is free for the rest of the pass

    def _room(self, parameter: norch.Tensor) -> int:
        """How many elements it takes up among others."""
        step = max(1, ALIGNMENT // parameter.dtype.itemsize)
        return parameter.numel() if len(self._parameters) == 1 else -(-parameter.numel() // step) * step

    def _allocate(self, in_place: bool, grads: Sequence[norch.Tensor | None] = ()) -> None:
        """Makes `views` and `pieces`. in_place: of large ones those of `grads` that can be."""
        in_place = in_place and len(self._parameters) > 1
        views: dict[int, Any] = {}
        if in_place:
            for i, p in enumerate(self._parameters):
                if p.nbytes >= IN_PLACE:
                    grad = grads[i] if grads else None
                    stays = grad is not None and grad.is_contiguous() and not grad.requires_grad
                    views[i] = grad if stays else norch.empty_like(p.detach())
        rest = [i for i in range(len(self._parameters)) if i not in views]
        flat, self.pieces = None, list(views.values())
        if rest:
            first, rooms = self._parameters[0], [self._room(self._parameters[i]) for i in rest]
            padded = sum(rooms) != sum(self._parameters[i].numel() for i in rest)
            make = norch.zeros if padded else norch.empty
            flat = make(sum(rooms), dtype=first.dtype, device=first.device)
            self.pieces.append(flat)
            at = 0
            for i, room in zip(rest, rooms, strict=True):
                p = self._parameters[i]
                views[i] = flat[at : at + p.numel()].view(p.shape)
                at += room
        self.flat, self.views = None if in_place else flat, [views[i] for i in range(len(self._parameters))]

    def clear(self, in_place: bool) -> None:
        """Makes it zeros, in memory of its own."""
        self._allocate(in_place)
        for piece in self.pieces:
            piece.zero_()

    def hand_out(self, used: Sequence[bool] | None, keep: bool) -> None:
        """Makes the gradients of the parameters, or of those that are `used`, what lies here."""
        for parameter, number, view in zip(self._parameters, self.numbers, self.views, strict=True):
            if (used is None or used[number]) and parameter.grad is not view:
                parameter.grad = view
        if not keep:
            self.flat, self.views, self.pieces = None, [], []  # or zero_grad() would not free the gradients


def last_part(buckets: Sequence[GradBucket]) -> list[GradBucket]:
    """Those that are under way when a pass ends: the last ones, of an eighth of the bytes or more; none of a few."""
    sizes = [sum(p.nbytes for p in bucket.parameters()) for bucket in buckets]
    at = len(buckets)
    while at and 8 * sum(sizes[at:]) < sum(sizes):
        at -= 1
    return list(buckets[at:]) if at else []


def assign(parameters: Sequence[norch.Tensor], order: Sequence[int], first_cap: float, cap: float) -> list[GradBucket]:
    """Buckets of about `cap` bytes, of one dtype and device each, in `order`.

    The first of each kind is smaller, so that the first reduction begins early.
    """
    groups: list[list[int]] = []
    open_: dict[Any, tuple[list[int], float]] = {}
    limits: dict[Any, float] = {}

    def close(key: Any) -> None:
        numbers, _ = open_.pop(key)
        groups.append(numbers)
        limits[key] = cap

    for number in order:
        p = parameters[number]
        key, size = (p.dtype, p.device), prod(p.shape) * p.dtype.itemsize
        if key in open_ and size >= limits.get(key, first_cap):
            close(key)  # a large one is alone, and need not be copied
        numbers, total = open_.get(key, ([], 0))
        open_[key] = [*numbers, number], total + size
        if total + size >= limits.get(key, first_cap):
            close(key)
    for key in list(open_):
        close(key)
    buckets = [GradBucket(i, [parameters[n] for n in numbers], numbers) for i, numbers in enumerate(groups)]
    buckets[-1].last = True
    return buckets
