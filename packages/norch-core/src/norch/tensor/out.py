"""`out=`: results written into tensors that the caller gives, by one rule for every function."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .. import switches
from ..autograd.graph import is_recording, mark_modified
from ..backend.contract import ELEMENTWISE
from ..dispatch.arguments import describe, is_bound, numbers_by_name
from ..dispatch.call import _key, launch_into
from ..dispatch.op import Op
from ..dtype import can_cast
from ..errors import AutogradError, DeviceError, DTypeError, ShapeError
from ..ops.creation import empty_spec, zeros_like
from ..ops.registry import FUNCTIONS
from ..ops.shape.joining import stack
from ..overriding import ENTRIES, Overridden, recover
from ..spec import Spec
from ..tensor_base import TakenOver, TensorBase
from .inplace import copy_as
from .rebasing import check_writable, overlapping


def write_out(function: Callable[..., Any], name: str, out: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The results of `function(*args, **kwargs)` in the tensors `out`, one or as many as there are results.

    As in PyTorch, an `out` without elements takes the result's shape, and one of another shape too, with a warning.
    Raises AutogradError where a gradient is wanted, DTypeError for a dtype that cannot hold the result, DeviceError for
    another device, ShapeError where `out` and an operand overlap without being the same.
    """
    targets = tuple(out) if isinstance(out, tuple | list) else (out,)
    operands = [*tensors_in(args), *tensors_in(tuple(kwargs.values()))]
    for target in targets:
        memory = _memory(target)
        if memory is None:
            raise DTypeError(f"{name}(): out must be a Tensor, got {describe(target)}")
        _check(name, memory, operands)
    if not operands:
        given = inspect.signature(function).parameters
        for option in ("dtype", "device"):
            if option in given and kwargs.get(option) is None:
                kwargs = {**kwargs, option: getattr(targets[0], option)}
    found = function(*args, **kwargs)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != len(targets):
        raise TypeError(f"{name}(): gives {len(results)} tensors, out has {len(targets)}")
    for target, result in zip(targets, results, strict=True):
        store(name, target, result)
    if not isinstance(found, tuple):
        return targets[0]
    return type(found)(*targets) if hasattr(found, "_fields") else targets


def _memory(value: Any) -> Any:
    """A tensor itself, or the parts of complex numbers; None for anything else."""
    return value if isinstance(value, TensorBase) else getattr(value, "pair", None)


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors of a value: itself, the parts of complex numbers, or those of nested tuples and lists."""
    tensor = _memory(value)
    if tensor is not None:
        yield tensor
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)


def _check(name: str, target: Any, operands: list[Any]) -> None:
    if is_recording() and any(x.requires_grad for x in (target, *operands)):
        raise AutogradError(
            f"{name}(): out= does not support automatic differentiation, but one of the arguments requires grad; use "
            "no_grad() or detach()"
        )
    check_writable(target, name)
    for x in operands:
        if overlapping(target, x):
            raise ShapeError(f"{name}(): out shares memory with an operand without being the same; clone() that first")


_ROWS = frozenset(("arange", "linspace", "logspace", "range"))
"""Functions whose values an `out` of as many elements takes in its own shape."""


def store(name: str, target: Any, result: Any) -> None:
    """Writes a result into `out`, which takes its shape if it has another."""
    parts = _memory(target)
    if parts is not target:
        return store(name, parts, stack([result, zeros_like(result)], -1) if hasattr(result, "spec") else result.pair)
    if not hasattr(result, "spec"):
        raise DTypeError(f"{name}(): the result is {result.dtype}, which out of {target.dtype} cannot hold")
    given, spec = target.spec, result.spec
    if spec.device is not given.device:
        raise DeviceError(f"{name}(): the result is on {spec.device}, out on {given.device}")
    if not can_cast(spec.dtype, given.dtype):
        raise DTypeError(f"{name}(): the result is {spec.dtype}, which out of {given.dtype} cannot hold")
    if given.shape != spec.shape:
        if name in _ROWS and given.numel == spec.numel:
            result = result.view(tuple(given.shape))
        else:
            _resize(name, target, spec)
    copy_as(name, target, result)


def _resize(name: str, target: Any, spec: Spec) -> None:
    given = target.spec
    if target.base is not None:
        raise ShapeError(f"{name}(): out is a view of shape {tuple(given.shape)}, the result {tuple(spec.shape)}")
    if given.numel:
        warnings.warn(
            f"{name}(): out has shape {tuple(given.shape)} and takes that of the result, {tuple(spec.shape)}, in new "
            "memory; give it no elements, or the right shape",
            UserWarning,
            stacklevel=6,
        )
    fresh = empty_spec(given.like(spec.shape))
    target.spec, target.buffer, target.offset = fresh.spec, fresh.buffer, 0
    switches.moved()


def of_call_path(op: Op, otherwise: Any, args: tuple[Any, ...], **kwargs: Any) -> Any:
    """What the call path of an op leaves to others where it was given more than its operands."""
    try:
        return _of_call_path(op, otherwise, args, **kwargs)
    except Overridden as error:
        given = {name: value for name, value in kwargs.items() if value is not None}
        found = recover(error, FUNCTIONS[op.name], args, given)
        if found is None:
            raise
        return found[0]


ENTRIES.add(of_call_path.__code__)


def _of_call_path(op: Op, otherwise: Any, args: tuple[Any, ...], out: Any, _extra: Any, **more: Any) -> Any:
    if _extra is not None:
        ordered = numbers_by_name(op.name, (*args, _extra), {k: v for k, v in more.items() if v is not None})
        if ordered is not None:
            args, named = ordered
            return otherwise(*args, **named) if out is None else write_out(otherwise, op.name, out, args, named)
        if is_bound(FUNCTIONS[op.name], args):
            named = {name: value for name, value in (*more.items(), ("out", out)) if value is not None}
            return FUNCTIONS[op.name](*args[1:], _extra, **named)
        raise TypeError(f"{op.name}(): takes {len(args)} positional arguments, and others by name")
    options = {name: value for name, value in more.items() if value is not None}
    if options:
        return otherwise(*args, **options) if out is None else write_out(otherwise, op.name, out, args, options)
    operands = [x for x in args if isinstance(x, TensorBase)]
    if op.kind != "primitive" or not isinstance(out, TensorBase) or not operands:
        return write_out(op.call, op.name, out, args, {})
    _check(op.name, out, operands)
    same = all(x.buffer is not out.buffer or op.kernel in ELEMENTWISE for x in operands)
    alike = all(x.spec.device is out.spec.device for x in operands)
    try:
        plan = op.into_plans[(out.spec, *_key(op, args))] if same and alike else None
    except Overridden:
        raise
    except TakenOver:  # such as sparse tensors, of which ops make what is to be copied
        plan = None
    if plan is None or not plan.in_place:
        return write_out(op.call, op.name, out, args, {})
    launch_into(plan, out, args)  # type: ignore[arg-type]
    mark_modified(out, op.name)  # type: ignore[arg-type]
    return out
