"""Python functions as named ops, as `torch.library` has them: `custom_op` or `Library` makes one, its name finds it.

    @norch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * factor

    norch.ops.mine.scaled(x, 2.0)

A backend's own ops come with its plug-in; these are for functions of Python that should be one node of the graph.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Iterable
from contextlib import suppress
from inspect import Parameter, Signature, signature
from types import SimpleNamespace
from typing import Any

from .autograd.function import Function
from .autograd.mode import no_grad
from .ops.registry import LOOKUPS
from .tensor_base import TensorBase

_namespaces: dict[str, SimpleNamespace] = {}

noting: Callable[..., Any] | None = None
"""While a step is recorded, what runs an op: noting(op, args, kwargs)."""


class CustomOp:
    """An op that is a Python function; gradients flow once `register_autograd` was called."""

    def __init__(self, name: str, schema: Signature) -> None:
        self.name = name
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._signature = schema
        self._function: type[Function] | None = None
        self._composed: Callable[..., Any] | None = None
        self.is_functional = True
        """Whether it changes none of its arguments."""
        self.is_opaque = False
        """Whether captured steps run its Python, which reads values."""
        self.__name__ = self.__qualname__ = name.partition("::")[2]

    def __repr__(self) -> str:
        return f"<CustomOp {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) < len(self._signature.parameters):
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if self._composed is not None:
            return self._composed(*args, **kwargs)
        if self._function is None or kwargs:
            return self._run(*args, **kwargs)
        return self._function.apply(*args)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs) if noting is None else noting(self, args, kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the kernel for the first tensor's device returns. Raises NotImplementedError where there is none."""
        device = next((x.spec.device.type for x in args if isinstance(x, TensorBase)), None)
        kernel = self._kernels.get(device) or self._kernels.get(None)
        if kernel is None:
            raise NotImplementedError(f"{self.name}: no kernel for device {device!r}; register_kernel gives it one")
        with no_grad():
            return kernel(*args, **kwargs)

    @property
    def default(self) -> CustomOp:
        """The op itself, as its only overload."""
        return self

    def compose(self, function: Callable[..., Any]) -> None:
        """From now on the op is what `function` computes of other ops, which have gradients of their own."""
        self._composed = function

    def register_autograd(self, backward: Callable[..., Any], *, setup_context: Any = None) -> None:
        """`backward(ctx, *grads)` gives a gradient, or None, for each argument; `setup_context(ctx, inputs, output)`
        saves what it needs: those of `norch.autograd.Function`.
        """
        run = self._run

        def nothing(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        names = {"forward": staticmethod(lambda *args: run(*args)), "backward": staticmethod(backward)}
        names["setup_context"] = staticmethod(setup_context or nothing)
        self._function = type(self.__name__, (Function,), names)

    def register_kernel(self, device_types: Any, func: Any = None) -> Any:
        """What computes where the first tensor is on a device of these types. A decorator without `func`."""
        if func is None:
            return lambda function: self.register_kernel(device_types, function)
        for device_type in [device_types] if isinstance(device_types, str) or device_types is None else device_types:
            self._kernels[device_type] = func
        return func

    def register_fake(self, func: Any = None) -> Any:
        """Taken for PyTorch's sake, and not called: meta tensors run the op itself. A decorator too."""
        return func if func is not None else self.register_fake


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
) -> Any:
    """A `CustomOp` of the function, known as `norch.ops.<namespace>.<name>`. A decorator without `fn`.

    name: "namespace::name". mutates_args: which arguments it changes; where it changes none, a captured step may run it
    again on other memory. schema: taken for PyTorch's sake. device_types: where the function computes,
    by default anywhere. Raises ValueError for a name without a namespace.
    """
    if fn is None:
        return lambda function: custom_op(name, function, mutates_args=mutates_args, device_types=device_types)
    op = _named(name, signature(fn))
    op.is_functional = not mutates_args
    op.__doc__ = fn.__doc__
    op.register_kernel(device_types, fn)
    return op


triton_op = custom_op  # whose kernels, those of Triton, PyTorch looks into


def composite_op(name: str, fn: Callable[..., Any]) -> CustomOp:
    """The op `name`, "namespace::name", that is `fn`, computed of other ops with their gradients.

    Raises ValueError for a name without a namespace.
    """
    op = _named(name, signature(fn))
    op.compose(fn)
    return op


def _named(name: str, schema: Signature) -> CustomOp:
    namespace, colons, title = name.partition("::")
    if not (colons and namespace.isidentifier() and title.isidentifier()):
        raise ValueError(f"norch.library: expected 'namespace::name', got {name!r}")
    op = CustomOp(f"{namespace}::{title}", schema)
    setattr(_namespaces.setdefault(namespace, SimpleNamespace()), title, op)
    return op


