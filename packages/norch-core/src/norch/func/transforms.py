"""Derivatives as functions of functions: grad, vjp, jvp, Jacobians and Hessians. Each works inside and around `vmap`.

What is differentiated runs on all samples of the vmaps that it is within, so one backward pass gives each sample its
own gradient: no sample's result depends on another's argument.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

from ..autograd.engine import grad as engine_grad
from ..autograd.graph import Leaf, is_recording, resolve
from ..autograd.mode import enable_grad
from ..errors import AutogradError, DTypeError, ShapeError
from ..ops.creation import eye, fill_spec
from ..tensor import Tensor
from .batched import current_levels, lift, lower
from .mapping import vmap
from .trees import LEAF, flatten, tree_map, unflatten

Argnums = int | tuple[int, ...]

_leaves_within: ContextVar[tuple[set[Any], ...]] = ContextVar("leaves_within", default=())
"""For each function that is recorded here, the nodes of leaves that transforms within it have made."""


class Tape:
    """One call of a function, recorded: by what it is differentiated, and what it gave."""

    def __init__(
        self,
        op: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        argnums: Argnums,
        has_aux: bool,
        kwargs: dict[str, Any],
    ) -> None:
        self.op, self.levels = op, current_levels.get()
        was_recording = is_recording()
        self.positions = _positions(op, argnums, len(args))
        self.single = isinstance(argnums, int)
        chosen = [args[i] for i in self.positions]
        leaves, self.structure = flatten(chosen)
        self.within: set[Any] = set()
        with enable_grad():
            found = [_leaf(op, x, self.levels, was_recording) for x in leaves]
            self.inputs = [leaf for leaf, _ in found]
            self.tracked = any(tracked for _, tracked in found)
            _note_leaves(self.inputs)
            given = list(args)
            shown = unflatten(self.structure, [lift(leaf, self.levels) for leaf in self.inputs])
            for i, value in zip(self.positions, shown, strict=True):
                given[i] = value
            token = _leaves_within.set((*_leaves_within.get(), self.within))
            try:
                result = func(*given, **kwargs)
            finally:
                _leaves_within.reset(token)
            self.aux = None
            if has_aux:
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise AutogradError(f"{op}(): with has_aux the function must return a pair (output, aux)")
                result, self.aux = result
            outputs, self.out_structure = flatten(result)
            if not outputs or any(not isinstance(out, Tensor) for out in outputs):
                raise AutogradError(f"{op}(): the function must return a tensor, or a tree of them")
            self.shapes = [tuple(out.spec.shape) for out in outputs]
            self.outputs = [lower(out, self.levels) for out in outputs]
        self.tracked = was_recording and (self.tracked or self._depends_on_others())

    def _depends_on_others(self) -> bool:
        """Whether the graph has leaves besides the inputs and those of transforms further in, such as those of a
        gradient further out."""
        own = {resolve(x) for x in self.inputs} | self.within
        stack = [node for node in map(resolve, self.outputs) if node is not None and node not in own]
        seen = set(stack)
        while stack:
            node = stack.pop()
            if type(node) is Leaf:
                return True
            for edge in node.edges:
                if edge is not None and edge not in own and edge not in seen:
                    seen.add(edge)
                    stack.append(edge)
        return False

    def value(self) -> Any:
        """What the function gave."""
        return unflatten(self.out_structure, [self._shown(lift(out, self.levels)) for out in self.outputs])

    def extra(self) -> Any:
        """Its auxiliary result."""
        return tree_map(lambda x: self._shown(x) if isinstance(x, Tensor) else x, self.aux)

    def _shown(self, x: Any) -> Any:
        return x if self.tracked else x.detach()

    def pull(
        self, seeds: list[Tensor], outputs: list[Tensor] | None = None, by: list[Tensor] | None = None
    ) -> list[Any]:
        """The gradients of `outputs` (the results) by the inputs, for these gradients of theirs, lowered."""
        outputs, by = self.outputs if outputs is None else outputs, self.inputs if by is None else by
        pairs = [(out, seed) for out, seed in zip(outputs, seeds, strict=True) if out.requires_grad]
        grads: list[Any] = [None] * len(by)
        if pairs:
            by_seeds = is_recording() and any(seed.requires_grad for _, seed in pairs)
            found = engine_grad(
                [out for out, _ in pairs],
                by,
                [seed for _, seed in pairs],
                retain_graph=True,
                create_graph=(is_recording() and self.tracked) or by_seeds,
                allow_unused=True,
            )
            grads = list(found)
        return [fill_spec(x.spec.like(x.spec.shape), 0) if g is None else g for g, x in zip(grads, by, strict=True)]

    def gradients(self, seeds: list[Tensor]) -> Any:
        """The gradients in the structure of the arguments."""
        grads = unflatten(self.structure, [lift(g, self.levels) for g in self.pull(seeds)])
        return grads[0] if self.single else tuple(grads)

    def lowered(self, tree: Any, what: str, shapes: list[tuple[int, ...]], structure: Any) -> list[Tensor]:
        """A tree of vectors, each of its shape, as they are in memory."""
        leaves, given = flatten(tree)
        if given != structure:
            raise AutogradError(f"{self.op}(): {what} must have the structure of what they belong to")
        for x, shape in zip(leaves, shapes, strict=True):
            if not isinstance(x, Tensor) or tuple(x.spec.shape) != shape:
                found = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
                raise ShapeError(f"{self.op}(): {what} has {found} where {shape} is expected")
        return [lower(x, self.levels) for x in leaves]


def _note_leaves(leaves: list[Tensor]) -> None:
    """Tells the functions that run here of leaves that a transform within them has made, which only it knows of."""
    for within in _leaves_within.get():
        within.update([resolve(x) for x in leaves])


def _positions(op: str, argnums: Argnums, count: int) -> list[int]:
    wanted = [argnums] if isinstance(argnums, int) else list(argnums)
    if not wanted:
        raise AutogradError(f"{op}(): argnums is empty")
    for n in wanted:
        if not -count <= n < count:
            raise AutogradError(f"{op}(): argnums has {n}, but there are {count} positional arguments")
    found = [n % count for n in wanted]
    if len(set(found)) != len(found):
        raise AutogradError(f"{op}(): argnums {argnums} names an argument twice")
    return found


def _leaf(op: str, x: Any, levels: Any, recording: bool) -> tuple[Tensor, bool]:
    """An input that can be differentiated by, lowered, and whether it is part of a graph further out."""
    if not isinstance(x, Tensor):
        raise AutogradError(f"{op}(): expected tensors to differentiate by, got {type(x).__name__}")
    if not x.spec.dtype.is_floating_point:
        raise DTypeError(f"{op}(): only floating tensors can be differentiated by, got {x.spec.dtype}")
    low = lower(x, levels)
    if recording and low.requires_grad:
        return low.view_as(low), True
    return low.detach().requires_grad_(), False


# --- Gradients ------------------------------------------------------------------------------------------------------


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func`, which returns one element, and its value: (gradient, value).

    argnums: by which positional arguments, each a tensor or a tree of them; a tuple gives a tuple. has_aux: `func`
    returns (value, aux), and aux comes with the value: (gradient, (value, aux)).
    """

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tape = Tape("grad", func, args, argnums, has_aux, kwargs)
        if len(tape.shapes) != 1 or tape.shapes[0] not in ((), (1,)) or tape.out_structure is not LEAF:
            raise ShapeError(f"grad(): the function must return one tensor of one element, got shapes {tape.shapes}")
        out = tape.outputs[0]
        grads = tape.gradients([fill_spec(out.spec.like(out.spec.shape), 1)])
        return grads, ((tape.value(), tape.extra()) if has_aux else tape.value())

    return wrapped


