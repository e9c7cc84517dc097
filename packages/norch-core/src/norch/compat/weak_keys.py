"""PyTorch's `torch.utils.weak`: dicts whose keys are known by identity, and are not kept alive."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from copy import deepcopy
from typing import Any
from weakref import ref

from ..tensor import Tensor


class WeakIdRef(ref):  # type: ignore[type-arg]
    """A weak reference that equals only those to the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, theirs = self(), other() if isinstance(other, ref) else None
        return mine is theirs if mine is not None and theirs is not None else self is other


class WeakIdKeyDictionary(MutableMapping[Any, Any]):
    """A dict that knows its keys by identity, and loses them when nothing else holds them.

    dict: a mapping that it begins with. ref_type: the class of the references.
    """

    def __init__(self, dict: Any = None, ref_type: type = WeakIdRef) -> None:
        self.data: Any = {}
        self.ref_type = ref_type
        for key, value in () if dict is None else dict.items():
            self[key] = value

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, lambda gone: self.data.pop(gone, None))] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __iter__(self) -> Iterator[Any]:
        return iter([key for kept in [*self.data] if (key := kept()) is not None])

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: Any) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # not of a class that can be held weakly
            return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"

    def copy(self) -> WeakIdKeyDictionary:
        """Another with the same keys and values."""
        return type(self)(self, self.ref_type)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> WeakIdKeyDictionary:
        other = type(self)(ref_type=self.ref_type)
        for key, value in self.items():
            other[key] = deepcopy(value, memo)
        return other


class WeakTensorKeyDictionary(WeakIdKeyDictionary):
    """One whose keys are tensors."""


class TensorWeakRef:
    """A weak reference to a tensor, which is None once the tensor is gone."""

    def __init__(self, tensor: Tensor) -> None:
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
