"""From samples to a batch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import norch

default_collate_err_msg_format = "default_collate(): cannot make a batch of {}"


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples as one batch, which has a new first dim; what `DataLoader` uses unless given another.

    Tensors and NumPy arrays are stacked; ints, floats (as float64) and bools become a tensor; strings and bytes stay
    as they are; dicts, tuples, namedtuples and lists are collated item by item. Raises ShapeError for tensors that
    differ in shape, ValueError for sequences that differ in length or mappings that differ in keys, TypeError for other
    types.
    """
    if not len(batch):
        raise ValueError("default_collate(): the batch is empty")
    return _collate(batch, "", default_collate_fn_map)


_Functions = Mapping[Any, Callable[..., Any]]

default_collate_fn_map: dict[Any, Callable[..., Any]] = {}
"""By type, or tuple of types: what `default_collate` calls for samples of it, with `collate_fn_map=` this."""


def collate(batch: Sequence[Any], *, collate_fn_map: _Functions | None = None) -> Any:
    """`default_collate`, but by `collate_fn_map`, from types to `function(batch, *, collate_fn_map)`, where that has
    the samples' type, or one that it is of. Raises what that does."""
    if not batch:
        raise ValueError("collate(): the batch is empty")
    return _collate(batch, "", collate_fn_map or {})


def collate_tensor_fn(batch: Sequence[Any], *, collate_fn_map: _Functions | None = None) -> norch.Tensor:
    """Tensors of one shape as one, along a new first dim. Raises ShapeError for others, TypeError for no tensors."""
    return _stack_tensors(batch, "")


def _collate(batch: Sequence[Any], where: str, functions: _Functions) -> Any:
    first = batch[0]
    if functions:
        function = functions.get(type(first))
        if function is None:
            function = next((functions[kind] for kind in functions if isinstance(first, kind)), None)
        if function is not None:
            return function(batch, collate_fn_map=functions)
    if isinstance(first, norch.Tensor):
        return _stack_tensors(batch, where)
    if isinstance(first, np.ndarray):
        return _stack_arrays(batch, where)
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, np.generic):
        return norch.as_tensor(np.array(batch))
    if isinstance(first, bool | int):
        return norch.tensor(batch)
    if isinstance(first, float):
        return norch.tensor(batch, dtype=norch.float64)
    if isinstance(first, Mapping):
        return _collate_mappings(batch, where, functions)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*_columns(batch, where, functions))
    if isinstance(first, tuple):
        return _columns(batch, where, functions)
    if isinstance(first, Sequence):
        return _same_type(first, _columns(batch, where, functions))
    raise TypeError(
        f"{default_collate_err_msg_format.format(type(first).__name__)}{where}; it takes tensors, NumPy arrays, "
        "numbers, strings, dicts, tuples and lists. Give DataLoader a collate_fn for others"
    )


def _columns(batch: Sequence[Any], where: str, functions: _Functions) -> list[Any]:
    lengths = [len(sample) for sample in batch]
    for i, n in enumerate(lengths):
        if n != lengths[0]:
            raise ValueError(
                f"default_collate(): the samples differ in length{where}: {lengths[0]} in sample 0, {n} in sample {i}"
            )
    return [_collate(column, f"{where or ' at '}[{i}]", functions) for i, column in enumerate(zip(*batch))]


def _collate_mappings(batch: Sequence[Any], where: str, functions: _Functions) -> Any:
    first, out = batch[0], {}
    for key in first:
        try:
            column = [sample[key] for sample in batch]
        except KeyError:
            at = next(i for i, sample in enumerate(batch) if key not in sample)
            raise ValueError(f"default_collate(): key {key!r} of sample 0 is not in sample {at}{where}") from None
        out[key] = _collate(column, f"{where or ' at '}[{key!r}]", functions)
    return _same_mapping(first, out)


def _same_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    if type(like) is dict:
        return items
    try:
        if hasattr(like, "update"):  # a copy keeps what the type needs beside its items, as a defaultdict does
            clone = copy.copy(like)
            clone.update(items)
            return clone
        return type(like)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _same_type(like: Sequence[Any], items: list[Any]) -> Any:
    if type(like) is list:
        return items
    try:
        return type(like)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def _ragged(samples: Sequence[Any], where: str) -> norch.ShapeError | None:
    shapes = [tuple(sample.shape) for sample in samples]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            return norch.ShapeError(
                f"default_collate(): the samples differ in shape{where}: {shapes[0]} in sample 0, {shape} in sample "
                f"{i}; make them equal, or give DataLoader a collate_fn that pads"
            )
    return None


def _stacked(arrays: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """NumPy arrays along a new first dim; None where they differ in shape or dtype. Joining is faster than np.stack."""
    shape, dtype = arrays[0].shape, arrays[0].dtype
    if not all(a.shape == shape and a.dtype == dtype for a in arrays):
        return None
    return np.concatenate(arrays).reshape(len(arrays), *shape) if shape else np.stack(arrays)


def _stack_tensors(batch: Sequence[Any], where: str) -> norch.Tensor:
    for sample in batch:
        if not isinstance(sample, norch.Tensor):
            raise TypeError(f"default_collate(): a tensor in sample 0, but {type(sample).__name__} in another{where}")
    try:
        return norch.stack(batch)
    except norch.ShapeError:
        error = _ragged(batch, where)
        if error is None:
            raise
    raise error


def _stack_arrays(batch: Sequence[Any], where: str) -> norch.Tensor:
    if batch[0].dtype.kind in "SUO":
        raise TypeError(f"default_collate(): cannot make a tensor of arrays of {batch[0].dtype}{where}")
    stacked = _stacked(batch) if all(isinstance(a, np.ndarray) for a in batch) else None
    return _stack_tensors([norch.as_tensor(a) for a in batch], where) if stacked is None else norch.as_tensor(stacked)


def default_convert(data: Any) -> Any:
    """NumPy arrays and scalars in `data` as tensors, also inside dicts, tuples and lists; all else as it is.

    What `DataLoader` does to each sample where `batch_size` and `batch_sampler` are None.
    """
    if isinstance(data, norch.Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in "SUO" else norch.as_tensor(data)
    return map_structure(default_convert, data)


def map_structure(function: Callable[[Any], Any], data: Any) -> Any:
    """`data` with `function` applied to the items of a dict, tuple or list; what is none of these as it is."""
    if isinstance(data, Mapping):
        return _same_mapping(data, {key: function(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[function(value) for value in data])
    if isinstance(data, tuple):
        return [function(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _same_type(data, [function(value) for value in data])
    return data
