"""gather, scatter, scatter_add, sort."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..backend import IndexOutOfBounds, Kernel, Operand
from .reduction import is_half, with_dims
from .views import Array, Factory, bind


def _key_maker(index: Operand, dim: int) -> Callable[[Array], tuple[Any, ...]]:
    """From the index array to the key that indexes a tensor: its place in `dim`, every place of `index` elsewhere."""
    others = [d for d in range(len(index.shape)) if d != dim]
    if all(index.strides[d] == 0 or index.shape[d] == 1 for d in others) and 0 not in index.shape:
        # One index for a whole slice, as in an embedding: NumPy copies slices faster than elements.
        before = tuple(slice(n) for n in index.shape[:dim])
        after = tuple(slice(n) for n in index.shape[dim + 1 :])
        line = tuple(slice(None) if d == dim else 0 for d in range(len(index.shape)))
        return lambda at: (*before, at[line], *after)
    grid = np.ogrid[tuple(slice(n) for n in index.shape)]
    return lambda at: (*grid[:dim], at, *grid[dim + 1 :])


def _out_of_bounds(index: Array, size: int) -> IndexOutOfBounds:
    wrong = index[(index < -size) | (index >= size)]
    return IndexOutOfBounds(int(wrong[0]), size)


def _gather(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    operands, dim = tuple([with_dims(o) for o in operands]), attrs["dim"]
    make_key = _key_maker(operands[2], dim)

    def compute(x: Array, index: Array, out: Array) -> None:
        try:
            out[...] = x[make_key(index)]
        except IndexError:
            raise _out_of_bounds(index, x.shape[dim]) from None

    return bind(compute, operands)


def _scatter_with(write: Callable[[Array, tuple[Any, ...], Array], object]) -> Factory:
    def factory(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
        operands, dim = tuple([with_dims(o) for o in operands]), attrs["dim"]
        make_key = _key_maker(operands[1], dim)
        half = is_half(operands[0].dtype)

        def compute(index: Array, src: Array, out: Array) -> None:
            src = src[tuple([slice(n) for n in index.shape])]
            try:
                if half:
                    upcast = out.astype(np.float32)
                    write(upcast, make_key(index), src.astype(np.float32))
                    out[...] = upcast
                else:
                    write(out, make_key(index), src)
            except IndexError:
                raise _out_of_bounds(index, out.shape[dim]) from None

        return bind(compute, operands)

    return factory


def _assign(out: Array, key: tuple[Any, ...], src: Array) -> None:
    out[key] = src


def _sort(operands: tuple[Operand, ...], attrs: Mapping[str, Any]) -> Kernel:
    dim, half = attrs["dim"], is_half(operands[0].dtype)

    def compute(x: Array, values: Array, indices: Array) -> None:
        keys = x.astype(np.float32) if half else x
        if attrs["descending"]:
            # Sorting the reverse and reversing the result keeps equal elements in order.
            order = np.flip(keys.shape[dim] - 1 - np.argsort(np.flip(keys, dim), dim, kind="stable"), dim)
        else:
            order = np.argsort(keys, dim, kind="stable")
        values[...] = np.take_along_axis(x, order, dim)
        indices[...] = order

    return bind(compute, tuple([with_dims(o) for o in operands]), outputs=2)


KERNELS: dict[str, Factory] = {
    "gather": _gather,
    "scatter": _scatter_with(_assign),
    "scatter_add": _scatter_with(np.add.at),
    "sort": _sort,
}
