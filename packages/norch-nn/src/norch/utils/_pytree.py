"""Nested containers as lists of their leaves: PyTorch's `torch.utils._pytree`, as far as scripts use it.

A leaf is what is no dict, list, tuple, named tuple, OrderedDict, defaultdict or deque, and of no registered type.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import norch

PyTree = Any
Context = Any
NodeDef = norch.func.trees.NodeDef


class SequenceKey(NamedTuple):
    """The place of a child in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


class GetAttrKey(NamedTuple):
    """The name of a child among attributes."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


class MappingKey(NamedTuple):
    """The key of a child in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


def _list_flatten(value: Any) -> tuple[Any, Any]:
    return value, None


def _list_unflatten(children: Iterable[Any], context: Any) -> list[Any]:
    return list(children)


def _list_flatten_with_keys(value: Any) -> tuple[list[tuple[SequenceKey, Any]], Any]:
    return [(SequenceKey(i), child) for i, child in enumerate(value)], None


def _tuple_unflatten(children: Iterable[Any], context: Any) -> tuple[Any, ...]:
    return tuple(children)


_tuple_flatten, _tuple_flatten_with_keys = _list_flatten, _list_flatten_with_keys


def _dict_flatten(value: Any) -> tuple[list[Any], Any]:
    return list(value.values()), list(value)


def _dict_unflatten(children: Iterable[Any], keys: Any) -> dict[Any, Any]:
    return dict(zip(keys, children))


def _namedtuple_flatten(value: Any) -> tuple[list[Any], Any]:
    return list(value), type(value)


def _namedtuple_unflatten(children: Iterable[Any], kind: Any) -> Any:
    return kind(*children)


def _dict_flatten_with_keys(value: Any) -> tuple[list[tuple[MappingKey, Any]], Any]:
    children, keys = _dict_flatten(value)
    return [(MappingKey(key), child) for key, child in zip(keys, children)], keys


SUPPORTED_NODES: dict[type, NodeDef] = {
    list: NodeDef(_list_flatten, _list_unflatten),
    tuple: NodeDef(_tuple_flatten, _tuple_unflatten),
    dict: NodeDef(_dict_flatten, _dict_unflatten),
    OrderedDict: NodeDef(_dict_flatten, lambda children, keys: OrderedDict(zip(keys, children))),
    defaultdict: NodeDef(
        lambda v: (list(v.values()), (v.default_factory, list(v))),
        lambda children, context: defaultdict(context[0], zip(context[1], children)),
    ),
    deque: NodeDef(lambda v: (v, v.maxlen), lambda children, length: deque(children, length)),
    namedtuple: NodeDef(_namedtuple_flatten, _namedtuple_unflatten),  # type: ignore[dict-item]
}


_DICTS = (dict, OrderedDict, defaultdict)

_KEYS: dict[type, Callable[[Any], Any]] = {}
"""By registered type: what gives its children behind their keys."""


class TreeSpec(NamedTuple):
    """The shape of a tree: its container (None for a leaf), what that keeps beside its children, and theirs."""

    type: Any
    context: Any
    children_specs: tuple[TreeSpec, ...]

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(child.num_leaves for child in self.children_specs)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(child.num_nodes for child in self.children_specs)

    def children(self) -> list[TreeSpec]:
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """What `tree` has in the place of each leaf, which may be a tree. ValueError where its containers differ."""
        if self.type is None:
            return [tree]
        children, context = self._children_of(tree)
        if context != self.context or len(children) != self.num_children:
            raise ValueError(f"trees of different shapes: {self} and {tree!r:.100}")
        found = [spec.flatten_up_to(child) for spec, child in zip(self.children_specs, children, strict=True)]
        return [value for values in found for value in values]

    def _children_of(self, tree: PyTree) -> tuple[list[Any], Any]:
        """As `self.type` gives them; of dicts in the order of the keys here. The context is `...` where they differ."""
        if self.type in _DICTS and type(tree) in _DICTS:
            keys = self.context[1] if self.type is defaultdict else self.context
            return ([tree[key] for key in keys], self.context) if set(keys) == set(tree) else ([], ...)
        if _get_node_type(tree) is not self.type:
            return [], ...
        children, context = SUPPORTED_NODES[self.type].flatten_fn(tree)
        return list(children), context


class LeafSpec(TreeSpec):
    """The shape of a leaf."""

    def __new__(cls) -> LeafSpec:
        return super().__new__(cls, None, None, ())


_LEAF = LeafSpec()


def _get_node_type(value: Any) -> type:
    """The type that `SUPPORTED_NODES` knows a container by."""
    is_named = isinstance(value, tuple) and hasattr(value, "_fields") and type(value) not in SUPPORTED_NODES
    return namedtuple if is_named else type(value)  # type: ignore[return-value]


def _kind(value: Any, is_leaf: Callable[[Any], bool] | None) -> NodeDef | None:
    return None if is_leaf is not None and is_leaf(value) else SUPPORTED_NODES.get(_get_node_type(value))


