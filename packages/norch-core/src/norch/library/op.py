"""`CustomOp`: a Python function as one op, with gradients, kernels by device and a rule for `vmap`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import Parameter
from itertools import zip_longest
from typing import Any

from ..amp import autocast
from ..amp.autocast_mode import is_autocast_enabled
from ..autograd.function import Function
from ..autograd.graph import is_recording, mark_modified
from ..autograd.mode import no_grad
from ..dtype import DType, float64
from ..errors import AutogradError, LackingError
from ..func.batched import batched
from ..func.rules import MapInfo
from ..func.trees import LEAF, flatten, spread, tree_map, unflatten
from ..tensor_base import TensorBase
from .schema import Schema

noting: Callable[..., Any] | None = None
"""While a step is recorded, what runs an op: noting(op, args, kwargs)."""

_POSITIONAL, _KEYWORD, _EMPTY = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY, Parameter.empty

_below_autograd = ContextVar("below_autograd", default=False)


@contextmanager
def below_autograd() -> Iterator[None]:
    """Within this context the kernels that `Library.impl` gave for "Autograd" are passed over, as in their own
    `forward`, which calls the op again for what it computes."""
    token = _below_autograd.set(True)
    try:
        yield
    finally:
        _below_autograd.reset(token)


class _Call:
    """A call of an op: the structures of (args, kwargs) and of what it gave."""

    __slots__ = ("made", "op", "structure")

    def __init__(self, op: CustomOp, structure: Any) -> None:
        self.op, self.structure, self.made = op, structure, LEAF


class _Recorded(Function):
    """A call with gradients, whose arguments and results are taken apart: lists of tensors have gradients too."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *leaves: Any) -> Any:
        op = call.op
        args, kwargs = unflatten(call.structure, list(leaves))
        output = op._run(args, kwargs)
        results, call.made = flatten(output)
        ctx._call = call
        ctx.needs_input_grad = unflatten(call.structure, list(ctx.needs_input_grad[1:]))[0]
        if op._setup is not None:
            only = {"keyword_only_inputs": kwargs} if kwargs else {}
            op._setup(ctx=ctx, inputs=args, output=output, **only)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        op, structure = ctx._call.op, ctx._call.structure
        if op._backward is None:
            raise AutogradError(f"{op.qualname}: there is no formula for its gradient; register_autograd gives it one")
        given = unflatten(ctx._call.made, list(grads))
        found = op._backward(ctx, *given) if isinstance(given, tuple) else op._backward(ctx, given)
        found = found if isinstance(found, tuple) else (found,)
        (_, parts), of_kwargs = structure[1]
        given, rest = found[: len(parts)], flatten(list(ctx.needs_input_grad[len(found) :]))[0]
        if any(rest) or any(grad is not None for grad in found[len(parts) :]):
            raise AutogradError(f"{op.qualname}: backward gave {len(found)} gradients for {len(parts)} arguments")
        rows: list[Any] = [None]
        for name, grad, part in zip_longest(list(op.schema.signature.parameters)[: len(parts)], given, parts):
            count = _size(part)
            row = [None] * count if grad is None else flatten(grad)[0]
            if len(row) != count:
                raise AutogradError(
                    f"{op.qualname}: backward gave {len(row)} gradients for the {count} tensors of {name}"
                )
            rows += row
        return (*rows, *[None] * _size(of_kwargs))


def _size(structure: Any) -> int:
    return 1 if structure is LEAF else sum(map(_size, structure[1]))


def _innermost(tree: Any) -> Any:
    """The innermost vmap that a tensor differs in, or None."""
    levels = [x.level for x in flatten(tree)[0] if hasattr(x, "level")]
    return max(levels, key=lambda level: level.depth, default=None)


