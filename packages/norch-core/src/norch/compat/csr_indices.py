"""The row pointers of sorted row indices, and back, which libraries of graphs ask for under PyTorch's private names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dispatch.arguments import check_functions
from ..dtype import int32, int64
from ..ops import arange, bincount, repeat_interleave, stack, zeros

if TYPE_CHECKING:
    from ..tensor import Tensor


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Of sorted row indices `input`, 1-D integers below `size`: at which of them each row begins, size + 1 numbers."""
    pointers = zeros(size + 1, dtype=int64, device=input.device)
    pointers[1:] = bincount(input, minlength=size).cumsum(0)
    return pointers.to(int32) if out_int32 else pointers


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """(rows; columns) as integers of two rows, or with `transpose` the other way round, of CSR's pointers
    `crow_indices` and `col_indices`, 1-D integers.
    """
    rows = repeat_interleave(arange(len(crow_indices) - 1, device=crow_indices.device), crow_indices.diff())
    parts = [rows, col_indices.to(rows.dtype)]
    return stack(parts[::-1] if transpose else parts).to(int32 if out_int32 else int64)


check_functions(globals())
