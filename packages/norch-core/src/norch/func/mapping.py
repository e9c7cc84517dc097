"""vmap: a function of one sample becomes one of a batch of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ..ops.generator import chosen_generator, current_generator
from ..ops.shape.joining import cat
from ..spec import wrap_dim
from ..tensor import Tensor
from . import elementwise_rules, product_rules, shape_rules  # noqa: F401  (they register rules)
from .batched import Level, VmapError, batched, current_levels, physical
from .randomness import MODES, MappedGenerator, repeats
from .trees import LEAF, flatten, spread, unflatten


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that maps `func` over a dim of its tensor arguments, all samples at once.

    in_dims: the dim of each argument, or None for one that is the same for all samples; a tree like the arguments, or
    the top of one. out_dims: where the samples' dim is in the results, likewise; None for what is the same for all
    samples, which need be no tensor. Keyword arguments are not mapped.
    randomness: whether random ops raise ("error"), differ from sample to sample ("different") or not ("same").
    chunk_size: how many samples at a time, for less memory.

    A container that has `_add_batch_dim` and `_maybe_remove_batch_dim`, as those of the package tensordict, is mapped
    over a dim of its `shape` by these; so are complex numbers.

    Raises ValueError for dims that do not fit the arguments or differ in size, and for results that are no tensors.
    """
    if randomness not in MODES:
        raise ValueError(f"vmap(): randomness must be one of {', '.join(MODES)}, got {randomness!r}")
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"vmap(): chunk_size must be at least 1, got {chunk_size}")

    @wraps(func)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, structure = flatten(args, _maps_itself)
        dims = _in_dims(in_dims, leaves, structure)
        size = _size(leaves, dims)
        if chunk_size is None or size <= chunk_size:
            return _mapped(func, leaves, structure, dims, size, out_dims, randomness, kwargs)
        parts: list[Any] = []
        again = repeats(current_generator()) if randomness == "same" else None
        for start in range(0, size, chunk_size):
            length = min(chunk_size, size - start)
            some = [x if d is None else _part(x, d, start, length) for x, d in zip(leaves, dims, strict=True)]
            if start and again is not None:
                again()
            parts.append(_mapped(func, some, structure, dims, length, out_dims, randomness, kwargs))
        return _joined(parts, out_dims)

    return mapped


def _maps_itself(value: Any) -> bool:
    """Whether a value is no tensor and says itself how it is mapped over."""
    return hasattr(value, "_add_batch_dim") and hasattr(value, "_maybe_remove_batch_dim")


def _part(x: Any, dim: int, start: int, length: int) -> Any:
    return (
        x.narrow(dim, start, length)
        if isinstance(x, Tensor)
        else x[(slice(None),) * dim + (slice(start, start + length),)]
    )


def _in_dims(in_dims: Any, leaves: list[Any], structure: Any) -> list[int | None]:
    if not isinstance(in_dims, int | tuple | list | dict):
        raise ValueError(f"vmap(): in_dims must be an int or a tuple like the arguments, got {in_dims!r}")
    if not leaves:
        raise ValueError("vmap(): a function without arguments has nothing to be mapped over")
    found = spread(in_dims, structure)
    if found is None:
        raise ValueError(f"vmap(): in_dims {in_dims!r} does not fit the arguments, which have another structure")
    for x, d in zip(leaves, found, strict=True):
        if d is not None and type(d) is not int:
            raise ValueError(f"vmap(): in_dims holds ints and None, got {d!r}")
        if d is not None and not isinstance(x, Tensor) and not _maps_itself(x):
            raise ValueError(f"vmap(): in_dims has {d} for an argument of type {type(x).__name__}; it needs None there")
        if d is not None and not -len(x.shape) <= d < len(x.shape):
            raise ValueError(f"vmap(): in_dims has {d} for a tensor of shape {tuple(x.shape)}")
    return [d if d is None else wrap_dim(d, len(x.shape), "vmap") for x, d in zip(leaves, found, strict=True)]


def _size(leaves: list[Any], dims: list[int | None]) -> int:
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap(): in_dims has no dim at all; at least one argument must be mapped over")
    if len(set(sizes)) > 1:
        raise ValueError(f"vmap(): the mapped dims differ in size: {sizes}")
    return int(sizes[0])


def _mapped(
    func: Callable[..., Any],
    leaves: list[Any],
    structure: Any,
    dims: list[int | None],
    size: int,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
) -> Any:
    outer = current_levels.get()
    level = Level(size, randomness, len(outer))
    token = current_levels.set((*outer, level))
    drawing = chosen_generator.set(MappedGenerator(current_generator(), level))
    try:
        given = [x if d is None else _sample(x, d, level) for x, d in zip(leaves, dims, strict=True)]
        found = func(*unflatten(structure, given), **kwargs)
    finally:
        chosen_generator.reset(drawing)
        current_levels.reset(token)
    results, shape = flatten(found, _maps_itself)
    places = _places(out_dims, shape)
    if places is None:
        raise ValueError(f"vmap(): out_dims {out_dims!r} does not fit the results, which have another structure")
    return unflatten(shape, [_result(x, d, level) for x, d in zip(results, places, strict=True)])


def _sample(x: Any, dim: int, level: Level) -> Any:
    """One sample of an argument, with a level that is current."""
    if not isinstance(x, Tensor):
        return x._add_batch_dim(in_dim=dim, vmap_level=level.depth + 1)
    return batched(level, x if dim == 0 else x.movedim(dim, 0))


def _result(x: Any, dim: int | None, level: Level) -> Any:
    if not isinstance(x, Tensor) and _maps_itself(x):
        return x._maybe_remove_batch_dim("vmap", vmap_level=level.depth + 1, batch_size=level.size, out_dim=dim)
    if not isinstance(x, Tensor):
        if dim is None:
            return x
        raise ValueError(f"vmap(): the function must return tensors where out_dims has {dim}, got {type(x).__name__}")
    tensor: Any = x
    if dim is None:
        if differs_at(tensor, level):
            raise ValueError("vmap(): out_dims is None for a result that differs from sample to sample")
        return tensor
    out = physical(tensor, level)
    if not -out.spec.ndim <= dim < out.spec.ndim:
        raise ValueError(f"vmap(): out_dims {dim} for a result of shape {tuple(x.shape)} and its samples")
    return out if dim == 0 else out.movedim(0, dim)


def differs_at(x: Any, level: Level) -> bool:
    """Whether a tensor differs from sample to sample of a level."""
    while hasattr(x, "level"):
        if x.level is level:
            return True
        x = x.value
    return False


def _places(out_dims: Any, shape: Any) -> list[Any] | None:
    """Where the samples' dim is in each result; of a single one (d,) says what d does, as in PyTorch."""
    alone = shape is LEAF and isinstance(out_dims, tuple) and len(out_dims) == 1
    return spread(out_dims[0] if alone else out_dims, shape)


def _joined(parts: list[Any], out_dims: Any) -> Any:
    """The results of chunks, one behind the other."""
    columns = []
    for part in parts:
        leaves, shape = flatten(part, _maps_itself)
        columns.append(leaves)
    places = _places(out_dims, shape)
    if places is None:
        raise VmapError("vmap(): the chunks' results differ in structure")
    return unflatten(
        shape, [c[0] if d is None else cat(list(c), d) for c, d in zip(zip(*columns, strict=True), places, strict=True)]
    )