class CustomOp:
    """An op that is a Python function. What it computes has gradients once `register_autograd` was called.

    schema: what it takes and gives. strict: whether it is one op to autograd, also where it has no gradient; else what
    its kernels compute of other ops has theirs.
    """

    def __init__(self, name: str, schema: Schema, *, strict: bool) -> None:
        self.qualname, self.schema, self._strict = name, schema, strict
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self._autograd: dict[str | None, Callable[..., Any]] = {}
        self._backward: Callable[..., Any] | None = None
        self._setup: Callable[..., Any] | None = None
        self._composed: Callable[..., Any] | None = None
        self._fake: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None
        self._autocast: dict[str, DType] = {}
        self.others: dict[str, CustomOp] = {}
        """The overloads that have a name: `out` is that of "mine::scaled.out"."""
        self.is_functional = not schema.is_mutable
        """Whether it changes none of its arguments."""
        self.is_opaque = False
        """Whether captured steps run its Python, which reads values."""
        self.namespace, _, self.__name__ = name.partition("::")
        self.__qualname__ = self.__name__
        self._function: type[Function] = type(self.__name__, (_Recorded,), {})
        self._qualname = self._qualified_op_name = name  # as PyTorch calls it

    def __repr__(self) -> str:
        return f"<CustomOp {self.qualname}>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}" + ("" if "." in self.__name__ else ".default")

    def __getattr__(self, name: str) -> CustomOp:
        found = self.__dict__.get("others", {}).get(name)
        if found is None:
            raise AttributeError(f"{self!r} has no attribute or overload {name!r}")
        return found  # type: ignore[no-any-return]

    @property
    def default(self) -> CustomOp:
        """The op itself, as the overload without a name."""
        return self

    _opoverload = overloadpacket = default

    @property
    def _schema(self) -> Schema:  # as PyTorch calls it
        return self.schema

    def name(self) -> str:
        """Its name with that of its namespace, "mine::scaled"."""
        return self.qualname

    def overloads(self) -> list[str]:
        """The names of its overloads; "default" is that without one."""
        return [*(() if "." in self.__name__ else ["default"]), *self.others]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != len(self.schema.signature.parameters):
            args, kwargs = self._bound(args, kwargs)
        for device_type, dtype in self._autocast.items():
            if is_autocast_enabled(device_type):
                args, kwargs = tree_map(lambda x: _cast(x, device_type, dtype), (args, kwargs))  # noqa: B023
                with autocast(device_type, enabled=False):
                    return self._dispatched(args, kwargs)
        return self._dispatched(args, kwargs)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in order and with their defaults; those by keyword alone apart. `Signature.bind` says what is
        wrong with them, and takes three times as long."""
        left = dict(kwargs)
        given: list[Any] = list(args)
        for number, (name, parameter) in enumerate(self.schema.signature.parameters.items()):
            if number < len(args) and parameter.kind is _POSITIONAL and name not in left:
                continue
            value = left.pop(name, parameter.default)
            if number < len(args) or value is _EMPTY or parameter.kind not in (_POSITIONAL, _KEYWORD):
                break
            if parameter.kind is _POSITIONAL:
                given.append(value)
            else:
                left[name] = value
        else:
            if len(given) + len(left) == len(self.schema.signature.parameters):
                return tuple(given), left
        try:
            bound = self.schema.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.qualname}: {error}, of {self.schema}") from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def _dispatched(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._vmap is not None and (level := _innermost((args, kwargs))) is not None:
            return self._over_batch(level, args, kwargs)
        if self._composed is not None:
            return self._composed(*args, **kwargs)
        if self._autograd and not _below_autograd.get():
            kernel = self._autograd.get(_device((args, kwargs))) or self._autograd.get(None)
            if kernel is not None:
                return kernel(*args, **kwargs)
        if not is_recording():
            return self._run(args, kwargs)
        leaves, structure = flatten((args, kwargs))
        if not any(getattr(x, "requires_grad", False) for x in leaves):
            return self._run(args, kwargs)
        if self._strict or self._backward is not None:
            call = _Call(self, structure)
            results = self._function.apply(call, *leaves)
            return unflatten(call.made, list(results))
        return self.run(*args, **kwargs)

    def _over_batch(self, level: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the rule of `register_vmap` gives, whose results are samples along the dims that it says."""
        assert self._vmap is not None
        in_dims = tree_map(lambda x: 0 if getattr(x, "level", None) is level else None, args)
        args, kwargs = tree_map(lambda x: x.value if getattr(x, "level", None) is level else x, (args, kwargs))
        found, dims = self._vmap(MapInfo(level.size, level.randomness), in_dims, *args, **kwargs)
        results, shape = flatten(found)
        places = spread(dims, shape) or flatten(dims)[0]
        rows = zip(results, places, strict=True)
        return unflatten(shape, [x if d is None else batched(level, x.movedim(d, 0)) for x, d in rows])

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with no_grad():
            out = self.run(*args, **kwargs) if noting is None else noting(self, args, kwargs)
        if not self.is_functional:
            for value, argument in zip(args, self.schema.arguments, strict=False):
                for tensor in flatten(value)[0] if argument.is_write else ():
                    if isinstance(tensor, TensorBase) and not tensor.spec.device.is_meta:
                        mark_modified(tensor, self.qualname)  # type: ignore[arg-type]
        return out

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """What the kernel for the tensors' device returns: on "meta" that of `register_fake`.

        A kernel that needs what norch lacks gives way to the one for any device. Raises NotImplementedError where there
        is none.
        """
        device = _device((args, kwargs))
        anywhere = self._kernels.get(None)
        kernel = self._kernels.get(device) or (self._fake if device == "meta" else None) or anywhere
        if kernel is None:
            raise NotImplementedError(f"{self.qualname}: no kernel for device {device!r}; register_kernel gives it one")
        try:
            return kernel(*args, **kwargs)
        except LackingError:  # such as a kernel that is to be compiled
            if anywhere in (None, kernel):
                raise
            return anywhere(*args, **kwargs)

    def compose(self, function: Callable[..., Any]) -> None:
        """From now on the op is what `function` computes of other ops, which have gradients of their own."""
        self._composed = function

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """`backward(ctx, *grads)` gives a gradient, or None, for each argument, a list for a list of tensors;
        `setup_context(ctx, inputs, output)` saves what it needs: those of `norch.autograd.Function`. Of an op with
        arguments by keyword alone it is `setup_context(ctx, inputs, keyword_only_inputs, output)`.
        """
        self._backward, self._setup = backward, setup_context

    def register_kernel(self, device_types: Any, func: Any = None, /) -> Any:
        """`func` computes where the first tensor is on a device of `device_types`, one type or several, or "default"
        for any. A decorator without `func`."""
        if func is None:
            return lambda function: self.register_kernel(device_types, function)
        for device_type in [device_types] if isinstance(device_types, str) or device_types is None else device_types:
            self._kernels[None if device_type == "default" else device_type] = func
        return func

    def register_fake(self, func: Any = None, /) -> Any:
        """What makes the results of meta tensors: of their shapes and dtypes, without values. By default the op itself
        does. A decorator without `func`."""
        if func is None:
            return self.register_fake
        self._fake = func
        return func

    def register_vmap(self, func: Any = None, /) -> Any:
        """`func(info, in_dims, *args)` computes all samples of a `vmap` at once: the tensors have these along a dim,
        that of `in_dims`. It returns the results, and where the samples' dims are in them. By default the op runs on
        one sample. A decorator without `func`."""
        if func is None:
            return self.register_vmap
        self._vmap = func
        return func

    def register_autocast(self, device_type: str, cast_inputs: DType) -> None:
        """Under autocast for `device_type` floating tensors there, but those of float64, are cast to `cast_inputs`."""
        self._autocast[device_type] = cast_inputs

    def register_autograd_kernel(self, device_type: str | None, func: Callable[..., Any]) -> None:
        """`func` is called in place of the op, where `device_type` is that of the tensors or None, to give it
        gradients: within `below_autograd` it calls the op for what it computes."""
        self._autograd[device_type] = func


def _device(tree: Any) -> str | None:
    """The type of the first tensor's device."""
    first = tree[0][0] if tree[0] else None
    if isinstance(first, TensorBase):
        return first.spec.device.type
    return next((x.spec.device.type for x in flatten(tree)[0] if isinstance(x, TensorBase)), None)


def _cast(x: Any, device_type: str, dtype: DType) -> Any:
    if not isinstance(x, TensorBase) or x.spec.device.type != device_type:
        return x
    return x.to(dtype) if x.spec.dtype.is_floating_point and x.spec.dtype is not float64 else x  # type: ignore[attr-defined]