def value_and_grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """`grad_and_value` in the order of JAX and MLX: (value, gradient), with `has_aux` ((value, aux), gradient)."""
    both = grad_and_value(func, argnums, has_aux)
    return wraps(func)(lambda *args, **kwargs: both(*args, **kwargs)[::-1])


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `func`; with `has_aux` (gradient, aux). Arguments as of grad_and_value.

    argnums: the argument, or several.
    """
    both = grad_and_value(func, argnums, has_aux)

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, value = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped


# --- Products with Jacobians ----------------------------------------------------------------------------------------


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(output, vjp_fn): what `func` gives of the primals, and a function from the gradient of that to those of them.

    vjp_fn gives a tuple, a gradient for each primal. With `has_aux` (output, vjp_fn, aux).
    """
    tape = Tape("vjp", func, primals, tuple(range(len(primals))), has_aux, {})

    def vjp_fn(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        return tape.gradients(tape.lowered(given, "cotangents", tape.shapes, tape.out_structure))

    return (tape.value(), vjp_fn, tape.extra()) if has_aux else (tape.value(), vjp_fn)


class _Pushed:
    """A tape whose gradients are a function of their seeds, so that they can be differentiated by those."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        with enable_grad():
            self.seeds = [fill_spec(out.spec.like(out.spec.shape), 0).requires_grad_() for out in tape.outputs]
            _note_leaves(self.seeds)
            pairs = [(out, u) for out, u in zip(tape.outputs, self.seeds, strict=True) if out.requires_grad]
            found: Any = [None] * len(tape.inputs)
            if pairs:
                found = engine_grad(
                    [out for out, _ in pairs], tape.inputs, [u for _, u in pairs], create_graph=True, allow_unused=True
                )
        self.rows = [(i, g) for i, g in enumerate(found) if g is not None and g.requires_grad]

    def push(self, tangents: list[Tensor]) -> list[Tensor]:
        """The change of each output for a change of the inputs, lowered."""
        rows, tape = self.rows, self.tape
        return tape.pull([tangents[i] for i, _ in rows], [g for _, g in rows], self.seeds)

    def lifted(self, tangents: tuple[Any, ...]) -> Any:
        """The change in the structure of the outputs, for one in that of the primals."""
        tape = self.tape
        shapes = [tuple(lift(x, tape.levels).spec.shape) for x in tape.inputs]
        lowered = tape.lowered(list(tangents), "tangents", shapes, tape.structure)
        return unflatten(tape.out_structure, [lift(x, tape.levels) for x in self.push(lowered)])


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(output of `func`, the change of it for a change `tangents` of the primals): the Jacobian times a vector.

    By two backward passes, the second through the first. With `has_aux` (output, change, aux). strict: AutogradError
    where an output does not depend on the primals.
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or len(primals) != len(tangents):
        raise AutogradError("jvp(): primals and tangents must be tuples of one length")
    tape = Tape("jvp", func, primals, tuple(range(len(primals))), has_aux, {})
    if strict and not all(out.requires_grad for out in tape.outputs):
        raise AutogradError("jvp(): an output does not depend on the primals")
    change = _Pushed(tape).lifted(tangents)
    return (tape.value(), change, tape.extra()) if has_aux else (tape.value(), change)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(output, jvp_fn): what `func` gives of the primals, and a function from a change of those to that of the output.

    As `jvp` for many changes: `func` runs once. jvp_fn takes a tangent for each primal, and raises AutogradError for
    another structure, ShapeError for other shapes.
    """
    tape = Tape("linearize", func, primals, tuple(range(len(primals))), False, {})
    pushed = _Pushed(tape)
    return tape.value(), lambda *tangents: pushed.lifted(tangents)


# --- Jacobians ------------------------------------------------------------------------------------------------------


def _basis(x: Any) -> Tensor:
    """The unit vectors of x's elements: (elements, *shape)."""
    n = x.spec.numel
    return eye(n, dtype=x.dtype, device=x.device).reshape((n, *x.spec.shape))


def _like(x: Any) -> Tensor:
    return fill_spec(x.spec.like(x.spec.shape), 0)


def _unrolled(shape: tuple[int, ...], rows: Tensor) -> Tensor:
    """The rows of a Jacobian by the dims of the output that they belong to."""
    return rows.reshape((*shape, *rows.spec.shape[1:]))


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func`, (*output, *argument), by one backward pass for all outputs.

    Trees of outputs or arguments give trees, those of the arguments within those of the outputs. chunk_size: how many
    rows at a time, for less memory. With `has_aux` (Jacobian, aux). argnums: the argument, or several.
    """

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tape = Tape("jacrev", func, args, argnums, has_aux, kwargs)
        outputs = [lift(out, tape.levels) for out in tape.outputs]
        blocks = []
        for at, out in enumerate(outputs):
            rest = [_like(other) for other in outputs]

            def row(unit: Tensor, at: int = at, rest: list[Tensor] = rest) -> Any:
                seeds = [lower(unit if i == at else r, tape.levels) for i, r in enumerate(rest)]
                return tape.gradients(seeds)

            shape = tuple(out.spec.shape)
            rows = vmap(row, chunk_size=chunk_size)(_basis(out.detach()))
            blocks.append(tree_map(partial(_unrolled, shape), rows))
        found = unflatten(tape.out_structure, blocks)
        return (found, tape.extra()) if has_aux else found

    return wrapped


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """A function that gives what `jacrev` gives, an argument's element at a time: for more outputs than arguments.

    norch has no forward mode: it differentiates the backward pass by its seeds. argnums: the argument, or several.
    randomness: as of `vmap`.
    """

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tape = Tape("jacfwd", func, args, argnums, has_aux, kwargs)
        pushed = _Pushed(tape)
        inputs = [lift(x, tape.levels) for x in tape.inputs]
        columns: list[list[Tensor]] = []  # by input, by output: (*output, *input)
        for at, x in enumerate(inputs):
            rest = [_like(other) for other in inputs]

            def column(unit: Tensor, at: int = at, rest: list[Tensor] = rest) -> Any:
                tangents = [lower(unit if i == at else r, tape.levels) for i, r in enumerate(rest)]
                return [lift(change, tape.levels) for change in pushed.push(tangents)]

            shape = tuple(x.spec.shape)
            found = vmap(column, out_dims=-1, randomness=randomness)(_basis(x.detach()))
            columns.append([c.reshape((*c.spec.shape[:-1], *shape)) for c in found])
        blocks = []
        for k in range(len(tape.outputs)):
            block = unflatten(tape.structure, [column[k] for column in columns])
            blocks.append(block[0] if tape.single else tuple(block))
        jacobian = unflatten(tape.out_structure, blocks)
        return (jacobian, tape.extra()) if has_aux else jacobian

    return wrapped


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of `func`: (*output, *argument, *argument), trees for trees.

    argnums: the argument, or several.
    """
    return jacrev(jacrev(func, argnums), argnums)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that gives what `func` gives, and changes what it changes in place: rules for ops in place and for
    views are those of the ops, so that nothing has to be rewritten for `grad` or `vmap`.

    remove: "mutations", or "mutations_and_views". Raises ValueError for another.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise ValueError(f"functionalize(): remove must be 'mutations' or 'mutations_and_views', got {remove!r}")

    @wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped
