"""`Library`: ops by their schemas and kernels, as programs that have compiled parts define theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .namespaces import complete, find, forget, named
from .op import CustomOp

_ANYWHERE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "BackendSelect")


class Library:
    """Ops of a namespace, one by one, as `torch.library.Library`: `define` names one, `impl` says what computes it.

    ns: the namespace. kind: "DEF", "FRAGMENT" or "IMPL". dispatch_key: what `impl` takes by default.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Library(): kind must be 'DEF', 'FRAGMENT' or 'IMPL', got {kind!r}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._defined: list[CustomOp] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Makes an op of a schema, `scaled(Tensor x, float factor=1.0) -> Tensor`, and returns its name.

        alias_analysis, tags: taken for PyTorch's sake. Raises ValueError for what is no schema.
        """
        found = re.fullmatch(r"\s*(\w+(?:\.\w+)?)\s*(\(.*)", schema, re.DOTALL)
        if found is None:
            raise ValueError(f"define(): expected 'name(Tensor x, ...) -> Tensor', got {schema!r}")
        self._defined.append(named(f"{self.ns}::{found[1]}", found[2], strict=False))
        return found[1]

    def impl(self, op_name: str | CustomOp, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> None:
        """`fn` computes the op `op_name`, its name or itself: on a device ("CPU", "CUDA", "Meta"), by ops with
        gradients of their own ("CompositeImplicitAutograd", or none), or anywhere ("CompositeExplicitAutograd").

        "Autograd", "AutogradCPU" and their like: what is called in place of the op to give it gradients, such as the
        `apply` of a `Function`, which calls the op within `torch._C._AutoDispatchBelowAutograd()`.
        The op may be defined later. options: taken for PyTorch's sake. Raises RuntimeError for the namespace "aten".
        """
        name = f"{self.ns}::{op_name.rpartition('::')[2]}" if isinstance(op_name, str) else op_name.qualname
        complete(name, lambda op: _set_kernel(op, fn, dispatch_key or self.dispatch_key))

    def _register_fake(self, op_name: str | CustomOp, fn: Callable[..., Any], **options: Any) -> None:
        find(f"{self.ns}::{op_name}" if isinstance(op_name, str) else op_name).register_fake(fn)

    def _destroy(self) -> None:
        for op in self._defined:
            forget(op)
        self._defined.clear()


def _set_kernel(op: CustomOp, fn: Callable[..., Any], key: str) -> None:
    """Makes `fn` what computes the op under a dispatch key of PyTorch's."""
    if key in ("", "CompositeImplicitAutograd"):
        op.compose(fn)
    elif key in _ANYWHERE:
        op.register_kernel(None, fn)
    elif key.startswith("Autograd"):
        op.register_autograd_kernel(key.removeprefix("Autograd").lower() or None, fn)
    elif not key.startswith("Autocast"):
        op.register_kernel(key.lower(), fn)


@contextmanager
def _scoped_library(*args: Any, **kwargs: Any) -> Iterator[Library]:
    """A `Library` whose ops have their names within this context only."""
    library = Library(*args, **kwargs)
    try:
        yield library
    finally:
        library._destroy()


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """`Library.define` of an op `qualname`, "namespace::name", whose schema begins with the parenthesis.

    lib: where it belongs to, by default by its name. tags: taken for PyTorch's sake. Raises ValueError as `define`.
    """
    namespace, _, title = qualname.rpartition("::")
    (lib or Library(namespace, "FRAGMENT")).define(title + schema)


def impl(qualname: str | Library, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """`func` computes the op `qualname`, "namespace::name", on devices of these types. A decorator without `func`;
    `impl(library, name, key)` is one that calls `Library.impl`.

    types: a device type or several, or "default" for any. The op may be defined later. lib: taken for PyTorch's sake.
    Raises RuntimeError for the namespace "aten".
    """
    if isinstance(qualname, Library):
        library, title, key = qualname, types, func or ""

        def decorate(function: Any) -> Any:
            library.impl(title, function, key)
            return function

        return decorate
    if func is None:
        return lambda function: impl(qualname, types, function)
    complete(qualname, lambda op: op.register_kernel(_lowered(types), func))
    return func


def _lowered(types: Any) -> Any:
    return types.lower() if isinstance(types, str) else [each.lower() for each in types]
