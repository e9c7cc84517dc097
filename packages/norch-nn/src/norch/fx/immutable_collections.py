"""Lists and dicts that cannot be changed: the containers among a node's arguments, whose users the graph keeps."""

from __future__ import annotations

from typing import Any, NoReturn

from ..utils._pytree import register_pytree_node


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    kind = type(self).__name__.partition("_")[2]
    raise NotImplementedError(
        f"the arguments of a node cannot be changed in place; change a copy of the {kind} and assign it: "
        "node.args = ..., node.kwargs = ..."
    )


class immutable_list(list[Any]):
    """A list among the arguments of a Node. What would change it raises NotImplementedError."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # type: ignore[assignment]
    append = extend = insert = pop = remove = clear = reverse = sort = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return immutable_list, (list(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class immutable_dict(dict[Any, Any]):
    """A dict among the arguments of a Node. What would change it raises NotImplementedError."""

    __setitem__ = __delitem__ = __ior__ = _refuse  # type: ignore[assignment]
    pop = popitem = update = clear = setdefault = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return immutable_dict, (dict(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


register_pytree_node(immutable_list, lambda x: (list(x), None), lambda children, _: immutable_list(children))
register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda children, keys: immutable_dict(zip(keys, children, strict=True)),
)
