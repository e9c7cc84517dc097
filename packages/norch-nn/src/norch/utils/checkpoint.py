"""Activation checkpointing: a part of a model is computed again in the backward pass instead of kept for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import is_dataclass
from enum import Enum
from typing import Any

import norch

from ._pytree import TreeSpec, tree_flatten, tree_unflatten
from ._recomputation import Recomputation, stops_early

__getattr__ = norch.late_submodules(__name__)

__all__ = [
    "CheckpointPolicy",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_early_stop",
    "set_device_states",
]


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The values, tensors as leaves on the same memory that require grad where they did. Raises RuntimeError for what
    is no tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple([x.detach().requires_grad_(x.requires_grad) if isinstance(x, norch.Tensor) else x for x in inputs])


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warns where none of the values is a tensor that requires grad."""
    if not any(isinstance(x, norch.Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class _Again(norch.autograd.Function):
    """`anchor` requires grad, so that a part whose inputs do not is recorded for what its parameters need."""

    @staticmethod
    def forward(
        ctx: Any, anchor: norch.Tensor, call: Callable[..., Any], keep_rng: bool, contexts: Any, *args: Any
    ) -> Any:
        ctx.call, ctx.random = call, norch.get_rng_state() if keep_rng else None
        within, ctx.again = contexts
        ctx.autocast = norch.keep_autocast()
        ctx.args = [None if isinstance(a, norch.Tensor) else a for a in args]
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, norch.Tensor)]
        ctx.save_for_backward(*[args[i] for i in ctx.places])
        with within:
            return call(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if norch.is_grad_enabled():
            raise norch.AutogradError("checkpoint(): create_graph=True is not supported: what runs again is not kept")
        args = list(ctx.args)
        wanted = [ctx.needs_input_grad[4 + i] for i in ctx.places]
        for place, saved, needed in zip(ctx.places, ctx.saved_tensors, wanted, strict=True):
            args[place] = saved.detach().requires_grad_(needed)
        with norch.random.fork_rng(), norch.enable_grad(), ctx.autocast, ctx.again:
            if ctx.random is not None:
                norch.set_rng_state(ctx.random)
            results = ctx.call(*args)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        if pairs:
            norch.autograd.backward([r for r, _ in pairs], [g for _, g in pairs])
        found = [a.grad if isinstance(a, norch.Tensor) else None for a in args]
        return (None, None, None, None, *found)


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]] | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """`function(*args, **kwargs)`, of which nothing but the arguments is kept: the backward pass computes it again
    (Chen et al., 2016).

    With `preserve_rng_state` both times draw the same random numbers, and both run under the same autocast. context_fn
    gives the context of the first computation, and that of the second.

    use_reentrant: with False the function's ops are part of the graph as without `checkpoint`, and what they save is
    computed again for the first that needs it, up to the last of it (`early_stop`): `autograd.grad`, `create_graph` and
    hooks do what they do without, and it may return anything. Otherwise (None is True, as in PyTorch) the second
    computation has a backward pass of its own. It returns a tensor, or tensors in tuples, lists, dicts and what
    `register_pytree_node` knows then, and tensors get gradients where they are arguments, in such structures too, or
    leaves (parameters), these in their `.grad`: `autograd.grad` does not see leaves in the function, and hooks of a
    leaf are called for each part that it is used in.

    PyTorch's `determinism_check` is taken, without effect. Raises TypeError for its `debug`; AutogradError for a
    function that saves other tensors the second time. With use_reentrant DTypeError for a result of another structure,
    AutogradError for a backward pass with `create_graph`.
    """
    if kwargs.pop("debug", False):
        raise TypeError("checkpoint(): debug is not supported")
    kwargs.pop("determinism_check", None)
    early_stop = kwargs.pop("early_stop", True)
    if not norch.is_grad_enabled():
        return function(*args, **kwargs)
    contexts = (context_fn or noop_context_fn)()
    if use_reentrant is False:
        return Recomputation(function, contexts, preserve_rng_state, early_stop, args, kwargs).run(args, kwargs)
    anchor = norch.zeros((), requires_grad=True)
    leaves, given = tree_flatten((args, kwargs))
    made: list[TreeSpec] = []

    def call(*leaves: Any) -> tuple[Any, ...]:
        args, kwargs = tree_unflatten(leaves, given)
        results, structure = tree_flatten(function(*args, **kwargs))
        for value in results:
            if isinstance(value, list | dict) or is_dataclass(value):
                raise norch.DTypeError(
                    "checkpoint(): the function must return tensors, in tuples, lists and dicts, or what "
                    f"register_pytree_node knows, not a {type(value).__name__}"
                )
        made.append(structure)
        return tuple(results)

    results = _Again.apply(anchor, call, preserve_rng_state, contexts, *leaves)
    return tree_unflatten(results, made[0])


