"""What every tensor is made of. The class that users see, with its methods, is `norch.Tensor`, in norch/tensor."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

from .spec import Spec

if TYPE_CHECKING:
    from .tensor import Tensor


class TensorBase:
    """spec, buffer and offset say what the values are; node and base say where they came from.

    node: see `norch.autograd.graph`. base: the tensor that this one is a view of, never a view itself, or None.
    """

    __slots__ = ("__dict__", "__weakref__", "_grad", "base", "buffer", "node", "offset", "spec")

    spec: Spec
    buffer: Any
    offset: int
    node: Any
    base: Tensor | None
    _grad: Tensor | None

    _result_class: ClassVar[Any]
    """The class of what ops return: the one that is declared with `result_of_ops=True`."""

    apply_function: ClassVar[Any] = None
    """Of a class that stands for others: how a `Function` is applied to arguments with one among them."""

    left_to: ClassVar[Any] = None
    """Of a class that stands for others by `__torch_dispatch__`: `left_to(name, args, kwargs)` does what methods do
    that work on memory."""

    def __init_subclass__(cls, result_of_ops: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _PARTS & vars(cls).keys():
            if isinstance(own := vars(cls)[name], property) and not _is_ours(cls.__module__):
                setattr(cls, name, _Shared(getattr(TensorBase, name), own))
        if result_of_ops:
            TensorBase._result_class = cls


_PARTS = {"base", "buffer", "node", "offset", "spec"}


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


class _Shared:
    """A property that a subclass calls as a part of every tensor: norch's own code gets the part, other code what the
    property gives."""

    def __init__(self, part: Any, own: property) -> None:
        self.part, self.own = part, own

    def _asked_for(self) -> Any:
        asking: Any = sys._getframe(2).f_globals
        return self.part if _is_ours(asking.get("__name__", __name__)) else self.own  # what is generated has no name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self.own if instance is None else self._asked_for().__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        self._asked_for().__set__(instance, value)


class TakenOver(TypeError):
    """Raised by the spec of a tensor that stands for others, such as vmap's, when a plan is looked up by it."""

    def run(self, op: Any, args: tuple[Any, ...]) -> Any:
        """The result of `op`."""
        raise NotImplementedError

    def into(self, op: Any, out: Tensor, args: tuple[Any, ...]) -> None:
        """`op`, its result written into the memory of `out`."""
        raise NotImplementedError


BUILD_RESULT = """\
out.spec = plan.out
out.offset = 0
out.node = out.base = out._grad = None
"""
"""How every call path of `norch.dispatch.codegen` fills in a result, once its `buffer` is set."""


def make_tensor(
    spec: Spec, buffer: Any, offset: int = 0, node: Any = None, base: Tensor | None = None, kind: type | None = None
) -> Tensor:
    """A tensor from its parts, of class `kind` or of what ops return."""
    out: Tensor = object.__new__(kind or TensorBase._result_class)
    out.spec, out.buffer, out.offset, out.node, out.base, out._grad = spec, buffer, offset, node, base, None
    return out
