"""Masks: what is filled or chosen where one is True, and where elements are not 0; one_hot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dispatch.plan import SCALARS
from ..dtype import FLOATING, bool_, int64
from ..errors import DTypeError, IndexError, MetaError, ShapeError
from ..spec import Shape, Spec
from .checks import require_integers
from .creation import ARANGE, arange, fill_spec, spec_for, zeros_like
from .elementwise.arithmetic import floor_divide, remainder, where
from .families import composite
from .from_data import of_new_array
from .indexing import scatter_into
from .registry import public
from .shape.views import permute, reshape

if TYPE_CHECKING:
    from ..tensor import Tensor


@public(inplace=True)
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """Input with `value`, a number or a 0-d tensor, where the bool `mask`, which broadcasts, is True.

    Dtype kept; `value` is converted to it as by `fill_`. Raises DTypeError unless mask is bool, and for a number that
    the dtype cannot hold, ShapeError for a value of other dims.
    """
    if mask.spec.dtype is not bool_:
        raise DTypeError(f"masked_fill(): mask must be bool, got {mask.spec.dtype}")
    dtype = input.spec.dtype
    if hasattr(value, "spec"):
        if value.spec.ndim:
            raise ShapeError(f"masked_fill(): value must be a number or 0-d, got shape {tuple(value.spec.shape)}")
        value = value.to(dtype)
    elif dtype.category != FLOATING and type(value) in SCALARS:
        value = fill_spec(input.spec.like(()), value)
    elif value is None:  # of which where() makes something else
        raise DTypeError("masked_fill(): value must be a number or a 0-d tensor, got None")
    return where(mask, value, input)


@public()
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements of input where the bool `mask` is True, 1-D; the two broadcast. Waits for the values. Raises
    DTypeError for a mask of another dtype.
    """
    from .shape.views import broadcast_tensors

    if mask.spec.dtype is not bool_:
        raise DTypeError(f"masked_select(): mask must be bool, got {mask.spec.dtype}")
    source, chosen = broadcast_tensors(input, mask)
    return source[chosen]


@public()
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """The indices of the elements that are not 0: an int64 (count, ndim) tensor, or, with `as_tuple`, one 1-D tensor
    for each dim.

    The number of results depends on the values, so this waits for them. Raises MetaError for a tensor on "meta".
    """
    mask = input if input.spec.dtype is bool_ else input != 0
    if mask.spec.device.type == "cpu" and mask.spec.ndim:
        return _nonzero_on_host(mask, as_tuple)
    if mask.is_meta:
        raise MetaError("nonzero")
    if not mask.spec.ndim:
        places = mask.new_zeros(int(mask.item()), dtype=int64)
        return (places,) if as_tuple else places.new_empty(places.spec.numel, 0)
    places = true_indices(mask, int(mask.sum().item()) if mask.spec.numel else 0)
    if as_tuple:
        from .shape.joining import unbind

        return unbind(places)
    return permute(places, (1, 0))


@composite(lambda mask, total: mask.like((mask.ndim, total), dtype=int64), name="true_indices")
def true_indices(mask: Tensor, total: int) -> Tensor:
    """Where the `total` elements of a mask are that are True, in order: a row of indices for each dim."""
    from .shape.joining import stack

    # Each True is written at its rank, every False behind them all.
    chosen = reshape(mask, -1)
    rank = where(chosen, chosen.to(int64).cumsum(0) - 1, total)
    flat = zeros_like(mask.new_empty(total + 1, dtype=int64))
    if mask.spec.numel:
        scatter_into(flat, 0, rank, arange(mask.spec.numel, device=mask.device))
    return stack(unravel(flat.narrow(0, 0, total), mask.spec.shape), 0)


_FEW = 1 << 10
_AT_ONCE = 1 << 14
"""Indices that are taken apart at a time: they stay in the cache."""


def _nonzero_on_host(mask: Tensor, as_tuple: bool) -> Any:
    ndim = mask.spec.ndim
    if mask.spec.numel <= _FEW:  # of more NumPy takes four times as long as what follows
        each = mask.numpy().nonzero()
        if as_tuple:
            return tuple([of_new_array(indices.copy(), int64) for indices in each])
        return of_new_array(np.array(each).T.copy(), int64)
    found = np.flatnonzero(mask.numpy())
    if ndim == 1:
        out = of_new_array(found if as_tuple else found[:, None], int64)
        return (out,) if as_tuple else out
    columns = [mask.new_empty(found.size, dtype=int64) for _ in range(ndim if as_tuple else 0)]
    table = None if as_tuple else mask.new_empty(found.size, ndim, dtype=int64)
    places = list(table.numpy().T) if table is not None else [c.numpy() for c in columns]
    for start in range(0, found.size, _AT_ONCE):
        index = found[start : start + _AT_ONCE]
        here = slice(start, start + index.size)
        for d in range(ndim - 1, 0, -1):
            quotient = index // mask.spec.shape[d]
            np.subtract(index, quotient * mask.spec.shape[d], out=places[d][here])
            index = quotient
        places[0][here] = index
    return tuple(columns) if table is None else table


def unravel(index: Tensor, shape: Shape) -> tuple[Tensor, ...]:
    """Row-major indices into `shape` as one tensor of indices for each dim."""
    found = []
    for n in reversed(shape):
        found.append(remainder(index, n) if n else index)
        index = floor_divide(index, n) if n else index
    return tuple(reversed(found))


@public()
def argwhere(input: Tensor) -> Tensor:
    """`nonzero`, under NumPy's name: (count, ndim), int64."""
    return nonzero(input)  # type: ignore[no-any-return]


@public(method=False)
def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 rows with a 1 at each index: (*shape) -> (*shape, num_classes); -1 takes the largest index plus 1.

    Raises DTypeError for an index that is no integer, IndexError for one outside [0, num_classes), which a GPU tells
    later, as for `scatter`; ShapeError for no elements without `num_classes`.
    """
    require_integers("one_hot", "input", input.spec)
    is_plain = type(input.spec) is Spec and not input.is_meta  # those of vmap and on meta are not read
    if num_classes > 0 and is_plain and input.spec.device.type != "cpu":
        out = fill_spec(input.spec.like((*input.spec.shape, num_classes), dtype=int64), 0)
        index = reshape(input, (*input.spec.shape, 1))
        scatter_into(out, input.spec.ndim, index, fill_spec(index.spec.like(index.spec.shape, dtype=int64), 1))
        return out
    if input.spec.numel and (num_classes == -1 or is_plain):
        low, high = int(input.min().item()), int(input.max().item())
        if low < 0 or (num_classes != -1 and high >= num_classes):
            raise IndexError(f"one_hot(): indices from {low} to {high} for {num_classes} classes")
        num_classes = high + 1 if num_classes == -1 else num_classes
    elif num_classes <= 0:
        raise ShapeError(f"one_hot(): input {tuple(input.spec.shape)} has no elements; give num_classes")
    classes = ARANGE.call(spec_for((num_classes,), int64, input.spec.device, "one_hot"), 0, 1)
    return (reshape(input, (*input.spec.shape, 1)) == classes).to(int64)