class CheckpointFunction:
    """By which programs that know PyTorch's name ask for `checkpoint` with use_reentrant=True."""

    @staticmethod
    def apply(run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """`run_function(*args)`, which runs again in the backward pass, with the random numbers of the first time if
        `preserve_rng_state`."""
        return checkpoint(run_function, *args, use_reentrant=True, preserve_rng_state=preserve_rng_state)


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Two contexts that do nothing: what `context_fn` gives unless it is chosen."""
    return nullcontext(), nullcontext()


class CheckpointPolicy(Enum):
    """What a policy may say of an op's result in `create_selective_checkpoint_contexts`."""

    MUST_SAVE, PREFER_SAVE, MUST_RECOMPUTE, PREFER_RECOMPUTE, MUST_CPU_OFFLOAD = range(5)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Two contexts for `context_fn`, which do nothing: norch computes all of a part again, whatever a policy would
    save, with the same results and gradients.

    policy_fn_or_list: a function of (ctx, op, *args, **kwargs) that gives a CheckpointPolicy, or a list of ops; it is
    not asked. Raises TypeError for anything else. allow_cache_entry_mutation: ignored.
    """
    if not callable(policy_fn_or_list) and not isinstance(policy_fn_or_list, list):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return noop_context_fn()


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """A context in which `checkpoint` with use_reentrant=False does (`enable`) or does not end its second computation
    where nothing more is needed of it. It does unless told otherwise."""
    before = stops_early.set(enable)
    try:
        yield
    finally:
        stops_early.reset(before)


def set_checkpoint_debug_enabled(enabled: bool | None) -> AbstractContextManager[Any]:
    """Accepted, with `enabled` ignored: what runs again is not compared."""
    return nullcontext()


def checkpoint_sequential(
    functions: Sequence[Callable[..., Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """`checkpoint` of each of `segments` parts of a chain of functions (a `Sequential`); the last part is kept.

    Raises ValueError for fewer functions than segments.
    """
    chain = list(functions)
    if not 1 <= segments <= len(chain):
        raise ValueError(f"checkpoint_sequential(): {segments} segments of {len(chain)} functions")
    size = len(chain) // segments

    def part(start: int, stop: int) -> Callable[[Any], Any]:
        def run(value: Any) -> Any:
            for function in chain[start:stop]:
                value = function(value)
            return value

        return run

    for i in range(segments - 1):
        input = checkpoint(part(i * size, (i + 1) * size), input, use_reentrant=use_reentrant, **kwargs)
    return part((segments - 1) * size, len(chain))(input)


def get_device_states(*args: Any) -> tuple[list[int], list[norch.Tensor]]:
    """The indices of the devices beside the CPU that tensors among `args` are on, and for each the state of random
    numbers, a uint8 vector; norch has one for all devices."""
    found = {a.get_device(): None for a in args if isinstance(a, norch.Tensor) and a.device.type != "cpu"}
    return list(found), [norch.get_rng_state() for _ in found]


def set_device_states(devices: Sequence[int], states: Sequence[norch.Tensor]) -> None:
    """Sets the `states` of random numbers of `devices`, as `get_device_states` gave them."""
    for _, state in zip(devices, states, strict=True):
        norch.set_rng_state(state)
