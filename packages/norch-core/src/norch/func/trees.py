"""Trees: dicts, lists, tuples and registered containers of tensors, taken apart into a list and put together again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

LEAF: Any = object()
"""The structure of what is no container."""


class NodeDef(NamedTuple):
    """How a container comes apart, (children, context), and together again."""

    flatten_fn: Callable[[Any], tuple[Iterable[Any], Any]]
    unflatten_fn: Callable[[list[Any], Any], Any]


REGISTERED: dict[type, NodeDef] = {}
"""The types that `utils._pytree.register_pytree_node` has made containers."""


class _Context:
    """What a registered container keeps beside its children, as a part of a structure, which is compared and hashed."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Context) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves of a tree, and its structure. is_leaf: says of what is registered whether it stays in one piece."""
    leaves: list[Any] = []
    return leaves, _walk(tree, leaves, is_leaf)


def _children(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[Any, list[Any]] | None:
    """What a container is but its contents, and those; None for a leaf."""
    kind = type(tree)
    if kind in (dict, OrderedDict):
        return (kind, tuple(tree)), list(tree.values())
    if kind in (list, tuple) or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return (kind, None), list(tree)
    if kind in REGISTERED and (is_leaf is None or not is_leaf(tree)):
        children, context = REGISTERED[kind].flatten_fn(tree)
        return (kind, _Context(context)), list(children)
    return None


def _walk(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> Any:
    found = _children(tree, is_leaf)
    if found is None:
        leaves.append(tree)
        return LEAF
    return found[0], [_walk(part, leaves, is_leaf) for part in found[1]]


def unflatten(structure: Any, leaves: list[Any]) -> Any:
    """The tree of that structure with these leaves."""
    return _build(structure, iter(leaves))


def _build(structure: Any, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    (kind, keys), parts = structure
    values = [_build(part, leaves) for part in parts]
    if type(keys) is _Context:
        return REGISTERED[kind].unflatten_fn(values, keys.value)
    if keys is not None:
        return kind(zip(keys, values, strict=True))
    return kind(*values) if hasattr(kind, "_fields") else kind(values)


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with `function` of each leaf in its place."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [function(leaf) for leaf in leaves])


def spread(prefix: Any, structure: Any) -> list[Any] | None:
    """For each leaf of a structure what `prefix`, a tree or the top of one, says of it; None where it does not fit."""
    if structure is LEAF:
        return None if _children(prefix) is not None else [prefix]
    found = _children(prefix)
    (kind, keys), parts = structure
    if found is None:
        tops = [prefix] * len(parts)
    else:
        (own, own_keys), tops = found
        lists = kind in (list, tuple) and own in (list, tuple)
        if len(tops) != len(parts) or (not lists and (own, own_keys) != (kind, keys)):
            if kind in (dict, OrderedDict) and own in (dict, OrderedDict) and set(own_keys) == set(keys):
                tops = [prefix[key] for key in keys]
            else:
                return None
    leaves: list[Any] = []
    for top, part in zip(tops, parts, strict=True):
        more = spread(top, part)
        if more is None:
            return None
        leaves += more
    return leaves
