"""In-place ops: the functional op, its result written into the tensor's memory, and the graph told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..autograd import graph
from ..autograd.graph import (
    is_recording,
    mark_modified,
    new_node,
    next_sequence_number,
    resolve,
)
from ..dispatch.arguments import describe, numbers_by_name
from ..dispatch.call import as_operand, call_in_place
from ..dispatch.codegen import call_path
from ..dispatch.op import Op
from ..dispatch.plan import SCALARS
from ..dispatch.traced import KINDS, Traced
from ..dtype import FLOATING, float64
from ..errors import DTypeError
from ..observing import IN_PLACE, observable
from ..ops.copying import write
from ..ops.creation import FILL
from ..ops.elementwise.arithmetic import AXPY, add, maximum, minimum, scaled, sub
from ..ops.elementwise.composites import CLAMP, clamp
from ..ops.elementwise.weighted import ADDCDIV, ADDCMUL, LERP
from ..ops.families import op_of
from ..ops.from_data import as_tensor
from ..ops.registry import method
from ..ops.shape.views import alias, expand
from ..overriding import foreign_among
from ..spec import Spec
from ..tensor_base import TensorBase
from .rebasing import any_tracked, assign, check_result, check_writable, once, overlapping, rebase
from .scattering import SCATTERING, putting, scattering

if TYPE_CHECKING:
    from . import Tensor


_fill_into = FILL.into


def inplace(function: Callable[..., Tensor], name: str | None = None) -> Callable[..., Any]:
    """The in-place method (`add_`) of a functional op (`add`)."""
    title = (name or function.__name__.lstrip("_")) + "_"
    op: Op | None = getattr(function, "op", None) or getattr(getattr(function, "__wrapped__", None), "op", None)

    writes_over = op is not None and _may_write_over(op)
    writes_over_untracked = op is not None and op.is_elementwise

    def general(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        foreign = foreign_among((*args, *kwargs.values()) if kwargs else args)
        if foreign is not None:
            return foreign(title, (self, *args), kwargs)  # type: ignore[no-any-return]
        check_writable(self, title)
        is_tracked = is_recording() and any_tracked(self, args, kwargs)
        if self.left_to is not None and not is_tracked:
            return self.left_to(title, (self, *args), kwargs)  # type: ignore[no-any-return]
        if title in _SIGN_OF_ADDED and args and not is_tracked and not kwargs:
            added_to = getattr(args[0], "added_to", None)
            if added_to is not None and added_to(self, _SIGN_OF_ADDED[title]):
                return self
        over = writes_over or (writes_over_untracked and not is_tracked)
        if over and not kwargs and _is_whole(op, args) and _written_over(op, self, args, title):  # type: ignore[arg-type]
            return self
        source = self
        if is_tracked and _saves_input(op):
            source = self.clone()
            if writes_over_untracked and not kwargs and _written_over(op, self, args, title, source):  # type: ignore[arg-type]
                return self
            args = tuple([source if a is self else a for a in args])
        try:
            value: Any = function(source, *args, **kwargs)
        except TypeError:
            ordered = numbers_by_name(title[:-1], (source, *args), kwargs)
            if ordered is None:
                raise
            value = function(*ordered[0], **ordered[1])
        if not hasattr(value, "node"):  # NotImplemented, or a ComplexPair
            if value is NotImplemented and title.startswith("__"):
                return value  # type: ignore[no-any-return]
            raise DTypeError(f"{title}(): operands must be tensors, numbers or arrays, got {describe(args[0])}")
        check_result(title, self, value)
        return assign(self, value, title)

    call: Any = general
    if op is not None and op.kind == "primitive":
        sign = _SIGN_OF_ALPHA.get(function)
        otherwise = general if sign is None else _with_alpha(general, lambda x, y: call(x, y), title, sign)
        call = call_path(op, method=title, otherwise=otherwise)
    if title in _OVER_INPUT:
        call = _over_input(general, title)
    elif title in SCATTERING:
        call = scattering(general, title)
    elif title == "put_":
        call = putting(general)
    call.__name__ = call.__qualname__ = title
    call.__doc__ = f"`{title[:-1]}`, its result written into this tensor's memory. Returns the tensor.\n\n{_NOTE}"
    call.__wrapped__ = function  # whose signature it has
    return call  # type: ignore[no-any-return]


_NOTE = """Raises what that does; ShapeError for a result of another shape than this tensor's, or where elements of it
share memory; DTypeError for a result that its dtype cannot hold; AutogradError for a leaf that requires grad, unless
recording is off."""


def _may_write_over(op: Op) -> bool:
    """Whether the result may take the first operand's place, also where that is recorded: the gradient needs nothing.

    That of relu and leaky_relu needs the result, which must not be changed after relu_ then, as in PyTorch. An
    elementwise composite's result may lie where an operand does since the contract's 1.3.
    """
    return op.name in ("relu", "leaky_relu") or (
        op.kind == "primitive" and op.rules is not None and not op.saves_tensors
    )


def _is_whole(op: Any, args: tuple[Any, ...]) -> bool:
    """Whether the op alone is what the function of these arguments does."""
    return op.name != "leaky_relu" or not args or args[0] >= 0


@observable(IN_PLACE)
def _written_over(op: Op, tensor: Tensor, others: tuple[Any, ...], title: str, source: Tensor | None = None) -> bool:
    """Runs an op over its first operand, and records it; False where that cannot be.

    source: a copy of the tensor, which is the operand then, for a gradient that needs what is written over.
    """
    if len(op.params) != 1 + len(others) or op.tensors[0] != 0 or (source is not None and len(op.tensors) > 1):
        return False
    for i, x in enumerate(others, 1):
        fits = isinstance(x, TensorBase) if i in op.tensors else i not in op.slots and type(x) in SCALARS - KINDS.keys()
        if not fits:
            return False
    first = tensor if source is None else source
    tensors: list[Any] = [first, *[x for x in others if isinstance(x, TensorBase)]]
    if any(type(x.spec) is not Spec for x in tensors) or any(overlapping(tensor, x) for x in tensors):
        return False
    specs = (first.spec, *[x.spec if isinstance(x, TensorBase) else x for x in others])
    edges = tuple([resolve(x) if is_recording() else None for x in tensors])
    is_recorded = any(edge is not None for edge in edges)
    if (is_recorded and tensor.base is not None) or tensor.spec.device.backend.contract < (1, 3):
        return False
    over = op.into_plans[tensor.spec, *specs]
    if not over.in_place or over.kernel is None:
        return False
    plan = op.plans[specs if others else first.spec] if is_recorded else over
    if is_recorded and (plan.make is None or plan.out is not tensor.spec):
        return False
    call_in_place(over, [value for x in (tensor, *tensors) for value in (x.buffer, x.offset)])
    mark_modified(tensor, title)
    if is_recording():
        saved = any(rule is not None and rule.saved_outputs for rule in op.rules or ())
        outputs = ((tensor.buffer, tensor.offset),) if saved else None
        kept = (source, *[None if isinstance(x, TensorBase) else x for x in others])
        rebase(tensor, new_node(plan, edges, kept, outputs) if is_recorded else None)
    return True


_SIGN_OF_ALPHA: dict[Any, int] = {add: 1, sub: -1}


_SIGN_OF_ADDED = {"add_": 1, "__iadd__": 1, "sub_": -1, "subtract_": -1, "__isub__": -1}
"""Of methods that ask an operand whether it adds itself, as a sparse tensor does, whose zeros are no elements."""


def _with_alpha(
    general: Callable[..., Tensor], plain: Callable[..., Tensor], title: str, sign: int
) -> Callable[..., Tensor]:
    """`general`, but a tensor times `alpha`, a number, is added in one kernel where the backend has that."""
    fused: Any = call_path(AXPY, method=title, otherwise=lambda x, y, alpha: plain(x, scaled(y, alpha * sign, x)))

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(args) == len(kwargs) == 1 and "alpha" in kwargs:
            (other,), alpha = args, kwargs["alpha"]
            if type(alpha) in SCALARS and isinstance(other, TensorBase):
                return fused(self, other, alpha * sign)  # type: ignore[no-any-return]
        return general(self, *args, **kwargs)

    return call


def _of_lerp(end: Any, weight: Any) -> tuple[Any, ...] | None:
    fits = isinstance(end, TensorBase) and type(weight) in SCALARS
    return (end, weight, 1 - weight, bool(abs(weight) < 0.5)) if fits else None


def _of_addcmul(tensor1: Any, tensor2: Any, *, value: Any = 1) -> tuple[Any, ...] | None:
    fits = isinstance(tensor1, TensorBase) and isinstance(tensor2, TensorBase) and type(value) in SCALARS
    return (tensor1, tensor2, value) if fits else None


_OVER_INPUT: dict[str, tuple[Op, Callable[..., tuple[Any, ...] | None]]] = {
    "addcdiv_": (ADDCDIV, _of_addcmul), "addcmul_": (ADDCMUL, _of_addcmul), "lerp_": (LERP, _of_lerp)
}  # fmt: skip
"""Composites that are one kernel where the backend has it, and what makes their arguments of the method's."""