def _parsed(arguments: str) -> Signature:
    """The signature of a schema's arguments, `Tensor x, float[2] scale=[1.0, 2.0], *, int n=1`."""
    parameters: list[Parameter] = []
    kind: Any = Parameter.POSITIONAL_OR_KEYWORD
    for part in filter(None, map(str.strip, re.split(r",(?![^\[]*\])", arguments))):
        if part == "*":
            kind = Parameter.KEYWORD_ONLY
            continue
        declared, equals, default = part.partition("=")
        value: Any = default
        with suppress(ValueError, SyntaxError):
            value = literal_eval(default)
        parameters.append(Parameter(declared.split()[-1], kind, default=value if equals else Parameter.empty))
    return Signature(parameters)


_ANYWHERE = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "BackendSelect")


class Library:
    """Ops of a namespace, one by one, as `torch.library.Library`: `define` names one, `impl` says what computes it.

    kind: "DEF", "FRAGMENT" or "IMPL". dispatch_key: what `impl` takes by default.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("DEF", "FRAGMENT", "IMPL"):
            raise ValueError(f"Library(): kind must be 'DEF', 'FRAGMENT' or 'IMPL', got {kind!r}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Makes an op of a schema, `scaled(Tensor x, float factor=1.0) -> Tensor`, and returns its name.

        alias_analysis, tags: taken for PyTorch's sake. Raises ValueError for what is no schema.
        """
        found = re.fullmatch(r"\s*(\w+)(?:\.\w+)?\s*\((.*)\)\s*->.*", schema, re.DOTALL)
        if found is None:
            raise ValueError(f"define(): expected 'name(Tensor x, ...) -> Tensor', got {schema!r}")
        _named(f"{self.ns}::{found[1]}", _parsed(found[2]))
        return found[1]

    def impl(self, op_name: str | CustomOp, fn: Callable[..., Any], dispatch_key: str = "", **options: Any) -> None:
        """What computes an op, by its name or itself: where tensors are on a device ("CPU", "CUDA"), by ops with
        gradients of their own ("CompositeImplicitAutograd", or none), anywhere ("CompositeExplicitAutograd").

        "Meta" and autograd's own keys are passed over: meta tensors run the op itself, and `register_autograd` gives
        gradients. options: taken for PyTorch's sake. Raises RuntimeError for an op that was not defined.
        """
        op = _op(f"{self.ns}::{op_name.rpartition('::')[2]}" if isinstance(op_name, str) else op_name)
        key = dispatch_key or self.dispatch_key
        if key in ("", "CompositeImplicitAutograd"):
            op.compose(fn)
        elif key in _ANYWHERE:
            op.register_kernel(None, fn)
        elif key != "Meta" and not key.startswith("Auto"):
            op.register_kernel(key.lower(), fn)


def define(qualname: str, schema: str, *, lib: Library | None = None, tags: Any = ()) -> None:
    """`Library.define` of an op "namespace::name", whose schema begins with the parenthesis.

    lib: where it belongs to, by default by its name. tags: taken for PyTorch's sake. Raises ValueError as `define`.
    """
    namespace, _, title = qualname.rpartition("::")
    (lib or Library(namespace, "FRAGMENT")).define(title + schema)


def impl(qualname: str | Library, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """What computes the op "namespace::name" on devices of these types, or "default" for any. A decorator without
    `func`; `impl(library, name, key)` is one that calls `Library.impl`.

    types: a device type or several. lib: taken for PyTorch's sake. Raises RuntimeError for an op that was not defined.
    """
    if isinstance(qualname, Library):
        library, title, key = qualname, types, func or ""

        def decorate(function: Any) -> Any:
            library.impl(title, function, key)
            return function

        return decorate
    if func is None:
        return lambda function: impl(qualname, types, function)
    for each in [types] if isinstance(types, str) else types:
        _op(qualname).register_kernel(None if each == "default" else each, func)
    return func


def _op(op: str | CustomOp) -> CustomOp:
    if isinstance(op, CustomOp):
        return op
    namespace, _, title = op.partition("::")
    found = getattr(_namespaces.get(namespace), title, None)
    if found is None:
        raise RuntimeError(f"norch.library: there is no op {op!r}; custom_op makes one")
    return found  # type: ignore[no-any-return]


def register_autograd(op: str | CustomOp, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
    """`CustomOp.register_autograd` of an op or its name. Raises RuntimeError for a name that none has."""
    _op(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: str | CustomOp, device_types: Any, func: Any = None, /) -> Any:
    """`CustomOp.register_kernel` of an op or its name. Raises RuntimeError for a name that none has."""
    return _op(op).register_kernel(device_types, func)


def register_fake(op: str | CustomOp, func: Any = None, /) -> Any:
    """`CustomOp.register_fake` of an op or its name. Raises RuntimeError for a name that none has."""
    return _op(op).register_fake(func)


LOOKUPS.append(_namespaces.get)
