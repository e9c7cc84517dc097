"""The text of a sparse tensor, as PyTorch prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..dtype import bool_, get_default_dtype, int64
from ..tensor.printing import format_array, with_notes

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .tensor import SparseTensor

_INDENT = len("tensor(")


def sparse_repr(x: SparseTensor) -> str:
    if x.crow is not None:
        parts = [("crow_indices", x.crow), ("col_indices", x.places.select(0, 1))]
    elif x.ccol is not None:
        parts = [("ccol_indices", x.ccol), ("row_indices", x.places.select(0, 0))]
    else:
        parts = [("indices", x.places)]
    text = "tensor(" + (",\n" + " " * _INDENT).join([_part(*p) for p in [*parts, ("values", x.entries)]])
    notes = [f"device='{x.device}'"] if x.device.type != "cpu" else []
    notes += [f"size={tuple(x.shape)}", f"nnz={x._nnz()}"]
    if x.dtype not in (get_default_dtype(), int64, bool_):
        notes.append(f"dtype={x.dtype!r}")
    notes.append(f"layout={x.layout!r}")
    if x.grad_fn is not None:
        notes.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    return with_notes(text, notes, _INDENT, x.is_sparse)


def _part(name: str, value: Tensor) -> str:
    head = f"{name}=tensor("
    if not value.numel():
        return f"{head}[], size={tuple(value.shape)})"
    return head + format_array(value.detach().cpu().numpy(), _INDENT + len(head)) + ")"
