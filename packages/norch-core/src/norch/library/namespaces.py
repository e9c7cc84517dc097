"""Ops by name: what makes one, and what finds it, as `norch.ops.<namespace>.<name>`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from types import SimpleNamespace
from typing import Any

from ..ops.registry import LOOKUPS
from .op import CustomOp
from .schema import Schema, infer_schema, unannotated

_namespaces: dict[str, SimpleNamespace] = {}
_awaited: dict[str, list[Callable[[CustomOp], Any]]] = {}
"""By the name of an op that is not defined yet, what is to be done to it then."""

LOOKUPS.append(_namespaces.get)


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """A `CustomOp` of the function, known as `norch.ops.<namespace>.<name>`. A decorator without `fn`.

    name: "namespace::name". mutates_args: which arguments it changes, or "unknown"; where it changes none, a captured
    step may run it again on other memory. schema: "(Tensor x) -> Tensor", by default that of the function's
    annotations. device_types: where the function computes, by default anywhere. tags: taken for PyTorch's sake.

    To differentiate by what it computes raises AutogradError until `register_autograd` was called.
    Raises ValueError for a name without a namespace, and for `mutates_args` that are no parameters.
    """
    if fn is None:
        options = {"mutates_args": mutates_args, "device_types": device_types, "schema": schema}
        return lambda function: custom_op(name, function, **options)
    if schema is not None:
        op = named(name, schema, strict=True)
    else:
        try:
            text = infer_schema(fn, mutates_args=mutates_args)
        except ValueError:
            text = unannotated(signature(fn), mutates_args)
        op = named(name, text, strict=True)
        op.schema.signature = signature(fn)
    op.is_functional = op.is_functional and not mutates_args
    op.__doc__ = fn.__doc__
    op.register_kernel(device_types, fn)
    return op


triton_op = custom_op  # whose kernels, those of Triton, PyTorch looks into


def composite_op(name: str, fn: Callable[..., Any]) -> CustomOp:
    """The op `name`, "namespace::name", that is `fn`, computed of other ops with their gradients.

    Raises ValueError for a name without a namespace.
    """
    op = named(name, unannotated(signature(fn), ()), strict=False)
    op.schema.signature = signature(fn)
    op.compose(fn)
    return op


def named(name: str, schema: str, *, strict: bool) -> CustomOp:
    """A new op, "namespace::name", of this schema; "namespace::name.out" is an overload of that op, its attribute
    `out`, or the op itself where there is no other."""
    name = name.removesuffix(".default")
    namespace, colons, title = name.partition("::")
    title, dot, overload = title.partition(".")
    if not (colons and namespace.isidentifier() and title.isidentifier() and (overload.isidentifier() or not dot)):
        raise ValueError(f"norch.library: expected 'namespace::name', got {name!r}")
    op = CustomOp(name, Schema(name, schema), strict=strict)
    known = _namespaces.setdefault(namespace, SimpleNamespace())
    before = getattr(known, title, None)
    op.others = {} if before is None else before.others
    if overload:
        op.others[overload] = op
    if not overload or before is None:
        setattr(known, title, op)
    for complete in _awaited.pop(name, ()):
        complete(op)
    return op


def complete(name: str, action: Callable[[CustomOp], Any]) -> None:
    """Calls `action(op)` with the op of that name, now or when it is defined. Raises RuntimeError for PyTorch's own."""
    namespace, op = name.partition("::")[0], _known(name)
    if op is not None:
        action(op)
    elif namespace in ("aten", "prims", "prim"):
        raise RuntimeError(f"norch.library: {name} is an op of PyTorch, whose kernels norch does not replace")
    else:
        _awaited.setdefault(name, []).append(action)


def forget(op: CustomOp) -> None:
    """Takes the name from an op."""
    title, _, overload = op.__name__.partition(".")
    op.others.pop(overload, None)
    if getattr(_namespaces[op.namespace], title, None) is op:
        delattr(_namespaces[op.namespace], title)


def _known(name: str) -> CustomOp | None:
    """The op or overload of that name, if there is one."""
    namespace, _, title = name.removesuffix(".default").partition("::")
    title, _, overload = title.partition(".")
    found: CustomOp | None = getattr(_namespaces.get(namespace), title, None)
    return found.others.get(overload) if found is not None and overload else found


def find(op: str | CustomOp) -> CustomOp:
    """The op of a name. Raises RuntimeError where there is none."""
    if isinstance(op, CustomOp):
        return op
    found = _known(op)
    if found is None:
        raise RuntimeError(f"norch.library: there is no op {op!r}; custom_op makes one")
    return found
