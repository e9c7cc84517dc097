"""Batches of sequences of different lengths: padded, or packed one time step after another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import norch

Tensor = norch.Tensor


class _Fields(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Fields):
    """Sequences, longest first, with the steps of all at one time side by side.

    data: (sum of lengths, *). batch_sizes: int64 on the CPU, how many sequences reach each step. sorted_indices: the
    order in which the sequences were put, unsorted_indices the way back; both None if they came in that order.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            raise ValueError("PackedSequence(): batch_sizes is missing; pack_sequence() finds them")
        if batch_sizes.device.type != "cpu":
            raise norch.DeviceError(f"PackedSequence(): batch_sizes should be on the CPU, is on {batch_sizes.device}")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With the data moved or cast as `Tensor.to` does, and the indices on the same device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        first, second = [None if x is None else x.to(data.device) for x in self[2:]]
        return type(self)(data, self.batch_sizes, first, second)

    def cpu(self) -> PackedSequence:
        """`to("cpu")`."""
        return self.to("cpu")

    def cuda(self, device: int | str | None = None) -> PackedSequence:
        """`to` a CUDA device, the first unless given."""
        return self.to(f"cuda:{device}" if isinstance(device, int) else device or "cuda")

    def double(self) -> PackedSequence:
        """`to(norch.float64)`."""
        return self.to(norch.float64)

    def float(self) -> PackedSequence:
        """`to(norch.float32)`."""
        return self.to(norch.float32)

    def half(self) -> PackedSequence:
        """`to(norch.float16)`."""
        return self.to(norch.float16)

    def long(self) -> PackedSequence:
        """`to(norch.int64)`."""
        return self.to(norch.int64)

    def int(self) -> PackedSequence:
        """`to(norch.int32)`."""
        return self.to(norch.int32)

    def short(self) -> PackedSequence:
        """`to(norch.int16)`."""
        return self.to(norch.int16)

    def char(self) -> PackedSequence:
        """`to(norch.int8)`."""
        return self.to(norch.int8)

    def byte(self) -> PackedSequence:
        """`to(norch.uint8)`."""
        return self.to(norch.uint8)

    def pin_memory(self) -> PackedSequence:
        """With the data and the indices in memory that a GPU reads directly. Raises as `Tensor.pin_memory` does."""
        first, second = [None if x is None else x.pin_memory() for x in self[2:]]
        return type(self)(self.data.pin_memory(), self.batch_sizes.pin_memory(), first, second)

    def is_pinned(self) -> bool:
        """Whether the data is in such memory."""
        return bool(self.data.is_pinned())

    @property
    def is_cuda(self) -> bool:
        """Whether the data lie on a CUDA device."""
        return bool(self.data.device.type == "cuda")


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation, a vector, that undoes one; None for None."""
    return None if permutation is None else norch.argsort(permutation)


def steps_of(sequence: PackedSequence) -> Tensor:
    """Which steps of the packed `sequence` there are: bool, (steps, sequences), on the CPU."""
    sizes = sequence.batch_sizes
    return norch.arange(int(sizes[0].item()), device="cpu") < sizes.unsqueeze(1)


def unpack(sequence: PackedSequence, steps: Tensor, padding_value: float = 0.0) -> Tensor:
    """(steps, sequences, *) of a packed sequence, in its own order. `steps`: of steps_of; padding_value: where there
    are none.
    """
    data = sequence.data
    places = (steps.flatten().to(norch.int64).cumsum(0) - 1).to(data.device)
    padded = data.index_select(0, places).reshape(*steps.shape, *data.shape[1:])
    if len(data) == steps.numel():
        return padded
    there = steps.to(data.device).reshape(*steps.shape, *[1] * (data.ndim - 1))
    return padded.masked_fill(~there, padding_value)


def pack(padded: Tensor, steps: Tensor) -> Tensor:
    """The data of a packed sequence, from `padded`, (steps, sequences, *)."""
    flat = padded.flatten(0, 1)
    places = steps.flatten().nonzero().flatten()
    return flat if len(places) == len(flat) else flat.index_select(0, places.to(flat.device))


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs a padded batch (T, N, *), or (N, T, *) if `batch_first`, of sequences of `lengths`.

    They must come longest first, or `enforce_sorted` be False. Raises ValueError for lengths that are not sorted or
    not positive, ShapeError where they do not fit `input`.
    """
    given = norch.as_tensor(lengths, dtype=norch.int64, device="cpu")
    order = None
    if not enforce_sorted:
        given, found = given.sort(descending=True, stable=True)
        order = found.to(input.device)
        input = input.index_select(0 if batch_first else 1, order)
    if batch_first:
        input = input.transpose(0, 1)
    if given.ndim != 1 or input.ndim < 2 or len(given) != input.shape[1]:
        raise norch.ShapeError(
            f"pack_padded_sequence(): lengths of shape {tuple(given.shape)} do not fit input with time and batch "
            f"{tuple(input.shape[:2])}"
        )
    numbers = given.tolist()
    if any(a < b for a, b in pairwise(numbers)):
        raise ValueError(
            "pack_padded_sequence(): lengths must be sorted in decreasing order; pass enforce_sorted=False to have "
            f"them sorted, got {numbers}"
        )
    if not numbers or numbers[-1] < 1:
        raise ValueError(f"pack_padded_sequence(): lengths must be greater than 0, got {numbers}")
    if numbers[0] > len(input):
        raise norch.ShapeError(
            f"pack_padded_sequence(): a length of {numbers[0]} is beyond the {len(input)} steps of the input"
        )
    steps = norch.arange(numbers[0], device="cpu").unsqueeze(1) < given
    return PackedSequence(pack(input[: numbers[0]], steps), steps.sum(1), order)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """The padded batch (T, N, *) of a packed `sequence`, or (N, T, *) if `batch_first`, and the lengths, int64 on the
    CPU.

    T is the longest length, or `total_length`, than which none may be longer (ValueError). padding_value: what it is
    padded with.
    """
    steps = steps_of(sequence)
    longest = len(steps)
    if total_length is not None and total_length < longest:
        raise ValueError(
            f"pad_packed_sequence(): total_length={total_length} is less than the longest sequence, {longest}"
        )
    padded, lengths = unpack(sequence, steps, padding_value), steps.sum(0)
    if total_length is not None and total_length > longest:
        rest = norch.full(
            (total_length - longest, *padded.shape[1:]), padding_value, dtype=padded.dtype, device=padded.device
        )
        padded = norch.cat([padded, rest])
    if batch_first:
        padded = padded.transpose(0, 1)
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.to("cpu")]
    return padded, lengths


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stacks sequences (L, *) to (T, N, *), or (N, T, *) if `batch_first`, with T the longest L.

    padding_value: what they are padded with. padding_side: "right" or "left" (ValueError otherwise). Raises ShapeError
    unless all have the same other sizes.
    """
    if padding_side not in ("right", "left"):
        raise ValueError(f'pad_sequence(): padding_side should be "right" or "left", got {padding_side!r}')
    parts = list(sequences)
    if not parts:
        raise ValueError("pad_sequence(): expected at least one sequence")
    shape = parts[0].shape[1:]
    if any(not p.ndim or p.shape[1:] != shape for p in parts):
        shapes = ", ".join(str(tuple(p.shape)) for p in parts)
        raise norch.ShapeError(f"pad_sequence(): shapes {shapes} differ outside dim 0")
    longest, padded = max(len(p) for p in parts), []
    for part in parts:
        if len(part) < longest:
            rest = norch.full((longest - len(part), *shape), padding_value, dtype=part.dtype, device=part.device)
            part = norch.cat([part, rest] if padding_side == "right" else [rest, part])
        padded.append(part)
    return norch.stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences, of `lengths` (N), of `padded_sequences`, a batch (T, N, *), or (N, T, *) if `batch_first`, without
    their padding.
    """
    each = padded_sequences.unbind(0 if batch_first else 1)
    return [x[:n] for x, n in zip(each, norch.as_tensor(lengths).tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs sequences (L, *), which come longest first or with `enforce_sorted=False`."""
    lengths = norch.tensor([len(x) for x in sequences], dtype=norch.int64, device="cpu")
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences (L, *) of `packed_sequences`, in their first order. Raises as pad_packed_sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