def _over_input(general: Callable[..., Tensor], title: str) -> Callable[..., Tensor]:
    """`general`, but a kernel writes over the first operand where there is one, and tensors and a number are given."""
    op, arguments_of = _OVER_INPUT[title]

    def otherwise(self: Tensor, *found: Any) -> Tensor:
        return general(self, *found[:2]) if title == "lerp_" else general(self, *found[:2], value=found[2])

    path = call_path(op, method=title, otherwise=otherwise)

    def call(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        try:
            found = arguments_of(*args, **kwargs)
        except TypeError:  # which `general` explains
            found = None
        return general(self, *args, **kwargs) if found is None else path(self, *found)

    return call


def _saves_input(op: Op | None) -> bool:
    return op is None or op.rules is None or any(0 in rule.saved_inputs for rule in op.rules if rule is not None)


_clamp_general = inplace(clamp)
_raise_to = call_path(op_of(maximum), method="clamp_", otherwise=lambda x, bound: _clamp_general(x, bound, None))
_lower_to = call_path(op_of(minimum), method="clamp_", otherwise=lambda x, bound: _clamp_general(x, None, bound))
_limit = call_path(CLAMP, method="clamp_", otherwise=lambda x, low, high: _lower_to(_raise_to(x, low), high))


@method("clamp_", "clip_", check=False)
def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`clamp`, its result written into this tensor's memory. Returns the tensor. Raises as `add_` does."""
    numbers = {type(min), type(max)} - {type(None)}
    if (
        self.node is not None
        or not numbers
        or numbers - ({float, int} if self.spec.dtype.category == FLOATING else {int})
    ):
        return _clamp_general(self, min, max)  # type: ignore[no-any-return]
    if min is None:
        return _lower_to(self, max)  # type: ignore[no-any-return]
    return _raise_to(self, min) if max is None else _limit(self, min, max)  # type: ignore[no-any-return]


@method(check=False)
def fill_(self: Tensor, value: Any) -> Tensor:
    """Sets every element to `value`, a number or a 0-d tensor."""
    return fill_as("fill_", self, value)


@method(check=False)
def zero_(self: Tensor) -> Tensor:
    """Sets every element to 0."""
    spec = self.spec
    if self.node is not None or self.base is not None or spec.overlaps:
        return fill_as("zero_", self, 0)
    _fill_into(self, spec, 0)
    line = graph.line_of_change
    self.buffer.modified = (next_sequence_number(), "zero_", line and line())
    return self


def fill_as(op: str, self: Tensor, value: Any) -> Tensor:
    """`fill_`, under the name that errors will give."""
    if type(value) not in SCALARS and not isinstance(value, TensorBase):
        foreign = foreign_among((value,))
        if foreign is not None:
            return foreign(op, (self, value), {})  # type: ignore[no-any-return]
        value = as_operand(value)
    tracked = check_writable(self, op, alike=not isinstance(value, TensorBase))
    if isinstance(value, TensorBase):
        return copy_as(op, self, value)  # type: ignore[arg-type]
    target = once(self) if self.spec.overlaps else self
    _fill_into(target, target.spec, value)
    mark_modified(self, op)
    if tracked:
        rebase(self, None)
    return self


@method(check=False)
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Takes the values of `src`, which broadcasts to this shape and is cast to this dtype and device.

    With `non_blocking`, a copy to pinned host memory may not be done when this returns, but after
    `norch.cuda.synchronize()` or an event; elsewhere it changes nothing. Raises DTypeError for complex numbers.
    """
    source: Any = src
    if not isinstance(src, TensorBase):
        foreign = foreign_among((src,))
        if foreign is not None:
            return foreign("copy_", (self, src, *((non_blocking,) if non_blocking else ())), {})  # type: ignore[no-any-return]
        source = as_tensor(src, dtype=float64 if type(src) in (float, Traced) else None)
    if not hasattr(source, "spec"):  # complex numbers
        raise DTypeError(f"copy_(): a tensor of {self.spec.dtype} cannot hold {src!r:.60}")
    memory = _plain_host_memory(self, source) if non_blocking else None
    if memory is None:
        return copy_as("copy_", self, source)
    check_writable(self, "copy_")
    start = source.offset * source.spec.dtype.itemsize
    source.spec.device.backend.copy_out_later(source.buffer, start, memory)
    mark_modified(self, "copy_")
    return self


def _plain_host_memory(self: Tensor, source: Tensor) -> memoryview | None:
    """This memory, if it is the host's and takes the bytes of `source`, on another device, as they are."""
    spec = self.spec
    if source.spec.device is spec.device or source.spec.like(device=spec.device) is not spec:
        return None
    if not spec.is_contiguous or (is_recording() and (self.requires_grad or source.requires_grad)):
        return None
    view = spec.device.backend.host_view(self.buffer)
    start = self.offset * spec.dtype.itemsize
    return None if view is None else view[start : start + spec.nbytes]


def copy_as(op: str, self: Tensor, source: Tensor) -> Tensor:
    """`copy_`, under the name that errors will give."""
    tracked = check_writable(self, op)
    spec = self.spec
    if source.spec is not spec and source.spec.shape != spec.shape:
        source = expand(source, tuple(spec.shape))
    if source.node is not None and is_recording() and resolve(source) is not None:
        return assign(self, alias(source), op)  # with a node of its own: what source is, this tensor does not become
    if source.spec is not spec and source.spec.device is not spec.device:
        lacks = source.spec.dtype.name in spec.device.backend.missing_dtypes
        source = source.to(spec.device, spec.dtype) if lacks else source.to(spec.device)
    write(self, source.clone() if source.buffer is self.buffer and overlapping(self, source) else source)
    mark_modified(self, op)
    if tracked:
        rebase(self, None)
    return self
