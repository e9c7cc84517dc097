"""backward() and grad(): where a backward pass begins, and what it is for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError, ShapeError
from ..observing import PASS, observable
from ..tensor_base import TensorBase
from .accumulate import accumulate, shared_ops
from .edges import GradientEdge
from .graph import Node, resolve
from .hooks import hooked
from .passes import BackwardPass, CountingPass, leading_to

if TYPE_CHECKING:
    from types import FrameType

    from ..spec import Spec
    from ..tensor import Tensor


_SEQUENCES = (tuple, list)  # `tuple | list` is built at each use


@observable(PASS)
def backward(
    tensors: Tensor | Iterable[Tensor],
    grad_tensors: Tensor | Iterable[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensor | Iterable[Tensor] | None = None,
) -> None:
    """Adds the gradients of `tensors` to the `.grad` of the leaves that they depend on (or of `inputs` only).

    Each argument is a tensor or any iterable of them, such as `model.parameters()`; of `tensors` and `inputs` each may
    be a `graph.GradientEdge`.
    grad_tensors: the gradient of each tensor, of its shape; may be left out for tensors of one element.
    retain_graph: keep what the graph saved, so that it can be differentiated again. Default: `create_graph`.
    create_graph: record the backward pass, so that its results can be differentiated.

    Raises AutogradError where a tensor does not require grad, is no scalar and has no gradient given, where the graph
    was freed before, where a saved tensor was changed in place, and for `inputs` that are none.
    """
    if inputs is None:
        if grad_tensors is None and isinstance(tensors, TensorBase):
            starts = [_start(tensors, None, "backward")]
        else:
            starts = _starts(tensors, grad_tensors, "backward")
        if hooked:
            _run(starts, None, retain_graph, create_graph)
        else:
            BackwardPass(None, bool(create_graph if retain_graph is None else retain_graph), create_graph).run(starts)
        return
    wanted = list(map(_parts, _as_list(inputs)))
    if not wanted:
        raise AutogradError("backward(): inputs is empty; leave it out for all leaves")
    starts = _starts(tensors, grad_tensors, "backward")
    nodes = _nodes(wanted, "backward")
    targets: dict[Node, Tensor | None] = dict.fromkeys(nodes)
    _run(starts, targets, retain_graph, create_graph, into_grad=True)
    for node, tensor in dict(zip(nodes, wanted, strict=True)).items():
        value = targets[node]
        if value is not None:
            accumulate(tensor.leaf() if type(tensor) is GradientEdge else tensor, value, create_graph)


def _batched(
    outputs: Any, inputs: Any, seeds: list[Any], retain_graph: bool | None, options: Any
) -> tuple[Tensor | None, ...]:
    """`grad` for each of several gradients of the outputs: at once, or one by one where a rule cannot be batched."""
    counts = {len(g) if g is not None and g.ndim else -1 for g in seeds if g is not None}
    if len(counts) != 1 or min(counts) < 1:
        raise ShapeError("grad(): with is_grads_batched grad_outputs need one first dim, of at least 1")
    given = [at for at, g in enumerate(seeds) if g is not None]
    unused: list[bool] = []

    def one(*parts: Tensor) -> tuple[Tensor, ...]:
        of_outputs = dict(zip(given, parts, strict=True))
        found = grad(outputs, inputs, [of_outputs.get(at) for at in range(len(seeds))], True, *options)
        unused[:] = [g is None for g in found]
        return tuple([g for g in found if g is not None])

    keep = options[0] if retain_graph is None else retain_graph
    try:
        rows = iter(import_module("norch.func").vmap(one)(*[seeds[at] for at in given]))
    except Exception:  # such as that of a Function that looks at its gradient's elements
        rows = None
    if rows is None:
        last = counts.pop() - 1
        columns = zip(
            *[
                grad(outputs, inputs, [g if g is None else g[i] for g in seeds], i < last or keep, *options)
                for i in range(last + 1)
            ],
            strict=True,
        )
        stack = import_module("norch.ops").stack
        return tuple([None if any(g is None for g in column) else stack(column) for column in columns])
    if not keep:
        starts = [_start(_parts(outputs[at]), seeds[at][0], "grad")[0] for at in given]
        for node in leading_to(starts, dict.fromkeys(_nodes(list(map(_parts, inputs)), "grad"))):
            node.free()
    return tuple([None if nothing else next(rows) for nothing in unused])


@observable(PASS)
def grad(
    outputs: Tensor | Iterable[Tensor],
    inputs: Tensor | Iterable[Tensor],
    grad_outputs: Tensor | Iterable[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching any `.grad`; each is a tensor or any
    iterable of them, such as `model.parameters()`.

    only_inputs is PyTorch's and says what is so anyway. grad_outputs: those of the outputs, in their shapes; None is 1,
    for an output of one element. is_grads_batched: each has a first dim of as many gradients, and so has what is
    returned: the graph is gone through once for all, as by `norch.func.vmap`, or else once for each.
    Raises AutogradError as `backward` does, and for an input that the outputs do not depend on, unless `allow_unused`
    (its gradient is then None) or `materialize_grads` (then zeros); ShapeError where `is_grads_batched` finds no one
    first dim.
    """
    if is_grads_batched:
        options = (create_graph, only_inputs, allow_unused, False, materialize_grads)
        return _batched(_as_list(outputs), _as_list(inputs), _as_list(grad_outputs), retain_graph, options)
    given = _as_list(inputs)
    if not given:
        raise AutogradError("grad(): there are no inputs to differentiate by")
    if materialize_grads and allow_unused is False:
        raise AutogradError(
            "grad(): materialize_grads gives unused inputs zeros; do not pass allow_unused=False with it"
        )
    ins = list(map(_parts, given))
    starts = _starts(outputs, grad_outputs, "grad")
    nodes = _nodes(ins, "grad")
    targets: dict[Node, Tensor | None] = dict.fromkeys(nodes)
    _run(starts, targets, retain_graph, create_graph)
    found = [targets[node] for node in nodes]
    if not create_graph:  # they are the caller's, to be changed in place, which repeated elements cannot be
        found = [g.clone() if g is not None and g.spec.overlaps else g for g in found]
    if materialize_grads:
        found = [
            shared_ops["fill"](_spec(t).like(), 0).requires_grad_(create_graph) if g is None else g
            for g, t in zip(found, ins, strict=True)
        ]
    elif not allow_unused and any(g is None for g in found):
        at = next(i for i, g in enumerate(found) if g is None)
        raise AutogradError(
            f"grad(): the outputs do not depend on input {at}; pass allow_unused=True to get None for it"
        )
    wanted: Any = [None if x is t else type(x) for x, t in zip(given, ins, strict=True)]
    return tuple([g if kind is None or g is None else kind(g) for g, kind in zip(found, wanted, strict=True)])


