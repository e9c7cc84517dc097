"""Running results of any associative function, as cumsum is that of addition (Hillis and Steele, 1986)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..func import vmap
from ..func.trees import flatten, tree_map, unflatten
from ..ops import cat
from ..tensor_base import TensorBase


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """combine_fn(combine_fn(x0, x1), x2) and so on, for each part of a tree of tensors `xs` along `dim`: a tree of the
    same shapes, made in log2(n) steps, each of whole tensors.

    combine_fn: of two trees like `xs`, associative. reverse: from the last on. combine_mode: "pointwise", of a function
    that treats each element alike and is called with several parts at once, or "generic", of one that is called
    (by `vmap`) with a part, which lacks `dim`. Raises ValueError for another mode, and where there is no tensor or
    another structure comes back; TypeError for leaves that are no tensors; ShapeError for different sizes along `dim`.
    """
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"associative_scan(): combine_mode must be 'pointwise' or 'generic', got {combine_mode!r}")
    leaves, structure = flatten(xs)
    if not leaves:
        raise ValueError("associative_scan(): expected at least one tensor")
    if not all(isinstance(leaf, TensorBase) for leaf in leaves):
        raise TypeError("associative_scan(): the leaves of xs must be tensors")
    parts = [leaf.movedim(dim, 0) for leaf in leaves]
    count = len(parts[0])
    if any(len(part) != count for part in parts):
        raise ShapeError(f"associative_scan(): {[tuple(leaf.shape) for leaf in leaves]} differ in size along dim {dim}")
    combine = vmap(combine_fn) if combine_mode == "generic" else combine_fn
    if reverse:
        parts = [part.flip(0) for part in parts]
    step = 1
    while step < count:
        earlier = unflatten(structure, [part[:-step] for part in parts])
        later = unflatten(structure, [part[step:] for part in parts])
        found, other = flatten(combine(earlier, later))
        if other != structure:
            raise ValueError("associative_scan(): combine_fn must give a tree of the structure of xs")
        parts = [cat([part[:step], new]) for part, new in zip(parts, found, strict=True)]
        step *= 2
    if reverse:
        parts = [part.flip(0) for part in parts]
    return tree_map(lambda part: part.movedim(0, dim), unflatten(structure, parts))
