"""A sparse matrix times a dense one: what `norch.sparse` makes its products of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...spec import Spec
from ..creation import zeros
from ..elementwise.arithmetic import mul
from ..families import composite
from ..indexing import INDEX, INDEX_ADD

if TYPE_CHECKING:
    from ...tensor import Tensor

_AT_ONCE = {"cpu": 1 << 16}
"""By device type: elements of the gathered rows that are made at a time, so that they stay in a cache; else 2**24."""


def parts_of(rows: Tensor, width: int) -> list[tuple[int, int]]:
    """Starts and lengths of parts of `rows`, a vector, that stand for about as many elements as are made at a time."""
    count = rows.spec.numel
    step = max(_AT_ONCE.get(rows.device.type, 1 << 24) // max(width, 1), 16)
    return [(i, min(step, count - i)) for i in range(0, count, step)]


def _infer(values: Spec, dense: Spec, rows: Spec, columns: Spec, size: int, in_order: bool) -> Spec:
    return dense.like((size, *dense.shape[1:]))


@composite(_infer)
def coo_matmul(
    values: Tensor, dense: Tensor, rows: Tensor, columns: Tensor, size: int, in_order: bool = False
) -> Tensor:
    """A matrix of `size` rows, with values[k] added up at (rows[k], columns[k]), times a dense matrix or vector. The
    vectors of places are int64. in_order: whether `rows` only grow."""
    shape = (size, *dense.spec.shape[1:])
    out = zeros(shape, dtype=dense.dtype, device=dense.device)
    factors = values if len(shape) == 1 else values.unsqueeze(1)
    parts = parts_of(rows, dense.spec.shape[1] if len(shape) > 1 else 1)
    if len(parts) == 1:
        INDEX_ADD.into(out, rows, mul(INDEX.call(dense, columns, 0), factors), 0, shape)
        return out
    for start, length in parts:
        chosen = INDEX.call(dense, columns.narrow(0, start, length), 0)
        scaled = mul(chosen, factors.narrow(0, start, length))
        INDEX_ADD.into(out, rows.narrow(0, start, length), scaled, 0, shape)
    return out