def queue_callback(callback: Callable[[], Any]) -> None:
    """Has `callback()` called at the end of the backward pass that is running: once, after those queued before it.

    Of passes inside of passes (those of reentrant checkpoints) it is the end of the outermost. A callback may queue
    more; a pass that raises calls none. Raises AutogradError where this thread runs no backward pass.
    """
    callbacks_of_pass().append(callback)


def callbacks_of_pass() -> list[Callable[[], Any]]:
    """What is called at the end of the outermost pass that this thread runs. AutogradError where it runs none."""
    frame: FrameType | None = sys._getframe()
    outermost = None
    while frame is not None:  # so that a pass, which a few microseconds may be all of, need not note that it runs
        if frame.f_code is BackwardPass.run.__code__:
            outermost = frame.f_locals["self"]
        frame = frame.f_back
    if outermost is None:
        raise AutogradError("queue_callback(): this thread runs no backward pass; call it in a hook")
    if outermost.callbacks is None:
        outermost.callbacks = []
    callbacks: list[Callable[[], Any]] = outermost.callbacks
    return callbacks


def _run(
    starts: list[tuple[Node, Tensor]],
    targets: dict[Node, Tensor | None] | None,
    retain: bool | None,
    create: bool,
    into_grad: bool = False,
) -> None:
    retain = bool(create if retain is None else retain)
    if hooked:
        CountingPass(targets, retain, create, into_grad).run(starts)
    else:
        BackwardPass(targets, retain, create).run(starts)