def is_structseq_instance(obj: Any) -> bool:
    """Whether `obj` is a named tuple of Python's own, such as what `time.localtime()` gives."""
    return isinstance(obj, tuple) and hasattr(type(obj), "n_sequence_fields")


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether `obj` is a named tuple."""
    return isinstance(obj, tuple) and hasattr(type(obj), "_fields")


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves in order, and the shape of the tree. is_leaf: says of what else is one."""
    leaves: list[Any] = []

    def visit(value: Any) -> TreeSpec:
        kind = _kind(value, is_leaf)
        if kind is None:
            leaves.append(value)
            return _LEAF
        children, context = kind.flatten_fn(value)
        return TreeSpec(_get_node_type(value), context, tuple([visit(child) for child in children]))

    return leaves, visit(tree)


def _keys(value: Any, count: int) -> list[Any]:
    """What the children of a container are reached by."""
    kind = type(value)
    if kind in _KEYS:
        return [key for key, _ in _KEYS[kind](value)[0]]
    if isinstance(value, dict):
        return list(map(MappingKey, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields: Any = getattr(value, "_fields")  # noqa: B009  # which a tuple has not
        return list(map(GetAttrKey, fields))
    return [SequenceKey(i) for i in range(count)]


def tree_flatten_with_path(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """The leaves in order, each behind the keys that it is reached by, and the shape of the tree. is_leaf: as of
    `tree_flatten`."""
    found: list[tuple[tuple[Any, ...], Any]] = []

    def visit(value: Any, path: tuple[Any, ...]) -> None:
        kind = _kind(value, is_leaf)
        if kind is None:
            found.append((path, value))
            return
        children = list(kind.flatten_fn(value)[0])
        for key, child in zip(_keys(value, len(children)), children):
            visit(child, (*path, key))

    visit(tree, ())
    return found, tree_structure(tree, is_leaf)


def tree_leaves_with_path(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[tuple[Any, ...], Any]]:
    """The leaves in order, each behind the keys that it is reached by. is_leaf: as of `tree_flatten`."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """`tree_map` of a `func` that is given the keys of each leaf of `tree` before it. `rests`, `is_leaf` and what it
    raises are as of `tree_map`."""
    paths = iter([path for path, _ in tree_leaves_with_path(tree, is_leaf)])
    return tree_map(lambda *leaves: func(next(paths), *leaves), tree, *rests, is_leaf=is_leaf)


def keystr(kp: Iterable[Any]) -> str:
    """The keys of a path, `kp`, as text."""
    return "".join(map(str, kp))


def tree_iter(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """The leaves in order. is_leaf: as of `tree_flatten`."""
    yield from tree_leaves(tree, is_leaf)


def tree_is_leaf(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether `tree` is a leaf. is_leaf: as of `tree_flatten`."""
    return _kind(tree, is_leaf) is None


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of that shape with these leaves. Raises ValueError for another number of them."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(): {len(given)} leaves for a tree of {treespec.num_leaves}")
    rest = iter(given)

    def build(spec: TreeSpec) -> Any:
        if spec.type is None:
            return next(rest)
        kind = SUPPORTED_NODES[spec.type]
        return kind.unflatten_fn([build(child) for child in spec.children_specs], spec.context)

    return build(treespec)


def _broadcast_to_and_flatten(
    tree: PyTree, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None
) -> list[Any] | None:
    """For each leaf of a tree of shape `treespec` what `tree`, of that shape or the top of it, has there; None where it
    does not fit. is_leaf: as of `tree_flatten`."""
    kind = _kind(tree, is_leaf)
    if kind is None:
        return [tree] * treespec.num_leaves
    children, context = kind.flatten_fn(tree)
    if (_get_node_type(tree), context, len(list(children))) != (*treespec[:2], treespec.num_children):
        return None
    found = [_broadcast_to_and_flatten(c, s, is_leaf) for c, s in zip(children, treespec.children_specs, strict=True)]
    return None if None in found else [leaf for leaves in found for leaf in leaves or ()]


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The shape of the tree."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """The tree with `func` of each leaf, and of what `rests` have in its place. ValueError for other shapes."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*each) for each in zip(leaves, *others)], spec)


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Any = None) -> PyTree:
    """Calls `func` on each leaf. Returns the tree as it was given."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Any = None) -> PyTree:
    """`tree_map` of the leaves of a type, or of a tuple of types; the others stay."""
    return tree_map(lambda leaf: func(leaf) if isinstance(leaf, kind) else leaf, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether `pred` is true of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Any = None) -> bool:
    """Whether `pred` is true of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], Any], unflatten_fn: Callable[[list[Any], Any], Any], **options: Any
) -> None:
    """Makes objects of a type containers: `flatten_fn` gives (children, context), `unflatten_fn` takes them.

    flatten_with_keys_fn: gives the children behind their keys, for `tree_flatten_with_path`. Other options are taken
    for PyTorch's sake. Raises ValueError for a type that is one already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls.__name__} is a container already")
    if callable(with_keys := options.get("flatten_with_keys_fn")):
        _KEYS[cls] = with_keys
    SUPPORTED_NODES[cls] = norch.func.trees.REGISTERED[cls] = NodeDef(flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node
