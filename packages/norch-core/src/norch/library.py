"""Python functions as named ops, as `torch.library` has them: `custom_op` makes one, its name finds it.

    @norch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: Tensor, factor: float) -> Tensor:
        return x * factor

    norch.ops.mine.scaled(x, 2.0)

A backend's own ops come with its plug-in; these are for functions of Python that should be one node of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import signature
from types import SimpleNamespace
from typing import Any

from .autograd.function import Function
from .autograd.mode import no_grad
from .ops.registry import LOOKUPS
from .tensor_base import TensorBase

_namespaces: dict[str, SimpleNamespace] = {}


class CustomOp:
    """An op that is a Python function; gradients flow once `register_autograd` was called."""

    def __init__(self, name: str, function: Callable[..., Any], device_types: Any = None) -> None:
        self._name = name
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self.register_kernel(device_types, function)
        self._signature = signature(function)
        self._function: type[Function] | None = None
        self.__name__ = self.__qualname__ = name.partition("::")[2]
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<CustomOp {self._name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        return self._run(*args) if self._function is None else self._function.apply(*args)

    def _run(self, *args: Any) -> Any:
        device = next((x.spec.device.type for x in args if isinstance(x, TensorBase)), None)
        kernel = self._kernels.get(device) or self._kernels.get(None)
        if kernel is None:
            raise NotImplementedError(f"{self._name}: no kernel for device {device!r}; register_kernel gives it one")
        with no_grad():
            return kernel(*args)

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

    name: "namespace::name". mutates_args, schema: taken for PyTorch's sake. device_types: where the function computes,
    by default anywhere. Raises ValueError for a name without a namespace.
    """
    if fn is None:
        return lambda function: custom_op(name, function, device_types=device_types)
    namespace, colons, title = name.partition("::")
    if not (colons and namespace.isidentifier() and title.isidentifier()):
        raise ValueError(f"custom_op(): expected 'namespace::name', got {name!r}")
    op = CustomOp(name, fn, device_types)
    setattr(_namespaces.setdefault(namespace, SimpleNamespace()), title, op)
    return op


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