def _spec(x: Any) -> Spec:
    return x.spec() if type(x) is GradientEdge else x.spec


def _nodes(inputs: list[Any], caller: str) -> list[Node]:
    nodes = [x.place() if type(x) is GradientEdge else resolve(x) for x in inputs]
    if None in nodes:
        raise AutogradError(f"{caller}(): an input does not require grad; mark it with requires_grad_()")
    return nodes  # type: ignore[return-value]


def _as_list(tensors: Any) -> list[Tensor]:
    return [tensors] if tensors is None or _is_one(tensors) else list(tensors)


def _is_one(tensors: Any) -> bool:
    """Whether that is a tensor, or the pair that is one of complex numbers, and no iterable of them."""
    if isinstance(tensors, _SEQUENCES):
        return type(tensors) is GradientEdge
    return isinstance(_parts(tensors), TensorBase)


def _parts(value: Any) -> Any:
    """The tensor that holds the parts of complex numbers; anything else as it is."""
    return value if isinstance(value, TensorBase) else getattr(value, "pair", value)


def _starts(outputs: Any, grads: Any, caller: str) -> list[tuple[Node, Tensor]]:
    """Where a backward pass begins: the node of each output, and its gradient."""
    if _is_one(outputs):
        return [_start(outputs, grads[0] if isinstance(grads, _SEQUENCES) and len(grads) == 1 else grads, caller)]
    outputs = list(outputs)
    given = [None] * len(outputs) if grads is None else _as_list(grads)
    if len(given) != len(outputs):
        raise AutogradError(f"{caller}(): {len(outputs)} tensors but {len(given)} gradients")
    return [_start(tensor, seed, caller) for tensor, seed in zip(outputs, given, strict=True)]


def _start(tensor: Any, seed: Any, caller: str) -> tuple[Node, Tensor]:
    try:
        node = tensor.node if tensor.base is None else resolve(tensor)
    except AttributeError:
        if type(tensor) is GradientEdge:
            return tensor.place(), _seed(tensor.spec(), seed, caller)
        if _parts(tensor) is tensor:
            raise
        return _start(_parts(tensor), _parts(seed), caller)
    if node is None and tensor.requires_grad:  # a sparse one: its values have the node
        return _start(tensor.to_dense(), seed, caller)
    if node is None:
        raise AutogradError(
            f"{caller}(): a tensor of shape {tuple(tensor.shape)} does not require grad: no operand of the ops "
            "that made it has requires_grad=True, or they ran under no_grad()"
        )
    return node, _seed(tensor.spec, seed, caller)


def _seed(spec: Spec, seed: Any, caller: str) -> Tensor:
    """The gradient to begin with of a tensor of that spec: `seed`, or 1 for one element."""
    if seed is None:
        if spec.numel != 1:
            raise AutogradError(
                f"{caller}(): a gradient can be made up only for a scalar, not for shape {tuple(spec.shape)}; "
                "reduce it (sum, mean) or pass the gradient"
            )
        one: Tensor = shared_ops["fill"](spec if spec.is_contiguous else spec.like(), 1)
        return one
    if isinstance(seed, _SEQUENCES):
        raise AutogradError(f"{caller}(): 1 tensors but {len(seed)} gradients")
    if seed.spec.shape != spec.shape:
        raise ShapeError(f"{caller}(): gradient of shape {tuple(seed.shape)} for a tensor of shape {tuple(spec.shape)}")
    if seed.spec.dtype is not spec.dtype:
        seed = seed.to(spec.dtype)
    return seed  # type: ignore[no-any-return]
