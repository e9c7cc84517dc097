"""Derivatives of functions: Jacobians, Hessians, and their products with vectors. `norch.autograd.functional`.

Arguments that mean the same in every function:

    func, inputs: a function of tensors, and the tensor or tuple of tensors that it is differentiated at. Raises
        AutogradError unless it returns a tensor or a tuple of tensors.
    create_graph: whether the result can be differentiated itself. strict: raises AutogradError where an output does not
        depend on an input, instead of giving zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import AutogradError, ShapeError
from ..overriding import ask, is_overriding
from ..tensor_base import TensorBase
from .accumulate import shared_ops
from .engine import grad
from .mode import enable_grad

if TYPE_CHECKING:
    from ..tensor import Tensor

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _construct_standard_basis_for(tensors: Any, tensor_numels: Any) -> tuple[Any, ...]:
    """For each tensor the columns of a unit matrix that are its elements', which programs take from PyTorch's file."""
    total, begin, found = sum(tensor_numels), 0, []
    for tensor, size in zip(tensors, tensor_numels, strict=True):
        columns = tensor.new_zeros(total, size)
        columns[begin : begin + size].diagonal().fill_(1)
        begin += size
        found.append(columns)
    return tuple(found)


def _prepared(inputs: Any, create_graph: bool) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether there are several inputs, and tensors in their place that the function can be differentiated by."""
    several = isinstance(inputs, tuple | list)
    given = tuple(inputs) if several else (inputs,)
    if create_graph:
        return several, tuple(_view(x) if x.requires_grad else _detached(x).requires_grad_() for x in given)
    return several, tuple(_detached(x, copy=True).requires_grad_() for x in given)


def _view(x: Any) -> Any:
    """A view of the tensor; of one whose class is asked, what that gives."""
    kind: Any = TensorBase._result_class
    return ask(kind.view_as, (x, x), {}, [x]) if is_overriding(x) else x.view_as(x)


def _detached(x: Any, copy: bool = False) -> Any:
    if not is_overriding(x):
        return x.detach().clone() if copy else x.detach()
    kind: Any = TensorBase._result_class
    out = ask(kind.detach, (x,), {}, [x])
    return ask(kind.clone, (out,), {}, [out]) if copy and is_overriding(out) else out.clone() if copy else out


def _outputs(func: Callable[..., Any], inputs: tuple[Tensor, ...], op: str) -> tuple[bool, tuple[Tensor, ...]]:
    with enable_grad():
        found = func(*inputs)
    several = isinstance(found, tuple | list)
    results = tuple(found) if several else (found,)
    if any(not hasattr(r, "spec") for r in results):
        raise AutogradError(f"{op}(): the function must return a tensor or a tuple of tensors")
    return several, results


