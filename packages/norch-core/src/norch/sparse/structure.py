"""Where the elements of a sparse tensor are: places of shape (sparse dims, elements), and what is counted by them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtype import BOOL, int64
from ..ops.creation import arange, zeros
from ..ops.indexing import INDEX
from ..ops.shape.joining import cat, repeat_interleave, stack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..tensor import Tensor


def pick(x: Tensor, index: Tensor) -> Tensor:
    """The rows of `x` that a vector of int64 indices names."""
    return INDEX.call(x, index, 0)


def gathered(values: Tensor, index: Tensor, rows: int) -> Tensor:
    """Rows of zeros, row i of `values` added at index[i]."""
    if values.spec.dtype.category == BOOL:
        return gathered(values.to(int64), index, rows) != 0
    return values.new_zeros((rows, *values.spec.shape[1:])).index_add(0, index, values)


def flat_keys(places: Tensor, sizes: Sequence[int]) -> Tensor:
    """Each place as one number, in row-major order."""
    key = places.select(0, 0)
    for d in range(1, len(sizes)):
        key = key * sizes[d] + places.select(0, d)
    return key


def merged(places: Tensor, values: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Places in order, each once, and the sums of the values there. Waits for their number."""
    count = places.spec.shape[1]
    if count < 2 or not sizes:
        return (places, values) if sizes or count < 2 else (places[:, :1], values.sum(0, keepdim=True))
    key = flat_keys(places, sizes)
    if bool((key[1:] > key[:-1]).all()):
        return places, values
    found, group = key.unique(return_inverse=True)
    return _unflattened(found, sizes), gathered(values, group, found.spec.numel)


def _unflattened(key: Tensor, sizes: Sequence[int]) -> Tensor:
    """The places of `flat_keys`."""
    if len(sizes) == 1:
        return key.unsqueeze(0)
    rows: list[Tensor] = []
    for size in reversed(sizes):
        rows.insert(0, key % size)
        key = key // size
    return stack(rows)


def joined(left: Tensor, right: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Positions i, j of all pairs with left[i] == right[j], in order of i; both hold numbers below `size`.

    Waits for their number.
    """
    counts = counted(right, size)
    starts = counts.cumsum(0) - counts
    order = right.argsort()
    times = pick(counts, left)
    total = int(times.sum()) if times.spec.numel else 0
    i = repeat_interleave(arange(left.spec.numel, device=left.device), times, 0, output_size=total)
    begin = times.cumsum(0) - times
    within = arange(total, device=left.device) - pick(begin, i)
    return i, pick(order, pick(pick(starts, left), i) + within)


def counted(index: Tensor, size: int) -> Tensor:
    """How often each number below `size` comes."""
    return gathered(index.new_ones((index.spec.numel,)), index, size)


def compressed(rows: Tensor, size: int) -> Tensor:
    """Where each row begins, and where the last ends, of row numbers in order."""
    return cat([zeros(1, dtype=int64, device=rows.device), counted(rows, size).cumsum(0)])


def expanded(crow: Tensor, count: int) -> Tensor:
    """The reverse: the row number of each of `count` elements."""
    size = crow.spec.numel - 1
    return repeat_interleave(arange(size, device=crow.device), crow[1:] - crow[:-1], 0, output_size=count)
