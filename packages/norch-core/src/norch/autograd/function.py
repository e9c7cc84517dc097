"""Custom differentiable functions, with PyTorch's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .. import shown
from ..errors import AutogradError
from ..observing import FUNCTION, NODE, observable
from ..source_lines import Line, table
from ..tensor_base import TensorBase, make_tensor
from . import graph
from .accumulate import ALONE, accumulate, unbroadcast
from .graph import Leaf, Node, Output, change, gone, init_node, is_recording, resolve, set_recording
from .saving import Packed, pack_all

if TYPE_CHECKING:
    from ..spec import Spec
    from ..tensor import Tensor
    from .passes import BackwardPass


def _in_order(function: type[Function], has_setup: bool, args: Any, kwargs: Any) -> Any:
    """The arguments of `forward` by position, with its defaults."""
    if not has_setup:
        raise TypeError(f"{function.__name__}.apply(): arguments by name need a setup_context")
    code = getattr(function.forward, "__code__", None)
    if not kwargs and code is not None and len(args) >= code.co_argcount:
        return args
    given = signature(function.forward).bind(*args, **kwargs)
    given.apply_defaults()
    return given.args


def _tensor(value: Any) -> Any:
    """The tensor that a value is or, of complex numbers, that holds their parts; None of anything else."""
    if isinstance(value, TensorBase):
        return value
    return value.pair if hasattr(type(value), "_norch_function") else None


def _pairs(values: Iterable[Any]) -> tuple[Any, ...]:
    """Of each value the class that makes complex numbers of their parts, None where it is none."""
    return tuple([type(v) if not isinstance(v, TensorBase) and _tensor(v) is not None else None for v in values])


def _joined(tensor: Any, node: FunctionNode, position: int) -> Any:
    """The same values as that result of the function."""
    place = node if len(node.specs) == 1 else Output(node, position)
    return make_tensor(tensor.spec, tensor.buffer, tensor.offset, place, None, type(tensor))


class FunctionContext:
    """What `forward` leaves for `backward`: tensors by `save_for_backward`, anything else as attributes.

    needs_input_grad: for each argument of `apply`, whether its gradient is wanted.
    """

    needs_input_grad: tuple[bool, ...] = ()
    _saved: tuple[Any, ...] = ()
    _pairs: tuple[Any, ...] = ()
    _results: Mapping[int, int] = MappingProxyType({})
    _running: FunctionNode | None = None
    _saved_at = 0
    _name = "Function"
    _not_differentiable: tuple[Any, ...] = ()
    _dirty: tuple[Any, ...] = ()
    _materialize = True
    _freed = False
    _line: Line | None = None
    _freed_by: Line | None = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps tensors (inputs, results or others) until the backward pass, and checks that they have not changed."""
        self._pairs = _pairs(tensors)
        self._saved = tuple(map(_tensor, tensors)) if any(self._pairs) else tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Takes what PyTorch would keep for `jvp`, which norch never calls."""

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What `save_for_backward` kept. Raises AutogradError if one was changed in place since, or was freed."""
        if self._freed:
            raise gone(self._name, (f"saved by {self._name}", self._line), ("freed by", self._freed_by))
        if any(type(value) is Packed for value in self._saved):
            return self._given(tuple([value.unpack() if type(value) is Packed else value for value in self._saved]))
        for value in self._saved:
            modified = None if value is None else value.buffer.modified
            if modified is not None and modified[0] > self._saved_at:
                raise AutogradError(
                    f"backward(): {self._name} saved a tensor of shape {tuple(value.shape)}, which {modified[1]} has "
                    "changed in place since" + table((f"saved by {self._name}", self._line), change(modified))
                )
        return self._given(self._saved)

    saved_variables = saved_tensors  # PyTorch's old name

    def _given(self, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """What was kept as `forward` gave it: complex numbers by their parts, and results in the graph while
        `backward` runs, so that what it computes with them can be differentiated."""
        node = self._running
        if self._results and node is not None:
            saved = tuple(
                [t if (at := self._results.get(i)) is None else _joined(t, node, at) for i, t in enumerate(saved)]
            )
        return tuple([k(v) if k else v for k, v in zip(self._pairs, saved, strict=True)]) if any(self._pairs) else saved

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Says that these results have no gradient."""
        self._not_differentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Says that `forward` changed these inputs in place and returns them."""
        self._dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether `backward` gets zeros (the default) or None for a result that nothing depends on."""
        self._materialize = bool(value)


class FunctionNode(Node):
    """The node of a custom function."""

    __slots__ = ("complex_inputs", "complex_results", "context", "function", "inputs", "is_tensor", "specs")

    context: FunctionContext
    function: type[Function]
    inputs: tuple[Spec | None, ...]
    specs: tuple[Spec, ...]
    complex_inputs: tuple[Any, ...]
    complex_results: tuple[Any, ...]
    is_tensor: tuple[bool, ...]
    """Of each result of forward; the other attributes and the outputs are of those that are."""

    def __init__(self, edges: tuple[Node | None, ...]) -> None:
        init_node(self, None, edges)

    def title(self) -> str:
        return self.function.__name__

    def name(self) -> str:
        return self.title() + ("_backward" if shown.root == "norch" else "Backward")

    def __getattr__(self, name: str) -> Any:
        """What `forward` left in its context, which in PyTorch is the node itself."""
        if name in ("context", "function") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.context, name)

    @property
    def line(self) -> Line | None:  # type: ignore[override]
        return self.context._line

    @property
    def output_count(self) -> int:
        return len(self.specs)

    @observable(NODE, hands_over=True)
    def run_backward(self, backward: BackwardPass, grad: Any) -> None:
        grads = grad if type(grad) is list else [grad]
        if self.context._materialize and any(g is None for g in grads):
            given = next(g for g in grads if g is not None)
            grads = [
                given.new_zeros(s.shape, dtype=s.dtype, device=s.device) if g is None else g
                for g, s in zip(grads, self.specs, strict=True)
            ]
        del grad
        grads = [k(g) if k and g is not None else g for k, g in zip(self.complex_results, grads, strict=True)]
        if not all(self.is_tensor):
            of_tensors = iter(grads)
            grads = [next(of_tensors) if is_tensor else None for is_tensor in self.is_tensor]
        self.context._running = self
        try:
            function = self.function
            if function.backward is Function.backward and function.jvp is not Function.jvp:
                found = import_module("norch.autograd.transposed").gradients_by_jvp(self, grads)
            else:
                found = function.backward(self.context, *grads)
        finally:
            self.context._running = None
        found = found if isinstance(found, tuple) else (found,)
        if len(found) < len(self.edges) or any(f is not None for f in found[len(self.edges) :]):
            raise AutogradError(
                f"{self.function.__name__}.backward returned {len(found)} gradients for {len(self.edges)} arguments"
            )
        rest = list(found)
        del found  # so that a leaf may take the memory of its gradient
        for i, (spec, edge) in enumerate(zip(self.inputs, self.edges, strict=True)):
            value, rest[i] = rest[i], None
            if edge is None or value is None or spec is None:
                continue
            if not isinstance(value, TensorBase):
                value = value.pair if self.complex_inputs[i] else value.real
            if backward.needed is None or edge in backward.needed:
                if graph.anomaly_check is not None:
                    graph.anomaly_check(self, i, value)
                value = unbroadcast(value, spec)
                if type(edge) is Leaf and backward.targets is None and edge.hooks is None:  # as ops do: at once
                    owner = edge.tensor()
                    if owner is not None:
                        accumulate(owner, value, backward.create, ALONE)
                else:
                    backward.add(edge, value)
        if not backward.retain:
            self.free(backward.line)

    def free(self, line: Line | None = None) -> None:
        if self.context._saved:
            self.context._saved, self.context._freed, self.context._freed_by = (), True, line


class Function:
    """A function with a derivative of its own. Subclass it with static methods `forward` and `backward`; call `apply`.

    `forward(ctx, *args)` computes with tensors, unrecorded. `backward(ctx, *grads)` returns a gradient, or None, for
    each argument of forward. With `setup_context(ctx, inputs, output)` defined, `forward` takes no ctx.
    """

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """What the function computes: given the context and the arguments, it returns a tensor or a tuple of them.

        To be written by the subclass, with or without `ctx` first, or else `setup_context`. Raises NotImplementedError.
        """
        raise NotImplementedError("a Function needs a static method forward(ctx, *args)")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradients of the arguments, None for those that have none, from those of the results (`grads`, in their
        shapes; None for a result that is no tensor).

        To be written by the subclass, with ops, so that it can be differentiated. Raises NotImplementedError.
        """
        raise NotImplementedError("a Function needs a static method backward(ctx, *grads)")

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The derivatives of the results from those of the arguments, `grad_inputs`, and what `forward` left in `ctx`.
        norch calls it where there is no `backward`, which it is transposed for. Raises NotImplementedError."""
        raise NotImplementedError("a Function that wants forward differentiation needs a static method jvp")

    @classmethod
    @observable(FUNCTION)
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Runs `forward` on `args`, and records it if any tensor among them requires grad.

        With `setup_context` defined, arguments may be given by name, and `forward` may have defaults: each counts as
        an argument, for which `backward` returns a gradient. Raises TypeError for a name otherwise.
        """
        setup: Any = getattr(cls, "setup_context", None)
        if kwargs or setup is not None:
            args = _in_order(cls, setup is not None, args, kwargs)
        for a in args:
            if isinstance(a, TensorBase) and a.apply_function is not None:
                return a.apply_function(cls, args)
        context = FunctionContext()
        context._name = cls.__name__
        edges = tuple([None if (t := _tensor(a)) is None else resolve(t) for a in args])
        context.needs_input_grad = tuple([e is not None for e in edges])
        before = is_recording()
        recording = before and True in context.needs_input_grad
        set_recording(False)
        try:
            if setup is not None:
                result = cls.forward(*args)
                setup(context, args, result)
            else:
                result = cls.forward(context, *args)
        finally:
            set_recording(before)
        one_result = not isinstance(result, tuple)
        results = [result] if one_result else list(result)
        if recording:
            cls._record(context, args, edges, results)
        return results[0] if one_result else tuple(results)

    @classmethod
    def _record(cls, context: FunctionContext, args: Any, edges: Any, results: list[Any]) -> None:
        node = FunctionNode(edges)
        node.function, node.context = cls, context
        context._line = graph.line_of_change and graph.line_of_change()
        given = [_tensor(a) for a in args]
        node.inputs = tuple([None if a is None else a.spec for a in given])
        (result,) = results if len(results) == 1 else (None,)
        if (
            isinstance(result, TensorBase)
            and not (context._dirty or context._not_differentiable)
            and result.spec.dtype.is_floating_point
            and not any(t is not None and (t is not a or t is result) for a, t in zip(args, given, strict=True))
            and not any(t is result for t in context._saved)
        ):  # most are such
            node.complex_inputs, node.complex_results = (None,) * len(args), (None,)
            node.specs, node.is_tensor = (result.spec,), (True,)
            result.base, result.node = None, node
            context._saved, context._saved_at = pack_all(context._saved), node.sequence_number
            return
        node.complex_inputs = _pairs(args)
        node.complex_results = tuple(
            [k for k, r in zip(_pairs(results), results, strict=True) if _tensor(r) is not None]
        )
        tensors = [t for r in results if (t := _tensor(r)) is not None]
        node.specs = tuple(r.spec for r in tensors)
        node.is_tensor = tuple([_tensor(r) is not None for r in results])
        dirty = {id(_tensor(t)) for t in context._dirty}
        constant = {id(_tensor(t)) for t in context._not_differentiable}
        inputs = {id(a) for a in given if a is not None}
        place = 0
        for i, result in enumerate(results):
            value = _tensor(result)
            if value is None:
                continue
            if id(value) in inputs and id(value) not in dirty:
                value = value.detach()
                results[i] = value if isinstance(result, TensorBase) else type(result)(value)
            position, place = place, place + 1
            if id(value) in constant or not value.dtype.is_floating_point:
                continue
            source = node if len(tensors) == 1 else Output(node, position)
            if id(value) in inputs:
                root = value if value.base is None else value.base
                if type(root.node) is Leaf:
                    raise AutogradError(
                        f"{cls.__name__}.apply(): a leaf that requires grad, or a view of one, cannot change in place"
                    )
                graph.rebase(value, source)
            else:
                value.base, value.node = None, source
        # A saved result would hold the node that holds it; without its graph it does not.
        own = {id(r): i for i, r in enumerate(tensors) if id(r) not in inputs and r.node is not None}
        context._results = {i: own[id(t)] for i, t in enumerate(context._saved) if id(t) in own}
        context._saved = pack_all(tuple(t.detach() if id(t) in own else t for t in context._saved))
        context._saved_at = node.sequence_number


FunctionCtx = FunctionContext  # PyTorch's name


class InplaceFunction(Function):
    """PyTorch's old base of functions that change an argument in place, which any Function may: `ctx.mark_dirty`."""


class _Once(Function):
    """The gradients of a backward pass that has none of its own: differentiating them raises."""

    @staticmethod
    def forward(ctx: FunctionContext, count: int, *args: Any) -> Any:
        grads = tuple([g.clone() if hasattr(g, "node") else g for g in args[:count]])
        return grads if count > 1 else grads[0]

    @staticmethod
    def backward(ctx: FunctionContext, *grads: Any) -> Any:
        raise AutogradError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the `backward` of a Function that computes without recording: `fn(ctx, *grads)`.

    Differentiating what it gives raises AutogradError.
    """

    @wraps(fn)
    def backward(ctx: FunctionContext, *grads: Any) -> Any:
        recording = is_recording()
        set_recording(False)
        try:
            out = fn(ctx, *grads)
        finally:
            set_recording(recording)
        tracked = [g for g in grads if isinstance(g, TensorBase) and g.requires_grad]  # type: ignore[attr-defined]
        if not recording or not tracked:
            return out
        several = out if isinstance(out, tuple) else (out,)
        made = _Once.apply(len(several), *several, *tracked)
        return made if len(several) > 1 or not isinstance(out, tuple) else (made,)

    return backward