def _gradients(
    output: Tensor,
    inputs: tuple[Tensor, ...],
    seed: Tensor | None,
    create_graph: bool,
    strict: bool,
    op: str,
    is_batched: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of one output, zeros where it does not depend on an input. is_batched: for each of the seeds."""
    if not output.requires_grad:
        if strict:
            raise AutogradError(f"{op}(): an output does not depend on the inputs")
        found: tuple[Tensor | None, ...] = (None,) * len(inputs)
    else:
        found = grad(output, inputs, seed, True, create_graph, allow_unused=True, is_grads_batched=is_batched)
    if strict and any(g is None for g in found):
        raise AutogradError(f"{op}(): an output does not depend on input {[g is None for g in found].index(True)}")
    lead = seed.shape[:1] if is_batched and seed is not None else ()
    return tuple(
        x.detach().new_zeros((*lead, *x.shape)) if g is None else g for g, x in zip(found, inputs, strict=True)
    )


def _shaped(values: tuple[Any, ...], several: bool) -> Any:
    return values if several else values[0]


@enable_grad()
def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivative of each element of `func(*inputs)` by each element of the inputs: (*output, *input).

    One backward pass for each element of the output, or with `vectorize` one for all of them at once, which takes more
    memory. Tuples of inputs or outputs give tuples. `strict`: AutogradError where an output does not depend on an
    input; else zeros. strategy, "reverse-mode" or "forward-mode", is a hint without effect. Raises ValueError for
    another.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian(): strategy must be 'reverse-mode' or 'forward-mode', got {strategy!r}")
    several_inputs, leaves = _prepared(inputs, create_graph)
    several_outputs, outputs = _outputs(func, leaves, "jacobian")
    rows = []
    for out in outputs:
        flat = out.reshape(-1)
        if vectorize and flat.numel() > 1:
            units = flat.detach().new_ones(flat.shape).diag()
            columns = list(_gradients(flat, leaves, units, create_graph, strict, "jacobian", is_batched=True))
        else:
            parts = [_gradients(flat[i], leaves, None, create_graph, strict, "jacobian") for i in range(flat.numel())]
            columns = [
                shared_ops["stack"]([p[at] for p in parts]) if parts else x.new_zeros(0, *x.shape)
                for at, x in enumerate(leaves)
            ]
        blocks = []
        for whole, x in zip(columns, leaves, strict=True):
            block = whole.reshape((*out.shape, *x.shape))
            blocks.append(block if create_graph else block.detach())
        rows.append(_shaped(tuple(blocks), several_inputs))
    return _shaped(tuple(rows), several_outputs)


@enable_grad()
def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function of one element by the inputs: (*input, *input), tuples for tuples.

    Raises ShapeError for a function that returns anything else. `vectorize`: as `jacobian`'s.
    `outer_jacobian_strategy` is a hint without effect.
    """
    several, _ = _prepared(inputs, False)

    def first(*given: Tensor) -> Any:
        _, outputs = _outputs(func, given, "hessian")
        if len(outputs) != 1 or outputs[0].numel() != 1:
            raise ShapeError("hessian(): the function must return one tensor of one element")
        return _gradients(outputs[0].reshape(()), given, None, True, strict, "hessian")

    found = jacobian(first, tuple(inputs) if several else (inputs,), create_graph, False, vectorize)
    return found if several else found[0][0]


def _seeds(v: Any, like: tuple[Tensor, ...], op: str) -> tuple[Tensor, ...]:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise AutogradError(f"{op}(): v can be left out only for one tensor of one element")
        return (like[0].detach().new_ones(like[0].shape),)
    given = tuple(v) if isinstance(v, tuple | list) else (v,)
    if [tuple(g.shape) for g in given] != [tuple(x.shape) for x in like]:
        shapes = [tuple(x.shape) for x in like]
        raise ShapeError(f"{op}(): v has shapes {[tuple(g.shape) for g in given]}, expected {shapes}")
    return given


def _weighted(outputs: tuple[Tensor, ...], seeds: tuple[Tensor, ...]) -> Tensor:
    total = (outputs[0] * seeds[0]).sum()
    for out, seed in zip(outputs[1:], seeds[1:], strict=True):
        total = total + (out * seed).sum()
    return total


@enable_grad()
def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, v @ Jacobian): one backward pass with `v` as the outputs' gradient.

    Raises AutogradError as jacobian does, ShapeError for a v that has not the outputs' shapes.
    """
    several_inputs, leaves = _prepared(inputs, create_graph)
    several_outputs, outputs = _outputs(func, leaves, "vjp")
    total = _weighted(outputs, _seeds(v, outputs, "vjp"))
    found = _gradients(total, leaves, None, create_graph, strict, "vjp")
    shown = outputs if create_graph else tuple(o.detach() for o in outputs)
    return _shaped(shown, several_outputs), _shaped(found, several_inputs)


@enable_grad()
def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, Jacobian @ v): by two backward passes, the second through the first.

    Raises AutogradError as jacobian does, ShapeError for a v that has not the inputs' shapes.
    """
    _, leaves = _prepared(inputs, create_graph)
    seeds = _seeds(v, leaves, "jvp")
    several_outputs, outputs = _outputs(func, leaves, "jvp")
    weights = tuple(o.detach().new_zeros(o.shape, requires_grad=True) for o in outputs)
    with enable_grad():
        first = _gradients(_weighted(outputs, weights), leaves, None, True, strict, "jvp")
        total = _weighted(first, seeds)
    found = _gradients(total, weights, None, create_graph, strict, "jvp")
    shown = outputs if create_graph else tuple(o.detach() for o in outputs)
    return _shaped(shown, several_outputs), _shaped(found, several_outputs)


@enable_grad()
def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, Hessian @ v) of a function of one element: by two backward passes. Raises as hessian does."""
    several, leaves = _prepared(inputs, create_graph)
    seeds = _seeds(v, leaves, "hvp")
    _, outputs = _outputs(func, leaves, "hvp")
    if len(outputs) != 1 or outputs[0].numel() != 1:
        raise ShapeError("hvp(): the function must return one tensor of one element")
    first = _gradients(outputs[0].reshape(()), leaves, None, True, strict, "hvp")
    with enable_grad():
        total = _weighted(first, seeds)
    found = _gradients(total, leaves, None, create_graph, strict, "hvp")
    return outputs[0] if create_graph else outputs[0].detach(), _shaped(found, several)


@enable_grad()
def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """`hvp`: a Hessian is symmetric."""
    return hvp(func, inputs, v, create_graph, strict)


# --- What programs take from PyTorch's file -------------------------------------------------------------------------


def _as_tuple(inp: Any, arg_name: str | None = None, fn_name: str | None = None) -> tuple[bool, tuple[Any, ...]]:
    """Whether tensors were given as a tuple, and as one. Raises TypeError for other than tensors."""
    several = isinstance(inp, tuple)
    given = inp if several else (inp,)
    if any(not hasattr(x, "spec") for x in given):
        raise TypeError(f"{fn_name}(): {arg_name} must be a Tensor or a tuple of them")
    return several, given


def _tuple_postprocess(res: Any, to_unpack: Any) -> Any:
    """What `_as_tuple` made tuples of as it was."""
    if isinstance(to_unpack, tuple):
        res = tuple([part if unpack else part[0] for part, unpack in zip(res, to_unpack, strict=False)])
        return res
    return res if to_unpack else res[0]


def _grad_preprocess(inputs: Any, create_graph: bool, need_graph: bool) -> tuple[Any, ...]:
    """Inputs of a function that is to be differentiated: apart from others' graphs, unless `create_graph`."""
    found = _prepared(tuple(inputs), create_graph)[1]
    return found if need_graph or create_graph else tuple([x.detach() for x in found])


def _grad_postprocess(inputs: Any, create_graph: bool) -> Any:
    """Results as they are, or apart from the graph unless `create_graph`."""
    if create_graph:
        return inputs
    return tuple([x.detach() if hasattr(x, "detach") else _grad_postprocess(x, create_graph) for x in inputs])
